"""The timeline: what one recording of one scenario says happened.  The centre of the project.

The recorder writes it, one JSON object a line, in the order in which it noticed things; the judges
read it and nothing else.  Standard library only, Python 3.9 (the recorder runs in old images).

Order.  Every event has a sequence number ``seq``, a monotonic time ``t_ns`` (nanoseconds since the
recording was opened) and the number ``wake`` of the wake-up of the recorder's one poll loop in
which it was noticed.  All sources are polled together and level-triggered, so when A was ready in
an earlier wake-up than B, B was not ready yet at that moment: A really came first (epoll(7),
"level-triggered").  Two events of the same wake-up have no known order, unless they come from the
same channel, whose bytes are ordered by the pipe itself (pipe(7)).  An event that is ``late`` was
not what made its source ready: it was found behind something else in the same read, so it may
have happened as late as just before the next wake-up, and its order is unknown against that one
too.  What the recorder does itself (a signal, a write) is a wake-up of its own: it looks at all
sources, acts, and looks again.  What happens between that look and the act, some 20 microseconds,
cannot be told from what follows the act; no more than that is claimed.  :meth:`Timeline.before`
answers accordingly, in three values.

Lanes.  ``lane`` names who an event is about: a member of the cast (``supervisor``, ``monitor``,
``child``, ``reaper``, ``command``, ``launcher``, the name of a helper or provider) or the observer.
When a scenario has several sandboxes, the members of each are prefixed: ``left.monitor``.

Read next: ``harness.agent.recorder`` (who writes this), ``harness.judges`` (who reads it).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.vocabulary import FORMAT, Kind, Plan, encode_event

__all__ = ["FORMAT", "Event", "Kind", "Order", "Plan", "Timeline", "read_timelines"]


class Order(enum.Enum):
    """Whether one event came before another: :meth:`Timeline.before`."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Event:
    """One fact.  ``data`` has the members that :class:`Kind` lists for its kind."""

    seq: int
    t_ns: int
    wake: int
    kind: Kind
    lane: str
    data: Mapping[str, Any] = field(default_factory=dict)
    late: bool = False

    def to_line(self) -> str:
        """The event as one line of JSON, without the newline."""
        return encode_event(
            self.seq, self.t_ns, self.wake, self.kind, self.lane, self.data, self.late
        )

    @classmethod
    def from_line(cls, line: str) -> Event:
        """The inverse of :meth:`to_line`.  ValueError (also for bad JSON) says what is wrong."""
        raw = json.loads(line)
        try:
            return cls(
                seq=raw["seq"],
                t_ns=raw["t_ns"],
                wake=raw["wake"],
                kind=Kind(raw["kind"]),
                lane=raw["lane"],
                data=raw["data"],
                late=raw.get("late", False),
            )
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not a timeline event: {line[:120]!r}") from fault


@dataclass(frozen=True)
class Timeline:
    """The events of one recording in sequence order (``seq`` counts from 0 without gaps)."""

    events: list[Event]

    @property
    def header(self) -> Mapping[str, Any]:
        """What ``recording-opened`` says; empty when even that is missing."""
        if self.events and self.events[0].kind is Kind.RECORDING_OPENED:
            return self.events[0].data
        return {}

    @property
    def closed(self) -> bool:
        """Whether the closing line is there.  A recording without it is never a pass."""
        if not self.events:
            return False
        last = self.events[-1]
        return last.kind is Kind.RECORDING_CLOSED and bool(last.data.get("complete"))

    def of(self, *kinds: Kind, lane: str | None = None, **data: Any) -> Iterator[Event]:
        """Events of the given kinds, about ``lane`` if given, whose data has the given members."""
        for event in self.events:
            if event.kind not in kinds or (lane is not None and event.lane != lane):
                continue
            if all(event.data.get(key) == value for key, value in data.items()):
                yield event

    def first(self, *kinds: Kind, lane: str | None = None, **data: Any) -> Event | None:
        """The first of :meth:`of`, or None."""
        return next(self.of(*kinds, lane=lane, **data), None)

    def last(self, *kinds: Kind, lane: str | None = None, **data: Any) -> Event | None:
        """The last of :meth:`of`, or None."""
        found = None
        for found in self.of(*kinds, lane=lane, **data):  # noqa: B007
            pass
        return found

    @staticmethod
    def before(first: Event, second: Event) -> Order:
        """Whether ``first`` is known to have come before ``second``.

        UNKNOWN where the wake-ups in which each can have happened overlap, unless both were read
        from the same channel, or said by the same supervisor over its socket (unix(7)).
        """
        source = _source(first)
        if source is not None and source == _source(second):
            return Order.YES if first.seq < second.seq else Order.NO
        if first.wake + first.late < second.wake:
            return Order.YES
        if second.wake + second.late < first.wake:
            return Order.NO
        return Order.UNKNOWN


def _source(event: Event) -> str | None:
    """What orders an event among others by itself."""
    if event.kind in (Kind.SUPERVISOR_SAID, Kind.SUPERVISOR_REPORTED):
        return f"said by {event.lane}"
    channel = event.data.get("channel")
    return None if channel is None else f"channel {channel}"


def read_timelines(lines: Iterable[str]) -> Iterator[Timeline]:
    """Split a stored stream into recordings: one per repeat, each opened by its header.

    A torn last line (the writer was killed in the middle of it) is dropped: it was never a fact.
    ValueError when a line that is not the last cannot be read, or is of another format.
    """
    events: list[Event] = []
    pending: ValueError | None = None
    for line in lines:
        if not line.strip():
            continue
        if pending is not None:
            raise pending
        try:
            event = Event.from_line(line)
        except ValueError as fault:
            pending = fault
            continue
        if event.kind is Kind.RECORDING_OPENED:
            if event.data.get("format") != FORMAT:
                found = event.data.get("format")
                raise ValueError(f"this recording has format {found!r}, expected {FORMAT}")
            if events:
                yield Timeline(events)
            events = []
        events.append(event)
    if events:
        yield Timeline(events)
