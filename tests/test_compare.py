"""Comparing two recorded sides: what changed, what did it, and for the worse or not."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from harness.compare import Side, compare
from harness.judges.rates import fisher_exact, wilson
from harness.model.change import Cause, Change, Direction
from harness.model.timeline import Event, Kind, Timeline
from harness.model.verdict import Finding, Held, Rate, Result, Status, Subject
from harness.reporters import comparison as words
from harness.reporters.terminal import Style
from harness.signature import certain_orders, signature


def result(
    name: str = "a.b", status: Status = Status.PASS, observed: str = "it exited 7", **more: Any
) -> Result:
    finding = Finding("exit", Held.YES, "monitor exits 7", observed)
    return Result(name, "bundled", status, findings=(finding,), **more)


def side(label: str, *results: Result, kernel: str = "6.18", **more: Any) -> Side:
    settings: dict[str, Any] = {
        "label": label,
        "subject": Subject("bundled", "0.11.0", "/bwrap", kernel=kernel, uid=1000),
        "hostname": "here",
        "harness_version": "1",
        "results": {each.id: each for each in results},
        "digests": {each.id: "same" for each in results},
    }
    return Side(**{**settings, **more})


def test_two_equal_sides_have_no_change() -> None:
    compared = compare(side("a", result()), side("b", result()))
    assert (compared.changes, compared.compared, compared.refusal) == ((), 1, "")


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        (Status.PASS, Status.FAIL, Direction.REGRESSION),
        (Status.PASS, Status.KNOWN, Direction.REGRESSION),
        (Status.KNOWN, Status.FAIL, Direction.REGRESSION),
        (Status.KNOWN, Status.PASS, Direction.IMPROVEMENT),
        (Status.FAIL, Status.PASS, Direction.IMPROVEMENT),
        (Status.PASS, Status.UNEXPECTED_PASS, Direction.NEUTRAL),
        (Status.PASS, Status.INCONCLUSIVE, Direction.LOST),
        (Status.PASS, Status.SKIP, Direction.LOST),
        (Status.KNOWN, Status.ERROR, Direction.LOST),
        (Status.SKIP, Status.PASS, Direction.NEUTRAL),
    ],
)
def test_a_changed_verdict_has_a_direction(
    before: Status, after: Status, direction: Direction
) -> None:
    other = result("c.d")  # one scenario that can be compared, whatever becomes of this one
    compared = compare(
        side("a", result(status=before), other), side("b", result(status=after), other)
    )
    assert compared.changes == (
        Change(Cause.SUBJECT, direction, "a.b", "verdict", str(before), str(after)),
    )


def test_a_change_of_a_rewritten_scenario_is_laid_at_the_suites_door() -> None:
    compared = compare(
        side("a", result()), side("b", result(status=Status.FAIL), digests={"a.b": "rewritten"})
    )
    assert {change.cause for change in compared.changes} == {Cause.SUITE}
    assert [change.what for change in compared.changes] == ["verdict", "scenario"]


def test_what_only_one_side_has_is_a_change_of_the_suite_and_is_not_compared() -> None:
    compared = compare(side("a", result(), result("old.one")), side("b", result()))
    assert compared.compared == 1
    assert compared.changes == (
        Change(Cause.SUITE, Direction.NEUTRAL, "old.one", "scenario", "there", "not there"),
    )


def subject(spec: str = "host", sha256: str = "", **more: Any) -> Subject:
    return Subject(spec, "0.8.0", "/bwrap", sha256, "6.18", 1000, **more)


@pytest.mark.parametrize(
    ("shas", "cause"),
    [
        (("a", "b"), Cause.SUBJECT),
        (("a", "a"), Cause.ENVIRONMENT),
        (("", ""), Cause.SUBJECT),
    ],
)
def test_the_same_binary_is_not_what_changed(shas: tuple[str, str], cause: Cause) -> None:
    sides = [
        side(sha, result(observed=seen), subject=subject(sha256=sha))
        for sha, seen in zip(shas, ("it exited 7", "it exited 8"), strict=True)
    ]
    assert [change.cause for change in compare(*sides).changes] == [cause]


def test_what_doctor_found_otherwise_and_where_are_changes_of_the_environment() -> None:
    here = subject(facts={"doctor.tun": True, "doctor.pidfd": True, "uid": 1, "doctor.gone": True})
    there = subject("image:x", image_digest="d", facts={"doctor.tun": False, "doctor.pidfd": True})
    compared = compare(side("a", result(), subject=here), side("b", result(), subject=there))
    assert [(c.cause, c.what, c.before, c.after) for c in compared.changes] == [
        (Cause.ENVIRONMENT, "place", "the machine itself", "a container"),
        (Cause.ENVIRONMENT, "tun", "works", "does not work"),
    ]


def test_what_a_rule_did_not_ask_for_is_no_change() -> None:
    found = Finding("outcome", Held.YES, "outcome kind setup-failed", "outcome kind setup-failed")
    befores, afters = (
        Result("a.b", "host", Status.PASS, findings=(dataclasses.replace(found, aside=aside),))
        for aside in ("", "provider_code 0")
    )
    assert compare(side("a", befores), side("b", afters)).changes == ()


def test_how_a_process_ends_that_may_end_anyhow_is_no_change() -> None:
    sides = [
        side(seen, Result("a.b", "x", Status.PASS, findings=(Finding("exit", Held.YES, *told),)))
        for seen in ("it exited 0", "it was killed by SIGKILL")
        for told in [("net ends", seen)]
    ]
    assert compare(*sides).changes == ()


def test_another_kernel_is_told_as_a_change_of_the_environment() -> None:
    compared = compare(side("a", result()), side("b", result(), kernel="6.19"))
    assert compared.changes == (
        Change(Cause.ENVIRONMENT, Direction.NEUTRAL, "", "kernel", "6.18", "6.19"),
    )


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ((), (result(),), "a has no results"),
        ((result("x.y"),), (result(),), "a and b have no scenario in common"),
        (
            (result(status=Status.SKIP),),
            (result(),),
            "no scenario has a verdict both in a and in b",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    before: tuple[Result, ...], after: tuple[Result, ...], refusal: str
) -> None:
    compared = compare(side("a", *before), side("b", *after))
    assert (compared.refusal, compared.changes) == (refusal, ())


def test_a_rule_that_held_on_another_observation_is_a_change_inside_the_verdict() -> None:
    compared = compare(side("a", result()), side("b", result(observed="it exited 8")))
    assert compared.changes == (
        Change(
            Cause.SUBJECT, Direction.NEUTRAL, "a.b", "seen by exit", "it exited 7", "it exited 8"
        ),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("met at 3.1 ms", "met at 77.9 ms"),
        ("EOF after 70 bytes", "EOF after 71 bytes"),
        ("child 12345", "child 54321"),
    ],
)
def test_times_sizes_and_pids_are_no_change(before: str, after: str) -> None:
    compared = compare(side("a", result(observed=before)), side("b", result(observed=after)))
    assert compared.changes == ()


def test_rates_change_only_where_chance_does_not_explain_it() -> None:
    def racy(hits: int) -> Result:
        rate = Rate("survivors", wilson(hits, 200), "at most 0.0%")
        return result(status=Status.KNOWN, rates=(rate,), repeats=200)

    assert compare(side("a", racy(20)), side("b", racy(24))).changes == ()
    worse = compare(side("a", racy(2)), side("b", racy(117))).changes
    assert [(c.direction, c.what) for c in worse] == [
        (Direction.REGRESSION, "rate of failures of survivors")
    ]
    assert worse[0].p_value is not None
    assert worse[0].p_value < 1e-9


def test_a_statement_that_is_always_another_is_a_change_and_a_wavering_one_is_not() -> None:
    many = result(repeats=10)

    def recorded(label: str, values: dict[str, int]) -> Side:
        return side(label, many, statements={"a.b": {"end of monitor": Counter(values)}})

    assert compare(recorded("a", {"x": 6, "y": 4}), recorded("b", {"x": 4, "y": 6})).changes == ()
    changes = compare(recorded("a", {"x": 10}), recorded("b", {"y": 10})).changes
    assert [(c.what, c.before, c.after) for c in changes] == [("end of monitor", "x", "y")]


def test_an_order_that_is_reversed_every_time_is_a_change() -> None:
    many = result(repeats=10)

    def recorded(label: str, word: str) -> Side:
        return side(label, many, orders={"a.b": {"marker m, EOF on status": Counter({word: 10})}})

    changes = compare(recorded("a", "before"), recorded("b", "after")).changes
    assert [(c.what, c.before, c.after) for c in changes] == [
        ("order", "marker m before EOF on status", "marker m after EOF on status")
    ]
    assert compare(recorded("a", "before"), recorded("b", "unknown")).changes == ()


def test_of_one_recording_what_is_steady_is_compared_and_what_is_chance_is_not() -> None:
    def recorded(label: str, statements: dict[str, str]) -> Side:
        counted = {what: Counter({value: 1}) for what, value in statements.items()}
        return side(label, result(), statements={"a.b": counted})

    before = recorded(
        "a",
        {"fds seen by command": "[0, 1, 2]", "end of child": "status 0", "EOF on stdout": "seen"},
    )
    after = recorded("b", {"fds seen by command": "[0, 1, 2, 9]", "lines on stdout": "late"})
    assert [(c.what, c.before, c.after) for c in compare(before, after).changes] == [
        ("fds seen by command", "[0, 1, 2]", "[0, 1, 2, 9]"),
        ("lines on stdout", "nothing", "late"),
    ]


def test_what_was_not_recorded_on_one_side_is_no_change_of_what_was_seen() -> None:
    seen = {"a.b": {"fds seen by command": Counter({"[0, 1, 2]": 1})}}
    skipped = side("b", result(status=Status.SKIP))
    common = result("a.c")
    changes = compare(
        side("a", result(), common, statements=seen),
        dataclasses.replace(
            skipped,
            results={**skipped.results, "a.c": common},
            digests={"a.b": "same", "a.c": "same"},
        ),
    ).changes
    assert [(c.what, c.direction) for c in changes] == [("verdict", Direction.LOST)]


def test_who_asks_often_is_not_told_yes_by_chance() -> None:
    # 8 of 12 against 1 of 12 is p = 0.0094: a change when it is all that wavers, none among ten.
    def recorded(label: str, hits: int, others: int) -> Side:
        statements = {"racy": Counter({"x": hits, "y": 12 - hits})}
        for number in range(others):
            statements[f"other {number}"] = Counter({"x": 6 + (label == "a"), "y": 6})
        statements |= {f"steady {n}": Counter({"x": 12}) for n in range(50)}
        return side(label, result(repeats=12), statements={"a.b": statements})

    (change,) = compare(recorded("a", 8, 0), recorded("b", 1, 0)).changes
    assert (change.what, round(change.p_value or 1, 4)) == ("racy", 0.0094)
    assert compare(recorded("a", 8, 9), recorded("b", 1, 9)).changes == ()
    (change,) = compare(recorded("a", 12, 9), recorded("b", 0, 9)).changes
    assert (change.what, change.before, change.after) == ("racy", "x", "y")


@pytest.mark.parametrize(
    ("table", "p_value"),
    [
        # Fisher's own tea tasting, and two tables whose values are in many textbooks.
        ((3, 4, 1, 4), 0.4857142857),
        ((8, 10, 1, 6), 0.0349650350),
        ((0, 10, 10, 10), 1.082508823e-05),
        ((5, 10, 5, 10), 1.0),
        ((0, 10, 0, 10), 1.0),
    ],
)
def test_fishers_exact_test_gives_known_values(
    table: tuple[int, int, int, int], p_value: float
) -> None:
    assert fisher_exact(*table) == pytest.approx(p_value)


def recording(*events: tuple[int, Kind, str, dict[str, Any]]) -> Timeline:
    return Timeline(
        [
            Event(seq, seq * 1000, wake, kind, lane, data)
            for seq, (wake, kind, lane, data) in enumerate(events)
        ]
    )


STATUS = ("status", {"channel": "status", "n": 1, "fragments": 1})


def test_a_signature_leaves_out_pids_times_and_scratch_paths() -> None:
    def one(pid: int, scratch: str) -> Timeline:
        return recording(
            (1, Kind.PROCESS_STARTED, "monitor", {"pid": pid}),
            (
                2,
                Kind.OBJECT_READ,
                "status",
                {"channel": "status", "n": 1, "value": {"child-pid": pid + 1}},
            ),
            (
                3,
                Kind.LINE_READ,
                "stderr",
                {"channel": "stderr", "text": f"bwrap: {scratch}/lock: pid {pid}"},
            ),
            (4, Kind.PROCESS_EXITED, "monitor", {"pid": pid}),
            (4, Kind.STATUS_COLLECTED, "monitor", {"pid": pid, "code": 1}),
        )

    assert signature(one(100, "/tmp/harness-a/s0123abcd")) == {
        "end of monitor": "status 1",
        "objects on status": "{child-pid}",
        "lines on stderr": "bwrap: SCRATCH/lock: pid N",
    }
    assert signature(one(100, "/tmp/harness-a/s0123abcd")) == signature(
        one(20000, "/var/tmp/harness-b/s99ffee01")
    )


def test_the_order_of_two_landmarks_of_one_wake_up_is_unknown() -> None:
    timeline = recording(
        (1, Kind.MARKER_SEEN, "observer", {"marker": "ran"}),
        (2, Kind.EOF_READ, "status", {"channel": "status"}),
        (2, Kind.PROCESS_EXITED, "monitor", {"pid": 5}),
    )
    assert certain_orders(timeline) == {
        "EOF on status, end of monitor": "unknown",
        "EOF on status, marker ran": "after",
        "end of monitor, marker ran": "after",
    }


def test_the_words_name_cause_direction_and_both_values() -> None:
    compared = compare(side("a", result()), side("b", result(status=Status.FAIL, message="gone")))
    assert words.text(compared, Style()) == (
        "before  a\nafter   b\n\n"
        "The subject changed\n"
        "  regression  a.b: verdict\n"
        "      before  pass\n"
        "      after   fail: gone\n\n"
        "1 scenario compared: 1 regression\n"
    )


def test_the_page_shows_hostile_text_as_text() -> None:
    hostile = result(status=Status.FAIL, message="<script>alert(1)</script>")
    page = words.page(compare(side("a", result()), side("b", hostile)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
