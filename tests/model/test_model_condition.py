"""Conditions: what can be asked, and when it holds."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model.condition import Condition, Term, leading_version, parse_condition

FACTS = {
    "bwrap": "0.11.0",
    "kernel": "6.18.44-fc",
    "uid": 1000,
    "doctor.userns": True,
    "doctor.tun": False,
}
HOLDS: dict[str, bool] = {
    "bwrap == 0.11.0": True,
    "bwrap == 0.11": True,
    "bwrap != 0.11.0": False,
    "bwrap < 0.11.0": False,
    "bwrap <= 0.11.0": True,
    "bwrap < 0.11.1": True,
    "bwrap > 0.9.0": True,
    "bwrap >= 0.13.1": False,
    "kernel >= 6.1": True,
    "kernel < 6.2": False,
    "kernel == 6.18.44": True,
    "uid == 1000": True,
    "uid != 0": True,
    "uid < 999": False,
    "uid >= 1000": True,
    "doctor.userns == true": True,
    "doctor.userns == false": False,
    "doctor.tun == false": True,
    "doctor.tun != false": False,
    "doctor.never-heard-of == true": False,
    "doctor.never-heard-of == false": False,
    "bwrap <= 0.13.1 and uid != 0": True,
    "bwrap <= 0.13.1 and uid == 0": False,
    "bwrap <= 0.9 and uid != 0": False,
    "bwrap > 0.8 and bwrap < 0.12 and kernel >= 6.1": True,
    "  bwrap<=0.13.1   and   uid!=0 ": True,
}


@pytest.mark.parametrize("text", HOLDS)
def test_a_condition_holds_when_all_its_terms_do(text: str) -> None:
    assert parse_condition(text).holds(FACTS) is HOLDS[text]


@pytest.mark.parametrize(
    "text", ["bwrap < 1", "bwrap != 1", "kernel > 1", "uid != 0", "doctor.x != true"]
)
@pytest.mark.parametrize("facts", [{}, {"bwrap": None, "kernel": None, "uid": None}])
def test_what_is_not_known_never_holds(text: str, facts: dict[str, Any]) -> None:
    assert parse_condition(text).holds(facts) is False


def test_a_version_that_cannot_be_read_never_holds() -> None:
    assert parse_condition("bwrap != 1").holds({"bwrap": "git"}) is False


def test_root_is_known_although_its_uid_is_zero() -> None:
    assert parse_condition("uid == 0").holds({"uid": 0}) is True


def test_a_condition_keeps_its_terms_and_how_it_was_written() -> None:
    parsed = parse_condition(" bwrap <= 0.13.1 and uid != 0 ")
    assert parsed == Condition(
        "bwrap <= 0.13.1 and uid != 0", (Term("bwrap", "<=", "0.13.1"), Term("uid", "!=", "0"))
    )
    assert str(parsed) == "bwrap <= 0.13.1 and uid != 0"


REFUSED = {
    "": "cannot read",
    "bwrap": "cannot read",
    "bwrap 0.13": "cannot read",
    "bwrap = 0.13": "cannot read",
    "bwrap => 0.13": "cannot read",
    "bwrap <= 0.13 and": "cannot read",
    "and uid == 0": "cannot read",
    "bwrap <= 0.13 or uid == 0": "cannot read",
    "bwrap <= 0.13, uid == 0": "cannot read",
    "0.13 >= bwrap": "cannot read",
    "bubblewrap <= 0.13": 'unknown fact "bubblewrap"',
    "doctor <= 1": 'unknown fact "doctor"',
    "bwrap <= new": '"new" is not a version',
    "kernel >= 6.x": '"6.x" is not a version',
    "uid == root": "uid is compared with a number",
    "uid == -1": "uid is compared with a number",
    "doctor.tun == yes": "doctor.tun is compared with true or false",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_condition_that_cannot_be_read_says_which_term(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        parse_condition(text)


@pytest.mark.parametrize("value", [None, 0.13, 1, True, ["bwrap <= 1"], {"bwrap": "1"}])
def test_only_text_is_a_condition(value: object) -> None:
    with pytest.raises(ValueError, match="expected a condition such as"):
        parse_condition(value)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.18.44-fc", "6.18.44"),
        ("0.11.0", "0.11.0"),
        ("6", "6"),
        ("6.", "6"),
        ("v6.1", None),
        ("", None),
    ],
)
def test_the_version_at_the_start_of_a_text(text: str, version: str | None) -> None:
    found = leading_version(text)
    assert (str(found) if found is not None else None) == version
