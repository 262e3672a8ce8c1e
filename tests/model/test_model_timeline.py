"""The timeline: what order it proves, and how it is written and read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from harness.model.timeline import FORMAT, Event, Kind, Order, Timeline, read_timelines

YES, NO, UNKNOWN = Order.YES, Order.NO, Order.UNKNOWN
OPPOSITE = {YES: NO, NO: YES, UNKNOWN: UNKNOWN}


def event(seq: int, wake: int, *, channel: str | None = None, late: bool = False) -> Event:
    kind = Kind.MARKER_SEEN if channel is None else Kind.LINE_READ
    data = {} if channel is None else {"channel": channel}
    return Event(seq, seq * 1000, wake, kind, "observer", data, late)


def act(seq: int, wake: int, channel: str | None = None) -> Event:
    """Something the recorder did: a wake-up of its own."""
    if channel is None:
        return Event(seq, seq * 1000, wake, Kind.SIGNAL_SENT, "monitor", {"signal": "TERM"})
    return Event(seq, seq * 1000, wake, Kind.DATA_WRITTEN, channel, {"channel": channel})


def said(seq: int, wake: int, lane: str = "supervisor", *, late: bool = False) -> Event:
    return Event(seq, seq * 1000, wake, Kind.SUPERVISOR_SAID, lane, {"name": "x"}, late)


BEFORE: dict[str, tuple[Event, Event, Order]] = {
    "an earlier wake-up": (event(1, 1), event(2, 2), YES),
    "a much earlier wake-up": (event(1, 1), event(2, 9), YES),
    "one wake-up": (event(1, 1), event(2, 1), UNKNOWN),
    "two channels in one wake-up": (event(1, 1, channel="a"), event(2, 1, channel="b"), UNKNOWN),
    "two channels in two wake-ups": (event(1, 1, channel="a"), event(2, 2, channel="b"), YES),
    "one channel in one wake-up": (
        event(1, 1, channel="a"),
        event(2, 1, channel="a", late=True),
        YES,
    ),
    "one channel in two wake-ups": (event(1, 1, channel="a"), event(2, 2, channel="a"), YES),
    "both late on one channel": (
        event(1, 1, channel="a", late=True),
        event(2, 1, channel="a", late=True),
        YES,
    ),
    "late on one channel, then the next wake-up of the same": (
        event(1, 1, channel="a", late=True),
        event(2, 2, channel="a"),
        YES,
    ),
    "said by one supervisor in one wake-up": (said(1, 1), said(2, 1, late=True), YES),
    "said by two supervisors in one wake-up": (said(1, 1), said(2, 1, "left.supervisor"), UNKNOWN),
    "said late, against what came in the next wake-up": (
        said(1, 1, late=True),
        event(2, 2, channel="a"),
        UNKNOWN,
    ),
    "late, against its own wake-up": (event(1, 1, late=True), event(2, 1), UNKNOWN),
    "late, against the next wake-up": (event(1, 1, late=True), event(2, 2), UNKNOWN),
    "late, against the wake-up after the next": (event(1, 1, late=True), event(2, 3), YES),
    "both late in neighbouring wake-ups": (
        event(1, 1, late=True),
        event(2, 2, late=True),
        UNKNOWN,
    ),
    "a late one after an ordinary one": (event(1, 1), event(2, 2, late=True), YES),
    "an act and what was seen before it": (event(1, 1), act(2, 2), YES),
    "an act and what follows it": (act(1, 1), event(2, 2), YES),
    "an act and what was late before it": (event(1, 1, late=True), act(2, 2), UNKNOWN),
    "what is written and what is read on one terminal": (
        act(1, 1, "tty"),
        event(2, 2, channel="tty"),
        YES,
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_before_answers_what_the_wake_ups_prove(name: str) -> None:
    first, second, order = BEFORE[name]
    assert Timeline.before(first, second) is order
    assert Timeline.before(second, first) is OPPOSITE[order]


def test_nothing_is_before_itself() -> None:
    for same in (event(1, 1), event(1, 1, channel="a"), event(1, 1, late=True)):
        assert Timeline.before(same, same) is not YES


# --- writing and reading ------------------------------------------------------------------------

#: Everything that JSON can carry and text can contain.
HOSTILE: dict[str, Any] = {
    "text": 'quote " backslash \\ newline \n nul \0 line \u2028 astral \U0001f980 lone \udc80',
    "none": None,
    "number": 2**63,
    "real": 0.25,
    "list": [1, "x", [], {}],
    "nested": {"a.b": {"": True}},
}


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("late", [False, True], ids=["", "late"])
def test_every_kind_is_read_back_as_it_was_written(kind: Kind, late: bool) -> None:
    written = Event(7, 123_456_789, 3, kind, "left.monitor", HOSTILE, late)
    line = written.to_line()
    assert "\n" not in line
    assert line.isascii()
    assert Event.from_line(line) == written


def test_only_a_late_event_says_so() -> None:
    assert "late" not in json.loads(event(1, 1).to_line())
    assert json.loads(event(1, 1, late=True).to_line())["late"] is True


WRONG_LINES = [
    "",
    "{",
    "7",
    "null",
    "[]",
    '"text"',
    "{}",
    '{"seq":1,"t_ns":1,"wake":1,"kind":"marker-seen","lane":"x"}',
    '{"seq":1,"t_ns":1,"wake":1,"kind":"never-heard-of","lane":"x","data":{}}',
]


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Event.from_line(line)


def opened(**data: Any) -> Event:
    return Event(0, 0, 0, Kind.RECORDING_OPENED, "observer", {"format": FORMAT, **data})


def closed(seq: int, *, complete: bool = True) -> Event:
    data = {"events": seq, "complete": complete}
    return Event(seq, 9, 9, Kind.RECORDING_CLOSED, "observer", data)


def recording(repeat: int) -> list[Event]:
    return [opened(repeat=repeat), event(1, 1), closed(2)]


def lines(events: list[Event]) -> list[str]:
    return [each.to_line() + "\n" for each in events]


def read(*given: str) -> list[Timeline]:
    return list(read_timelines(given))


def test_a_recording_is_read_back_whole() -> None:
    (timeline,) = read(*lines(recording(0)))
    assert timeline == Timeline(recording(0))
    assert timeline.closed
    assert timeline.header == {"format": FORMAT, "repeat": 0}


def test_several_recordings_in_one_stream_are_told_apart() -> None:
    stream = [line for repeat in range(3) for line in lines(recording(repeat))]
    assert read(*stream) == [Timeline(recording(repeat)) for repeat in range(3)]


def test_a_recording_that_was_cut_off_does_not_swallow_the_next() -> None:
    first, second = read(*lines(recording(0)[:2]), *lines(recording(1)))
    assert (first.closed, second.closed) == (False, True)


@pytest.mark.parametrize("end", ["", "\n", "\n\n"], ids=["torn", "newline", "blank-line"])
def test_a_torn_last_line_is_dropped(end: str) -> None:
    *whole, last = lines(recording(0))
    for length in range(1, len(last) - 1):
        (timeline,) = read(*whole, *(last[:length] + end).splitlines(keepends=True))
        assert timeline == Timeline(recording(0)[:2])
        assert not timeline.closed


def test_a_stream_of_nothing_but_a_torn_line_has_no_recording() -> None:
    assert read('{"seq":0,"t_') == []
    assert read() == []


@pytest.mark.parametrize("line", [each for each in WRONG_LINES if each])
def test_a_bad_line_in_the_middle_is_an_error(line: str) -> None:
    first, *others = lines(recording(0))
    with pytest.raises(ValueError, match=r"."):
        read(first, line + "\n", *others)


def test_blank_lines_are_nothing() -> None:
    first, *others = lines(recording(0))
    assert read("\n", first, "\n", *others, "\n") == [Timeline(recording(0))]


@pytest.mark.parametrize("found", [FORMAT + 1, None, "1"])
def test_another_format_is_refused_instead_of_guessed(found: object) -> None:
    with pytest.raises(ValueError, match=f"format {found!r}, expected {FORMAT}"):
        read(*lines([opened(format=found)]))


CLOSED = {
    "nothing": ([], False),
    "no closing line": (recording(0)[:2], False),
    "closed": (recording(0), True),
    "closed, but not complete": ([opened(), closed(1, complete=False)], False),
    "something after the closing line": ([opened(), closed(1), event(2, 9)], False),
}


@pytest.mark.parametrize("name", CLOSED)
def test_only_a_closing_line_at_the_end_closes(name: str) -> None:
    events, is_closed = CLOSED[name]
    assert Timeline(events).closed is is_closed


def test_a_recording_without_its_first_line_has_an_empty_header() -> None:
    assert Timeline([event(1, 1)]).header == {}
    assert Timeline([]).header == {}


def test_events_are_found_by_kind_lane_and_data() -> None:
    told = [
        dataclasses.replace(event(seq, seq, channel=channel), lane=lane)
        for seq, (lane, channel) in enumerate([("x", "a"), ("y", "a"), ("x", "b"), ("x", "a")])
    ]
    timeline = Timeline(told)
    assert [e.seq for e in timeline.of(Kind.LINE_READ)] == [0, 1, 2, 3]
    assert [e.seq for e in timeline.of(Kind.LINE_READ, Kind.EOF_READ, lane="x")] == [0, 2, 3]
    assert [e.seq for e in timeline.of(Kind.LINE_READ, lane="x", channel="a")] == [0, 3]
    assert timeline.first(Kind.LINE_READ, channel="b") is told[2]
    assert timeline.last(Kind.LINE_READ, channel="a") is told[3]
    assert timeline.first(Kind.EOF_READ) is None
    assert timeline.last(Kind.EOF_READ) is None
