"""What a scenario needs against what there is: the first thing missing, with its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model.scenario import Scenario
from harness.needs import unmet_need

FACTS = {"bwrap": "0.11.0", "uid": 1000, "recorder_uid": 0}


def fact(*, ok: bool = True, value: object = True, detail: str = "", remedy: str = "") -> Any:
    return {"ok": ok, "value": value, "detail": detail, "remedy": remedy}


REFUSED = fact(ok=False, value=None, detail="it is refused", remedy="allow it")
ENVIRONMENT = {
    "sandbox": fact(),
    "tun": fact(),
    "userns": REFUSED,
    "tool:slirp4netns": fact(value="/usr/bin/slirp4netns"),
    "tool:pasta": REFUSED,
}


def unmet(
    needs: dict[str, Any],
    *,
    facts: dict[str, Any] = FACTS,
    environment: dict[str, Any] = ENVIRONMENT,
    **members: Any,
) -> tuple[str, str] | None:
    scenario = Scenario.model_validate(
        {
            "id": "test.needs",
            "title": "A scenario of these tests",
            "clauses": ["TEST-1"],
            "needs": needs,
            "sandbox": {"command": ["true"]},
            "expect": [{"exit": {"of": "monitor", "code": 0}}],
            **members,
        }
    )
    found = unmet_need(scenario, facts, environment)
    if found is None:
        return None
    # The age of a bwrap, and that alone, is nothing that an environment could mend.
    assert found.of_subject == ("it needs bwrap" in found.reason)
    return found.reason, found.remedy


MET: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a version": {"bwrap": "bwrap >= 0.5.0"},
    "a user": {"user": "non-root"},
    "a tool": {"tools": ["slirp4netns"]},
    "a device": {"devices": ["/dev/net/tun"]},
    "a fact": {"facts": ["sandbox"]},
}


@pytest.mark.parametrize("name", MET)
def test_a_need_that_is_met_skips_nothing(name: str) -> None:
    assert unmet(MET[name]) is None


UNMET: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "a version": (
        {"bwrap": "bwrap >= 0.12.0"},
        ("it needs bwrap >= 0.12.0, and this is 0.11.0", "name another --subject"),
    ),
    "root": ({"user": "root"}, ("it needs root", "run the harness as root with --user root")),
    "a tool that was refused": ({"tools": ["pasta"]}, ("pasta is missing", "allow it")),
    "a tool nobody looked for": (
        {"tools": ["socat"]},
        ("socat is missing", "install socat, so that it is on PATH"),
    ),
    "the second of two tools": (
        {"tools": ["slirp4netns", "pasta"]},
        ("pasta is missing", "allow it"),
    ),
    "a device nobody looked for": (
        {"devices": ["/dev/kvm"]},
        (
            "/dev/kvm cannot be used: it is not there",
            "make /dev/kvm available to the user",
        ),
    ),
    "a fact that does not hold": ({"facts": ["userns"]}, ("userns: it is refused", "allow it")),
    "a fact nobody knows": (
        {"facts": ["oops"]},
        ("nothing is known of oops", "see harness doctor for the facts there are"),
    ),
}


@pytest.mark.parametrize("name", UNMET)
def test_a_need_that_is_not_met_says_which_and_how_to_get_it(name: str) -> None:
    needs, reason = UNMET[name]
    assert unmet(needs) == reason


def test_an_unprivileged_user_is_needed_and_root_runs() -> None:
    found = unmet({"user": "non-root"}, facts={**FACTS, "uid": 0})
    assert found == ("it needs an unprivileged user", "give one with --user")


@pytest.mark.parametrize("recorder", [1000, None])
def test_a_supervisor_that_must_be_root_needs_a_recorder_that_is(recorder: int | None) -> None:
    facts = {**FACTS, "uid": 0, "recorder_uid": recorder}
    assert unmet({}, facts=facts, user="root") == (
        "its supervisor must be root",
        "run the harness as root",
    )


def test_a_device_that_cannot_be_opened_says_why() -> None:
    environment = {**ENVIRONMENT, "tun": REFUSED}
    assert unmet({"devices": ["/dev/net/tun"]}, environment=environment) == (
        "/dev/net/tun cannot be used: it is refused",
        "allow it",
    )


def test_every_scenario_needs_a_sandbox_that_can_be_made_here() -> None:
    found = unmet({}, environment={**ENVIRONMENT, "sandbox": REFUSED})
    assert found == ("sandbox: it is refused", "allow it")


def test_a_version_that_is_not_known_meets_no_need() -> None:
    assert unmet({"bwrap": "bwrap >= 0.1"}, facts={"uid": 1000}) is not None
