"""Adding up: known deviations in every direction, rates, and what outranks what."""

from __future__ import annotations

from typing import Any

import pytest
from judges_tape import NO, UNKNOWN, YES, scenario

from harness.judges.rates import wilson
from harness.judges.recording import Judged
from harness.judges.tally import Conclusion, Tally
from harness.model.verdict import Deviation, Finding, Held, Rate, Status

EXIT = {"exit": {"of": "monitor", "code": 7}}
SURVIVORS = {"survivors": "none"}
KNOWN = {
    "rule": "exit",
    "when": "bwrap <= 0.13.1",
    "because": "bwrap hangs, as measured",
    "issue": "https://example.org/705",
    "fixed_in": "0.14.0",
}
OLD, NEW = {"bwrap": "0.11.0"}, {"bwrap": "0.14.0"}
PLACE = ("scenarios/x.yaml", 12)


def finding(rule: str, held: Held, *, observed: str = "seen", repeat: int = 0) -> Finding:
    return Finding(rule, held, "wanted", observed, repeat=repeat)


def one(
    exit_: Held, survivors: Held = YES, *, repeat: int = 0, observed: str = "seen", **more: Any
) -> Judged:
    """A judged recording with a finding for each of the two rules."""
    findings = (
        finding("exit", exit_, observed=observed, repeat=repeat),
        finding("survivors", survivors, repeat=repeat),
    )
    return Judged(repeat, findings, **more)


def conclude(
    *recordings: Judged, facts: dict[str, Any] = OLD, **members: Any
) -> tuple[Status, str]:
    tally = Tally(scenario(EXIT, SURVIVORS, **members), facts, PLACE)
    for judged in recordings:
        tally.add(judged)
    conclusion = tally.conclude()
    return conclusion.status, conclusion.message


def test_all_held_is_a_pass() -> None:
    assert conclude(one(YES)) == (Status.PASS, "")


def test_one_rule_that_does_not_hold_is_a_failure_that_says_what_was_seen() -> None:
    assert conclude(one(NO)) == (Status.FAIL, "exit: expected wanted; observed seen")


def test_an_undecided_rule_is_inconclusive() -> None:
    assert conclude(one(UNKNOWN)) == (Status.INCONCLUSIVE, "exit: expected wanted; seen")


def test_a_failure_outranks_what_is_undecided() -> None:
    assert conclude(one(UNKNOWN, NO))[0] is Status.FAIL


def test_nothing_recorded_is_an_error() -> None:
    assert conclude() == (Status.ERROR, "nothing was recorded")


def test_trouble_of_ours_outranks_everything() -> None:
    assert conclude(one(NO), one(YES, trouble="a leak")) == (Status.ERROR, "a leak")


# --- vacuity --------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [YES, NO, UNKNOWN])
def test_a_vacuous_recording_is_inconclusive_whatever_its_rules_say(held: Held) -> None:
    told = one(held, vacuous="no trigger")
    assert conclude(told) == (Status.INCONCLUSIVE, "no trigger")


@pytest.mark.parametrize("held", [YES, NO])
def test_a_vacuous_recording_neither_confirms_nor_refutes_a_known_deviation(held: Held) -> None:
    told = one(held, vacuous="no trigger")
    assert conclude(told, known=[KNOWN]) == (Status.INCONCLUSIVE, "no trigger")


def test_one_vacuous_recording_among_good_ones_is_inconclusive() -> None:
    told = (one(YES), one(YES, vacuous="no trigger"))
    assert conclude(*told) == (Status.INCONCLUSIVE, "no trigger")


def test_a_failure_in_a_recording_that_counts_outranks_a_vacuous_one() -> None:
    assert conclude(one(YES, vacuous="no trigger"), one(NO))[0] is Status.FAIL


def test_failures_of_vacuous_recordings_are_not_in_the_rate() -> None:
    tally = Tally(scenario(EXIT, SURVIVORS), OLD)
    for judged in (one(NO, vacuous="no trigger"), one(YES), one(YES)):
        tally.add(judged)
    assert tally.conclude().rates[0] == Rate("exit", wilson(0, 2), "at most 0.0%")


# --- known deviations -----------------------------------------------------------------------------

UNEXPECTED = (
    'exit held in {0}, although it is known to fail when "bwrap <= 0.13.1": if it is fixed, '
    "change the known entry of test.tape (scenarios/x.yaml:12)"
)
STRICT: dict[str, tuple[list[Judged], dict[str, Any], dict[str, Any], Status, str]] = {
    "fails as known": ([one(NO)], OLD, KNOWN, Status.KNOWN, "bwrap hangs, as measured"),
    "fails with the very words": (
        [one(NO, observed="it hung")],
        OLD,
        {**KNOWN, "observed": "it hung"},
        Status.KNOWN,
        "bwrap hangs, as measured",
    ),
    "fails another way": (
        [one(NO, observed="it exited 9")],
        OLD,
        {**KNOWN, "observed": "it hung"},
        Status.FAIL,
        "exit failed another way than the known deviation says: it exited 9, not it hung",
    ),
    "fails another way in one of two repeats": (
        [one(NO, observed="it hung"), one(NO, observed="it exited 9", repeat=1)],
        OLD,
        {**KNOWN, "observed": "it hung"},
        Status.FAIL,
        "exit failed another way than the known deviation says: it exited 9, not it hung",
    ),
    "another rule fails as well": (
        [one(NO, NO)],
        OLD,
        KNOWN,
        Status.FAIL,
        "survivors: expected wanted; observed seen",
    ),
    "another rule fails instead": (
        [one(YES, NO)],
        OLD,
        KNOWN,
        Status.FAIL,
        "survivors: expected wanted; observed seen",
    ),
    "another rule is undecided": (
        [one(NO, UNKNOWN)],
        OLD,
        KNOWN,
        Status.INCONCLUSIVE,
        "survivors: expected wanted; seen",
    ),
    "does not fail": ([one(YES)], OLD, KNOWN, Status.UNEXPECTED_PASS, UNEXPECTED.format("1 of 1")),
    "does not fail in one of two repeats": (
        [one(NO), one(YES, repeat=1)],
        OLD,
        KNOWN,
        Status.UNEXPECTED_PASS,
        UNEXPECTED.format("1 of 2"),
    ),
    "cannot be decided": (
        [one(UNKNOWN)],
        OLD,
        KNOWN,
        Status.INCONCLUSIVE,
        "exit: expected wanted; seen",
    ),
    "fails, and cannot be decided in another repeat": (
        [one(NO), one(UNKNOWN, repeat=1)],
        OLD,
        KNOWN,
        Status.INCONCLUSIVE,
        "exit: expected wanted; seen",
    ),
    "its condition is not met, and it holds": ([one(YES)], NEW, KNOWN, Status.PASS, ""),
    "its condition is not met, and it fails": (
        [one(NO)],
        NEW,
        KNOWN,
        Status.FAIL,
        "exit: expected wanted; observed seen",
    ),
    "the version is not known, and it fails": (
        [one(NO)],
        {},
        KNOWN,
        Status.FAIL,
        "exit: expected wanted; observed seen",
    ),
}


@pytest.mark.parametrize("name", STRICT)
def test_a_known_deviation_is_strict_in_every_direction(name: str) -> None:
    recordings, facts, entry, status, message = STRICT[name]
    assert conclude(*recordings, facts=facts, known=[entry]) == (status, message)


def test_a_known_deviation_of_a_rule_that_does_not_apply_is_an_unexpected_pass() -> None:
    told = Judged(0, (finding("survivors", YES),))
    status, message = conclude(told, known=[KNOWN])
    assert (status, message) == (Status.UNEXPECTED_PASS, UNEXPECTED.format("0 of 0"))


def test_a_known_failure_carries_the_deviation_with_its_place() -> None:
    tally = Tally(scenario(EXIT, SURVIVORS, known=[KNOWN]), OLD, PLACE)
    tally.add(one(NO))
    assert tally.conclude() == Conclusion(
        Status.KNOWN,
        "bwrap hangs, as measured",
        one(NO).findings,
        0,
        (),
        (
            Deviation(
                "exit",
                "bwrap hangs, as measured",
                "https://example.org/705",
                "bwrap <= 0.13.1",
                "0.14.0",
                "scenarios/x.yaml",
                12,
            ),
        ),
    )


@pytest.mark.parametrize("recording", [one(YES), one(NO, NO)], ids=["unexpected-pass", "fail"])
def test_no_other_status_carries_a_deviation(recording: Judged) -> None:
    tally = Tally(scenario(EXIT, SURVIVORS, known=[KNOWN]), OLD, PLACE)
    tally.add(recording)
    assert tally.conclude().deviations == ()


# --- races ----------------------------------------------------------------------------------------


def repeats(failures: int, n: int, undecided: int = 0) -> list[Judged]:
    """So many recordings of which the first ones fail and the last ones are undecided."""
    held = [NO] * failures + [YES] * (n - failures - undecided) + [UNKNOWN] * undecided
    return [one(each, repeat=index) for index, each in enumerate(held)]


RACE = {**KNOWN, "rate_at_least": 0.3}
RACES = {
    # 40 of 200: at most 26 % (Wilson), certainly below the smallest share ever measured.
    "certainly rarer than ever measured": (40, 200, 0, Status.UNEXPECTED_PASS),
    # 50 of 200: up to 31 %.
    "rarer, but not certainly": (50, 200, 0, Status.KNOWN),
    "as often as measured": (60, 200, 0, Status.KNOWN),
    "always": (200, 200, 0, Status.KNOWN),
    "never, in many repeats": (0, 200, 0, Status.UNEXPECTED_PASS),
    "never, in too few repeats to tell": (0, 5, 0, Status.KNOWN),
    "rarer, unless what is undecided was it": (40, 200, 30, Status.INCONCLUSIVE),
}


@pytest.mark.parametrize("name", RACES)
def test_a_known_race_is_a_surprise_only_when_it_is_certainly_rarer(name: str) -> None:
    failures, n, undecided, status = RACES[name]
    assert conclude(*repeats(failures, n, undecided), known=[RACE])[0] is status


def test_a_known_race_that_became_rare_says_how_rare() -> None:
    _, message = conclude(*repeats(40, 200), known=[RACE])
    assert message == UNEXPECTED.format("160 of 200")


ALLOWED = {
    # Three-valued: certainly within, certainly beyond, or neither.
    "never": (0, 100, 0.1, Status.PASS),
    "as often as is allowed": (10, 100, 0.1, Status.PASS),
    "more often, but not certainly": (11, 100, 0.1, Status.INCONCLUSIVE),
    # 18 of 100: at least 11.7 %.
    "certainly more often": (18, 100, 0.1, Status.FAIL),
    "once, where none is allowed": (1, 100, 0.0, Status.FAIL),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_rate_has_three_values(name: str) -> None:
    failures, n, at_most, status = ALLOWED[name]
    assert conclude(*repeats(failures, n), rate={"at_most": at_most})[0] is status


def test_without_a_rate_one_failure_in_many_is_a_failure() -> None:
    assert conclude(*repeats(1, 100)) == (
        Status.FAIL,
        f"exit: expected wanted; observed seen ({wilson(1, 100)})",
    )


def test_a_failure_that_the_rate_may_permit_says_so() -> None:
    _, message = conclude(*repeats(11, 100), rate={"at_most": 0.1})
    assert message == (
        f"exit: expected wanted; observed seen ({wilson(11, 100)}), which the allowed rate may "
        "permit"
    )


def test_the_rate_of_every_rule_is_reported_with_what_is_allowed() -> None:
    tally = Tally(scenario(EXIT, SURVIVORS, known=[RACE], rate={"at_most": 0.1}), OLD)
    for judged in repeats(2, 4):
        tally.add(judged)
    assert tally.conclude().rates == (
        Rate("exit", wilson(2, 4), "known: at least 30.0%"),
        Rate("survivors", wilson(0, 4), "at most 10.0%"),
    )


def test_a_single_recording_has_no_rate() -> None:
    tally = Tally(scenario(EXIT), OLD)
    tally.add(one(NO))
    assert tally.conclude().rates == ()


# --- what a reader is shown -----------------------------------------------------------------------

SHOWN = {
    "the first, when all held": ([one(YES), one(YES, repeat=1)], [], 0),
    "the first failure": ([one(YES), one(NO, repeat=1), one(NO, repeat=2)], [], 1),
    "an undecided one": ([one(YES), one(UNKNOWN, repeat=1)], [], 1),
    "a failure before an undecided one": ([one(UNKNOWN), one(NO, repeat=1)], [], 1),
    "an unknown failure before a known one": ([one(NO), one(NO, NO, repeat=1)], [KNOWN], 1),
    "a known failure before what held": ([one(YES), one(NO, repeat=1)], [RACE], 1),
    "what may not count before all else": (
        [one(NO), one(YES, repeat=1, vacuous="no trigger")],
        [],
        1,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_repeat_that_is_shown_is_the_most_telling_one(name: str) -> None:
    recordings, known, shown = SHOWN[name]
    tally = Tally(scenario(EXIT, SURVIVORS, known=known), OLD)
    for judged in recordings:
        tally.add(judged)
    conclusion = tally.conclude()
    assert (conclusion.shown, tally.shown_repeat) == (shown, shown)
    assert conclusion.findings == recordings[shown].findings
