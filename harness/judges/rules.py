"""What all families of rules share: the judgement, and looking things up in a timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.model.scenario import Moment, Scenario
from harness.model.timeline import Event, Kind, Timeline
from harness.model.verdict import Held


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether an expectation held, in words, with the events that prove it.

    The members are those of :class:`harness.model.verdict.Finding`.
    """

    held: Held
    expected: str
    observed: str
    events: tuple[int, ...] = ()
    aside: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What every rule is given: the scenario and one recording of it."""

    scenario: Scenario
    timeline: Timeline


def judged(
    holds: bool,
    expected: str,
    observed: str,
    events: Iterable[Event | None] = (),
    *,
    aside: str = "",
) -> Judgement:
    """A judgement that is certain, with the sequence numbers of its events."""
    numbers = tuple(sorted({event.seq for event in events if event is not None}))
    return Judgement(Held.YES if holds else Held.NO, expected, observed, numbers, aside)


def undecided(expected: str, why: str, events: Iterable[Event | None] = ()) -> Judgement:
    """A judgement that the recording does not allow."""
    numbers = tuple(sorted({event.seq for event in events if event is not None}))
    return Judgement(Held.UNKNOWN, expected, why, numbers)


def find_moment(case: Case, moment: Moment) -> Event | None:
    """The first event that a moment names, or None."""
    timeline = case.timeline
    if moment.line is not None:
        return next(
            (
                event
                for event in timeline.of(Kind.LINE_READ, channel=moment.line)
                if moment.contains is None or moment.contains in event.data["text"]
            ),
            None,
        )
    if moment.object is not None:
        return next(
            (
                event
                for event in timeline.of(Kind.OBJECT_READ, channel=moment.object)
                if moment.has is None or moment.has in event.data["value"]
            ),
            None,
        )
    if moment.eof is not None:
        return timeline.first(Kind.EOF_READ, channel=moment.eof)
    if moment.exit is not None:
        return timeline.first(Kind.PROCESS_EXITED, lane=moment.exit)
    if moment.marker is not None:
        return timeline.first(Kind.MARKER_SEEN, marker=moment.marker)
    if moment.said is not None:
        return timeline.first(Kind.SUPERVISOR_SAID, name=moment.said)
    if moment.lost is not None:
        return timeline.first(Kind.PROVIDER_LOST, lane=moment.lost)
    return stimulus_event(timeline)


def describe_moment(moment: Moment) -> str:
    """A moment in words."""
    if moment.line is not None:
        what = f' containing "{moment.contains}"' if moment.contains else ""
        return f"a line{what} on {moment.line}"
    if moment.object is not None:
        return f"the {moment.has or 'first'} object on {moment.object}"
    if moment.eof is not None:
        return f"EOF on {moment.eof}"
    if moment.exit is not None:
        return f"exit of {moment.exit}"
    if moment.marker is not None:
        return f"marker {moment.marker}"
    if moment.said is not None:
        return f"{moment.said}"
    if moment.lost is not None:
        return f"loss of {moment.lost}"
    return "the trigger"


def trigger_event(timeline: Timeline) -> Event | None:
    """The end of the trigger step, or None when it was not carried out."""
    return timeline.first(Kind.STEP_DONE, trigger=True)


#: What a step does to the world; the moment of a trigger is when it did that.
_ACTIONS = (
    Kind.SIGNAL_SENT,
    Kind.DATA_WRITTEN,
    Kind.CHANNEL_CLOSED,
    Kind.HELPER_STOPPED,
    Kind.PROVIDER_STOPPED,
    Kind.LAUNCHER_ENDED,
)


def stimulus_event(timeline: Timeline) -> Event | None:
    """The action of the trigger step, else the end of that step; None when it was not done."""
    done = trigger_event(timeline)
    if done is None:
        return None
    started = timeline.first(Kind.STEP_STARTED, index=done.data["index"])
    first = started.seq if started is not None else 0
    between = timeline.events[first : done.seq]
    return next((event for event in between if event.kind in _ACTIONS), done)


_MISSING = object()


def follow(path: str, value: Any) -> Any:
    """Follow a dotted path; raises KeyError with the part that is not there.

    Keys may themselves contain dots (an environment name never does, a mount point may): the
    longest key that fits is taken.
    """
    if path == "":
        return value
    if isinstance(value, dict):
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            found = value.get(".".join(parts[:end]), _MISSING)
            if found is not _MISSING:
                return follow(".".join(parts[end:]), found)
    if isinstance(value, list):
        head, _, rest = path.partition(".")
        if head.isdigit() and int(head) < len(value):
            return follow(rest, value[int(head)])
    raise KeyError(path)


def is_same(value: Any, wanted: Any) -> bool:
    """Equality as in JSON, where ``true`` is not 1 (in Python it is)."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(is_same(value[k], wanted[k]) for k in wanted)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(is_same, value, wanted))
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def shown(value: Any, limit: int = 200) -> str:
    """A value for a one-line text; long ones are cut."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
