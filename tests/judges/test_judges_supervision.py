"""Rules about the reference supervisor's report and about waits: outcome, reached."""

from __future__ import annotations

from typing import Any

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, judge, tape

from harness.judges.rules import Judgement
from harness.judges.supervision import flatten_outcome, signal_name
from harness.model.timeline import Kind
from harness.model.verdict import Held


def reported(lane: str = "supervisor", **outcome: Any) -> Tape:
    members = {name.replace("_", "-"): value for name, value in outcome.items()}
    return tape().add(Kind.SUPERVISOR_REPORTED, lane, outcome=members)


LOST = {
    "phase": "workload",
    "exit": {"signal": 9},
    "stderr-tail": "slirp4netns: first line\nlast words",
}
OUTCOME: dict[str, Row] = {
    "the kind": ({"kind": "cancelled"}, reported(kind="cancelled"), YES),
    "another kind": ({"kind": "cancelled"}, reported(kind="exited", exit_code=0), NO),
    "the code": ({"kind": "exited", "code": 3}, reported(kind="exited", exit_code=3), YES),
    "another code": ({"kind": "exited", "code": 3}, reported(kind="exited", exit_code=0), NO),
    "code 0": ({"kind": "exited", "code": 0}, reported(kind="exited", exit_code=0), YES),
    "no code at all": ({"kind": "exited", "code": 0}, reported(kind="exited"), NO),
    "which error refused it": (
        {"kind": "refused", "error": "SpecConflict"},
        reported(kind="refused", error="SpecConflict", reason="x"),
        YES,
    ),
    "another error": (
        {"kind": "refused", "error": "SpecConflict"},
        reported(kind="refused", error="LaunchRefused", reason="x"),
        NO,
    ),
    "when the provider was lost": (
        {"kind": "provider-lost", "phase": "workload"},
        reported(kind="provider-lost", provider=LOST),
        YES,
    ),
    "lost at another time": (
        {"kind": "provider-lost", "phase": "before-gate"},
        reported(kind="provider-lost", provider=LOST),
        NO,
    ),
    "what the provider died of": (
        {"kind": "provider-lost", "provider_signal": "KILL"},
        reported(kind="provider-lost", provider=LOST),
        YES,
    ),
    "a provider that died of something else": (
        {"kind": "provider-lost", "provider_signal": "TERM"},
        reported(kind="provider-lost", provider=LOST),
        NO,
    ),
    "the provider's exit status 0": (
        {"kind": "provider-lost", "provider_code": 0},
        reported(kind="provider-lost", provider={"exit": {"code": 0}}),
        YES,
    ),
    "the provider's status 137 is not a signal": (
        {"kind": "provider-lost", "provider_signal": "KILL"},
        reported(kind="provider-lost", provider={"exit": {"code": 137}}),
        NO,
    ),
    "the tail of the provider's stderr": (
        {"kind": "provider-lost", "stderr_contains": "last words"},
        reported(kind="provider-lost", provider=LOST),
        YES,
    ),
    "what is not in the tail": (
        {"kind": "provider-lost", "stderr_contains": "other words"},
        reported(kind="provider-lost", provider=LOST),
        NO,
    ),
    "a tail that is not there": (
        {"kind": "provider-lost", "stderr_contains": "words"},
        reported(kind="provider-lost", provider={"stderr-tail": None}),
        NO,
    ),
    "nothing was reported": ({"kind": "exited"}, tape(), NO),
    "another supervisor reported": ({"kind": "exited"}, reported("left.x", kind="exited"), NO),
}


@pytest.mark.parametrize("name", OUTCOME)
def test_outcome(name: str) -> None:
    rule, told, held = OUTCOME[name]
    assert judge({"outcome": rule}, told).held is held


def test_an_outcome_that_differs_is_shown_whole() -> None:
    told = reported(kind="provider-lost", provider=LOST)
    assert judge({"outcome": {"kind": "exited", "code": 0}}, told) == Judgement(
        Held.NO,
        "outcome kind exited, exit_code 0",
        "outcome kind provider-lost, exit_code none",
        (1,),
        "phase workload, provider_signal KILL",
    )


def test_what_the_rule_did_not_ask_for_is_an_aside() -> None:
    # Whether a provider was started before set-up failed is a race: 9 of 400 times it was.
    told = (
        reported(kind="setup-failed", provider=None),
        reported(kind="setup-failed", provider={"exit": {"code": 0}}),
    )
    without, with_one = (judge({"outcome": {"kind": "setup-failed"}}, each) for each in told)
    assert without.observed == with_one.observed == "outcome kind setup-failed"
    assert (without.aside, with_one.aside) == ("", "provider_code 0")


def test_the_tail_of_stderr_is_an_aside_of_whether_the_text_is_in_it() -> None:
    told = reported(kind="provider-lost", provider={"stderr-tail": "pid 4711: last words"})
    rule = {"kind": "provider-lost", "stderr_contains": "words"}
    found = judge({"outcome": rule}, told)
    assert found.observed == 'outcome kind provider-lost, stderr with "words"'
    assert found.aside == "stderr pid 4711: last words"


def test_an_outcome_is_flat_and_without_what_is_not_there() -> None:
    assert flatten_outcome({"kind": "exited", "exit-code": 0, "provider": None}) == {
        "kind": "exited",
        "exit_code": 0,
    }


@pytest.mark.parametrize(("number", "name"), [(9, "KILL"), (15, "TERM"), (13, "PIPE"), (64, "64")])
def test_a_signal_has_its_name_or_its_number(number: int, name: str) -> None:
    assert signal_name(number) == name


STEPS = [
    {"wait": {"line": "stdout", "contains": "up"}},
    {"wait": {"exit": "monitor"}, "trigger": True},
    {"settle": "1ms"},
]
#: The launch that comes first by itself is step 0.
REACHED: dict[str, Row] = {
    "met": ({"exit": "monitor"}, tape().step(2, "wait").done(2, "wait"), YES),
    "its deadline passed": ({"exit": "monitor"}, tape().timed_out(2, "wait"), NO),
    "it could not be met": ({"exit": "monitor"}, tape().failed(2, "wait", "no such thing"), NO),
    "the steps did not get there": ({"exit": "monitor"}, tape().timed_out(1, "wait"), UNKNOWN),
    "the other wait was met": (
        {"line": "stdout", "contains": "up"},
        tape().done(1, "wait").timed_out(2, "wait"),
        YES,
    ),
    "a wait that is no step": ({"exit": "child"}, tape().done(2, "wait"), UNKNOWN),
}


@pytest.mark.parametrize("name", REACHED)
def test_reached(name: str) -> None:
    rule, told, held = REACHED[name]
    assert judge({"reached": rule}, told, steps=STEPS).held is held


def test_a_wait_that_was_not_met_says_why() -> None:
    told = tape().failed(2, "wait", "net did not become ready")
    assert judge({"reached": {"exit": "monitor"}}, told, steps=STEPS) == Judgement(
        Held.NO, "the wait to be met: exit monitor", "net did not become ready", (1,)
    )
