"""Rules about order and time, and the moments that they are about."""

from __future__ import annotations

from typing import Any

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, judge, scenario, tape

from harness.judges.rules import Case, Judgement, find_moment
from harness.model.scenario import Moment
from harness.model.timeline import Kind
from harness.model.verdict import Held

A, B, C = {"eof": "a"}, {"eof": "b"}, {"exit": "monitor"}
ORDER: dict[str, tuple[list[dict[str, Any]], Tape, Held]] = {
    "one wake-up after the other": ([A, B], tape().eof("a").eof("b"), YES),
    "the other way round": ([A, B], tape().eof("b").eof("a"), NO),
    "in one wake-up": ([A, B], tape().eof("a").together().eof("b"), UNKNOWN),
    "one of them did not happen": ([A, B], tape().eof("a"), NO),
    "none of them happened": ([A, B], tape(), NO),
    "three in order": ([A, B, C], tape().eof("a").eof("b").exited("monitor"), YES),
    "three, of which the last two are swapped": (
        [A, B, C],
        tape().eof("a").exited("monitor").eof("b"),
        NO,
    ),
    "three, of which two are in one wake-up": (
        [A, B, C],
        tape().eof("a").eof("b").together().exited("monitor"),
        UNKNOWN,
    ),
    "what is certainly wrong is not excused by what is unknown": (
        [A, B, C],
        tape().eof("b").exited("monitor").together().eof("a"),
        NO,
    ),
    "neighbours unknown, but the first is after the last": (
        [A, {"line": "out", "contains": "late"}, C],
        tape().exited("monitor").together().line("out", "x").late().line("out", "late").eof("a"),
        NO,
    ),
    "the same channel within one wake-up": (
        [{"object": "s", "has": "child-pid"}, {"object": "s", "has": "exit-code"}],
        tape().object("s", child_pid=1).late().object("s", exit_code=1),
        YES,
    ),
    "the same channel the other way round": (
        [{"object": "s", "has": "exit-code"}, {"object": "s", "has": "child-pid"}],
        tape().object("s", child_pid=1).late().object("s", exit_code=1),
        NO,
    ),
    "a late line may be as late as the next wake-up": (
        [{"line": "out", "contains": "two"}, A],
        tape().line("out", "one").late().line("out", "two").eof("a"),
        UNKNOWN,
    ),
    "a late line was there before the wake-up after the next": (
        [{"line": "out", "contains": "two"}, A],
        tape().line("out", "one").late().line("out", "two").eof("b").eof("a"),
        YES,
    ),
}


@pytest.mark.parametrize("name", ORDER)
def test_order(name: str) -> None:
    moments, told, held = ORDER[name]
    assert judge({"order": moments}, told).held is held


def test_an_order_that_is_wrong_shows_what_came_when() -> None:
    told = tape().eof("b").exited("monitor").eof("a")
    assert judge({"order": [A, B, C]}, told) == Judgement(
        Held.NO,
        "EOF on a, then EOF on b, then exit of monitor",
        "EOF on b at 2.00 ms, then exit of monitor at 3.00 ms, then EOF on a at 4.00 ms",
        (1, 2, 3),
    )


def test_an_order_that_is_unknown_says_that_it_was_one_wake_up() -> None:
    told = tape().eof("a").together().eof("b")
    assert judge({"order": [A, B]}, told) == Judgement(
        Held.UNKNOWN,
        "EOF on a, then EOF on b",
        "EOF on a at 2.00 ms, then EOF on b at 2.00 ms; in one wake-up, so their order is not "
        "known",
        (1, 2),
    )


def test_a_moment_that_did_not_happen_is_named_with_those_that_did() -> None:
    assert judge({"order": [A, B]}, tape().eof("a")) == Judgement(
        Held.NO, "EOF on a, then EOF on b", "EOF on b did not happen", (1,)
    )


def gap(ms: float) -> Tape:
    """The exit, and so much later the EOF."""
    return tape().exited("monitor").after(ms - 1).eof("sync")


BACKWARDS = tape().eof("sync").after(9).exited("monitor")
GAP: dict[str, Row] = {
    "short enough": ({"at_most": "5ms"}, gap(5), YES),
    "too long": ({"at_most": "5ms"}, gap(5.001), NO),
    "long enough": ({"at_least": "5ms"}, gap(5), YES),
    "too short": ({"at_least": "5ms"}, gap(4.999), NO),
    "between both": ({"at_least": "1ms", "at_most": "5ms"}, gap(3), YES),
    "above both": ({"at_least": "1ms", "at_most": "5ms"}, gap(6), NO),
    "below both": ({"at_least": "2ms", "at_most": "5ms"}, gap(1), NO),
    "at most bounds the distance in both directions": ({"at_most": "10ms"}, BACKWARDS, YES),
    "too far apart the other way round": ({"at_most": "9ms"}, BACKWARDS, NO),
    "at least demands the order": ({"at_least": "1ms"}, BACKWARDS, NO),
    "no start": ({"at_most": "1s"}, tape().eof("sync"), NO),
    "no end": ({"at_most": "1s"}, tape().exited("monitor"), NO),
}


@pytest.mark.parametrize("name", GAP)
def test_gap(name: str) -> None:
    rule, told, held = GAP[name]
    moments = {"from": {"exit": "monitor"}, "to": {"eof": "sync"}}
    assert judge({"gap": {**moments, **rule}}, told).held is held


def test_a_gap_cites_both_moments_and_says_how_long_it_was() -> None:
    rule = {"from": {"exit": "monitor"}, "to": {"eof": "sync"}, "at_most": "5ms"}
    assert judge({"gap": rule}, gap(1000)) == Judgement(
        Held.NO, "exit of monitor to EOF on sync: at most 5 ms", "1000.00 ms", (1, 2)
    )


MOMENTS: dict[str, tuple[dict[str, Any], Tape, int | None]] = {
    "the first line": ({"line": "out"}, tape().line("err", "x").line("out", "x"), 2),
    "the first line that contains it": (
        {"line": "out", "contains": "b"},
        tape().line("out", "a").line("out", "abc").line("out", "b"),
        2,
    ),
    "no line contains it": ({"line": "out", "contains": "b"}, tape().line("out", "a"), None),
    "the first object": ({"object": "s"}, tape().line("s", "{}").object("s", a=1), 2),
    "the first object that has it": (
        {"object": "s", "has": "exit-code"},
        tape().object("s", child_pid=1).object("s", exit_code=1),
        2,
    ),
    "the end of a channel": ({"eof": "s"}, tape().eof("t").eof("s"), 2),
    "the exit of a process": ({"exit": "child"}, tape().exited("monitor").exited("child"), 2),
    "a marker": ({"marker": "ran"}, tape().marker("other").marker("ran"), 2),
    "a word of the reference supervisor": (
        {"said": "gate-opened"},
        tape()
        .add(Kind.SUPERVISOR_SAID, "supervisor", name="monitor-started", fields={})
        .add(Kind.SUPERVISOR_SAID, "supervisor", name="gate-opened", fields={}),
        2,
    ),
    "the loss of a provider": ({"lost": "net"}, tape().add(Kind.PROVIDER_LOST, "net"), 1),
    "the act of the trigger step": (
        {"trigger": True},
        tape()
        .step(0, "signal")
        .add(Kind.SIGNAL_SENT, "monitor", signal="TERM", pid=1, group=False)
        .exited("monitor")
        .done(0, "signal", trigger=True),
        2,
    ),
    "the end of a trigger step that only waited": (
        {"trigger": True},
        tape().step(0, "wait").exited("monitor").done(0, "wait", trigger=True),
        3,
    ),
    "an act of another step is not the trigger": (
        {"trigger": True},
        tape()
        .step(0, "write")
        .add(Kind.DATA_WRITTEN, "gate", channel="gate", bytes=1, by="observer")
        .done(0, "write")
        .step(1, "wait")
        .done(1, "wait", trigger=True),
        5,
    ),
    "a trigger step that timed out is no moment": (
        {"trigger": True},
        tape().step(0, "wait").timed_out(0, "wait", trigger=True),
        None,
    ),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_a_moment_is_the_first_event_of_its_kind(name: str) -> None:
    moment, told, seq = MOMENTS[name]
    found = find_moment(Case(scenario(), told.timeline), Moment.model_validate(moment))
    assert (found.seq if found is not None else None) == seq
