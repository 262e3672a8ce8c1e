"""What is in the picture of a timeline, in pixels from the left: the data between ``lanes``, which
makes it, and ``svg``, which draws it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.timeline import Event

#: The cast of a sandbox, in the order of its lanes.
CAST = ("observer", "supervisor", "launcher", "monitor", "child", "reaper", "command")

#: The first three of the cast are the harness's own; they serve all sandboxes of a scenario.
SHARED = 3


@dataclass(frozen=True, slots=True)
class Lane:
    """One row; ``is_channel`` tells a channel from a process.  ``index`` counts from the top."""

    name: str
    index: int
    is_channel: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """One event in its place.  ``cites`` are the numbers of the findings that name it."""

    event: Event
    lane: Lane
    x: float
    label: str
    cites: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Events of one wake-up with less than :data:`lanes.SPLIT_NS` between them."""

    t_ns: int
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Bracket:
    """A wake-up in which ``count`` things were noticed, so that their order is not known."""

    left: float
    right: float
    count: int


@dataclass(frozen=True, slots=True)
class Span:
    """The life of a process, or of a channel, on its lane.

    ``end`` is how it ended: ``exited``, ``stopped`` (a process of the harness itself, at the end),
    ``left-over`` (one of the sandbox, which the clean-up had to kill) or ``open``.
    ``zombie_until`` is where its status was collected.
    """

    lane: Lane
    start: float
    stop: float
    end: str
    zombie_until: float | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a picture.  ``hidden`` counts the events that there was no room for."""

    lanes: tuple[Lane, ...]
    columns: tuple[Column, ...]
    brackets: tuple[Bracket, ...]
    marks: tuple[Mark, ...]
    spans: tuple[Span, ...]
    width: float
    hidden: int

    def mark_of(self, seq: int) -> Mark | None:
        """The mark of an event, None when it was not drawn."""
        return next((mark for mark in self.marks if mark.event.seq == seq), None)
