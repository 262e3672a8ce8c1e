"""One recording judged: every finding, and what makes it count for nothing."""

from __future__ import annotations

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, scenario, tape
from test_judges_channels import EOF, FIELD, OBJECTS, TEXT
from test_judges_probes import FDS, LOCKS, OBSERVED, PROBE
from test_judges_processes import CENSUS, EXIT, RAN
from test_judges_supervision import OUTCOME, REACHED
from test_judges_timing import GAP, ORDER

from harness.judges import recording
from harness.judges.recording import RULES, Judged, judge_recording
from harness.judges.rules import Case, Judgement
from harness.model.scenario import EXPECT_VERBS
from harness.model.timeline import Kind, Timeline
from harness.model.verdict import Finding, Held

EXIT_7 = {"exit": {"of": "monitor", "code": 7}}


def good() -> Tape:
    """A recording of a command that exits with 7, as far as the clean-up."""
    return tape().triggered().started("monitor").exited("monitor").status("monitor", code=7)


def held(rows: dict[str, Row], verb: str = "") -> set[Held]:
    return {row[2] for row in rows.values() if not verb or verb in row[0]}


def test_every_verb_has_a_judge_and_every_judge_a_verb() -> None:
    assert set(RULES) == set(EXPECT_VERBS)


def test_every_rule_is_seen_to_hold_to_fail_and_to_be_undecided_where_it_can_be() -> None:
    everything, certain = {YES, NO, UNKNOWN}, {YES, NO}
    assert {
        "exit": held(EXIT),
        "objects": held(OBJECTS),
        "field": held(FIELD),
        "text": held(TEXT),
        "eof": held(EOF),
        "order": {row[2] for row in ORDER.values()},
        "gap": held(GAP),
        "ran": held(RAN, "ran"),
        "never_ran": held(RAN, "never_ran"),
        "survivors": held(CENSUS, "survivors"),
        "zombies": held(CENSUS, "zombies"),
        "alive": held(CENSUS, "alive"),
        "locks": held(LOCKS),
        "fds": held(FDS),
        "observed": held(OBSERVED),
        "probe": held(PROBE),
        "outcome": held(OUTCOME),
        "reached": held(REACHED),
    } == {
        verb: certain if verb in ("eof", "gap", "ran", "never_ran", "outcome") else everything
        for verb in EXPECT_VERBS
    }


def test_a_clean_recording_gives_every_finding() -> None:
    rules = scenario(
        {**EXIT_7, "clause": "TEST-1"}, {"never_ran": "mark"}, {"ran": "mark", "name": "it-ran"}
    )
    assert judge_recording(rules, good().closed(), {}, repeat=3) == Judged(
        3,
        (
            Finding("exit", YES, "monitor exits 7", "it exited 7", "TEST-1", (4, 5), 3),
            Finding("never-ran", YES, "marker mark never appears", "it never appeared", repeat=3),
            Finding("it-ran", NO, "marker mark appears", "it never appeared", repeat=3),
        ),
        duration_s=0.008,
    )


@pytest.mark.parametrize(
    ("bwrap", "rules"),
    [("0.8.0", ["exit", "ran"]), ("0.13.1", ["exit"]), (None, ["exit"])],
    ids=["holds", "does-not-hold", "unknown"],
)
def test_a_rule_applies_only_under_its_condition(bwrap: str | None, rules: list[str]) -> None:
    judged = judge_recording(
        scenario(EXIT_7, {"ran": "mark", "when": "bwrap < 0.9"}), good().closed(), {"bwrap": bwrap}
    )
    assert [finding.rule for finding in judged.findings] == rules


TROUBLE = {
    "nothing at all": (Timeline([]), "no closing line"),
    "no closing line": (good().timeline, "no closing line"),
    "closed, but not complete": (good().closed(complete=False), "no closing line"),
    "something after the closing line": (
        Timeline([*good().closed().events, good().events[0]]),
        "no closing line",
    ),
    "no clean-up": (
        good().add(Kind.RECORDING_CLOSED, "observer", events=7, complete=True).timeline,
        "without a clean-up",
    ),
    "a leak": (good().closed(leaks=("process 9 (x) is still there",)), "process 9 (x)"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_a_recording_that_was_not_ended_well_is_trouble(name: str) -> None:
    timeline, text = TROUBLE[name]
    judged = judge_recording(scenario(EXIT_7), timeline, {})
    assert text in judged.trouble
    assert not judged.is_clean


VACUOUS = {
    "no trigger": (
        tape().started("monitor").exited("monitor").status("monitor", code=7),
        "the trigger was never carried out",
    ),
    "the trigger timed out": (
        tape().status("monitor", code=7).timed_out(2, "wait", trigger=True),
        "the trigger was never carried out: step 3 (wait): its deadline passed",
    ),
    "a step before the trigger failed": (
        tape().status("monitor", code=7).failed(1, "signal", "it is gone"),
        "the trigger was never carried out: step 2 (signal): it is gone",
    ),
}


@pytest.mark.parametrize("name", VACUOUS)
def test_a_recording_without_its_stimulus_is_vacuous_even_if_every_rule_holds(name: str) -> None:
    told, reason = VACUOUS[name]
    judged = judge_recording(scenario(EXIT_7), told.closed(), {})
    assert [finding.held for finding in judged.findings] == [YES]
    assert (judged.vacuous, judged.trouble, judged.is_clean) == (reason, "", False)


HINDERED = {
    "a step after the trigger could not be carried out": (
        good().failed(1, "start", "no slirp4netns"),
        "step 2 (start) could not be carried out: no slirp4netns",
    ),
    "a wait that failed does not hide a step that failed after it": (
        good().failed(1, "wait", "never").failed(2, "signal", "it is gone"),
        "step 3 (signal) could not be carried out: it is gone",
    ),
}


@pytest.mark.parametrize("name", HINDERED)
def test_a_recording_that_went_on_without_a_step_passes_nothing(name: str) -> None:
    told, reason = HINDERED[name]
    judged = judge_recording(scenario(EXIT_7), told.closed(), {})
    assert [finding.held for finding in judged.findings] == [YES]
    assert (judged.vacuous, judged.hindered, judged.is_clean) == ("", reason, False)


@pytest.mark.parametrize(
    "told",
    [good().timed_out(1, "wait"), good().failed(1, "wait", "never")],
    ids=["timed-out", "failed"],
)
def test_a_wait_after_the_trigger_that_was_not_met_is_no_vacuity(told: Tape) -> None:
    assert judge_recording(scenario(EXIT_7), told.closed(), {}).vacuous == ""


def test_a_scenario_none_of_whose_rules_applies_is_vacuous() -> None:
    rules = scenario({**EXIT_7, "when": "uid == 0"})
    judged = judge_recording(rules, good().closed(), {"uid": 1000})
    assert (judged.findings, judged.vacuous) == ((), "no expectation applies to this subject")


def test_a_judge_that_crashes_is_undecided_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(_rule: object, _case: Case) -> Judgement:
        raise ZeroDivisionError("in this judge")

    monkeypatch.setitem(recording.RULES, "exit", crash)
    judged = judge_recording(scenario(EXIT_7, {"never_ran": "mark"}), good().closed(), {})
    crashed, other = judged.findings
    assert (crashed.rule, crashed.held, other.held) == ("exit", UNKNOWN, YES)
    assert crashed.observed.startswith("the judge crashed: Traceback (most recent call last)")
    assert "ZeroDivisionError: in this judge" in crashed.observed
    assert not judged.is_clean


def test_a_timeline_with_a_member_missing_is_undecided_and_never_a_pass() -> None:
    told = good().add(Kind.EOF_READ, "stdout", channel="stdout")
    judged = judge_recording(
        scenario({"text": {"on": "stdout", "at_least_bytes": 1}}), told.closed(), {}
    )
    assert [finding.held for finding in judged.findings] == [UNKNOWN]
