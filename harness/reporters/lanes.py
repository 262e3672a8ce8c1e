"""Where everything of a timeline goes in its picture: lanes, columns, labels.  Geometry only.

The picture has one lane for each member of the cast and one for each channel, and one *column* for
each wake-up of the recorder (two when it did something much later in the same one).  Time runs to
the right but not to scale: bwrap's life is bursts of microseconds between waits of seconds, so the
distance of two columns grows with the logarithm of the time between them, and an idle gap is marked
as a break.  A label never covers another one, because a column moves to the right until its lane is
free.

Read next: ``svg``, which draws what is laid out here.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.model.timeline import Event, Kind, Timeline
from harness.reporters.events import is_observation, label_of, shares_wake_up
from harness.reporters.lives import spans_of
from harness.reporters.picture import CAST, SHARED, Bracket, Column, Lane, Layout, Mark

#: A picture with more events than this is not read; the table has them.
EVENTS_DRAWN = 120

#: A wait as long as this is shown as a break.  Below it, everything seen so far is bwrap at work: a
#: bare launch takes 7 to 8 ms, slirp4netns is ready after about 30 ms.
BREAK_NS = 60_000_000

#: Events of one wake-up that are this far apart get columns of their own.  The recorder writes an
#: event in 0.05 to 0.9 ms (measured on two noisy cores): what it noticed together stays together;
#: what it did much later without having been woken (the census after a wait) does not.
SPLIT_NS = 2_000_000

LANE_HEIGHT = 34
#: From the middle of a glyph without a badge to the begin of its label, as ``report.css`` has it.
LABEL_OFFSET = 8.0

CHAR_WIDTH = 6.05  # of the 10 px monospace of labels; DejaVu Sans Mono is the widest in use
_GLYPH = 12.0
_PAD = 7.0

_STEPS = (Kind.STEP_STARTED, Kind.STEP_DONE, Kind.STEP_TIMED_OUT, Kind.STEP_FAILED)
# The recorder's own acts and the report of them, which it writes one after the other.
_IN_TURN = (*_STEPS, Kind.SIGNAL_SENT, Kind.DATA_WRITTEN)


def arrange(
    timeline: Timeline,
    *,
    cited: Mapping[int, tuple[int, ...]],
    limit: int = EVENTS_DRAWN,
    at_least: float = 0.0,
) -> Layout:
    """Lay out a timeline.

    ``cited`` maps a sequence number to the numbers of findings; ``at_least`` is a width to fill by
    widening the gaps, so that short recordings are not huddled on the left.
    """
    events = most_telling(timeline.events, cited, limit)
    lanes = {lane.name: lane for lane in _lanes(events)}
    layout = _place(events, lanes, cited, stretch=1.0)
    gaps = sum(_gap(a.t_ns, b.t_ns) for a, b in zip(layout[0], layout[0][1:], strict=False))
    if layout[2] < at_least and gaps:
        layout = _place(events, lanes, cited, stretch=1 + (at_least - layout[2]) / gaps)
    columns, marks, width = layout
    spans = spans_of(marks, timeline, width=width)
    hidden = len(timeline.events) - len(events)
    return Layout(
        lanes=tuple(lanes.values()),
        columns=tuple(columns),
        brackets=tuple(_brackets(marks)),
        marks=tuple(marks),
        spans=tuple(spans),
        width=width,
        hidden=hidden,
    )


def text_width(text: str) -> float:
    """Pixels that a label takes; characters that are wide in East Asia (emoji too) count twice."""
    cells = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return cells * CHAR_WIDTH


def most_telling(events: Sequence[Event], cited: Iterable[int], limit: int) -> list[Event]:
    """At most ``limit`` events in their order: when there are more, those that carry the story.

    What is cited comes first, whatever kind it is, then the trigger, then how processes lived.
    """
    if len(events) <= limit:
        return list(events)
    story = (
        *(Kind.PROCESS_STARTED, Kind.PROCESS_IDENTIFIED, Kind.PROCESS_EXITED),
        *(Kind.STATUS_COLLECTED, Kind.SIGNAL_SENT, Kind.EOF_READ, Kind.CLEANUP_DONE),
        *(Kind.PROVIDER_LOST, Kind.PROVIDER_FAILED, Kind.STEP_TIMED_OUT, Kind.STEP_FAILED),
    )
    wanted = set(cited)

    def importance(event: Event) -> int:
        if event.seq in wanted:
            return 0
        if event.data.get("trigger"):
            return 1
        return 2 if event.kind in story else 3

    chosen = sorted(events, key=lambda event: (importance(event), event.seq))[:limit]
    return sorted(chosen, key=lambda event: event.seq)


def lane_name(event: Event) -> tuple[bool, str]:
    """On which lane an event goes: whether that is a channel, and its name."""
    if event.data.get("channel") is not None:
        return True, str(event.data["channel"])
    return False, "observer" if event.kind in _STEPS else event.lane


def _lanes(events: Sequence[Event]) -> list[Lane]:
    found = dict.fromkeys(lane_name(event) for event in events)
    prefixes = list(dict.fromkeys(_sandbox(name) for is_channel, name in found if not is_channel))

    def rank(place: tuple[bool, str]) -> tuple[int, int, int]:
        is_channel, name = place
        member = name.rsplit(".", 1)[-1]
        if is_channel:
            return (3, 0, 0)
        if member not in CAST:
            return (2, 0, 0)
        cast = CAST.index(member)
        if name == member and cast < SHARED:
            return (0, 0, cast)
        return (1, prefixes.index(_sandbox(name)), cast)

    ordered = sorted(found, key=rank)
    return [Lane(_key(place), i, place[0]) for i, place in enumerate(ordered)]


def _sandbox(name: str) -> str:
    return name.rsplit(".", 1)[0] if "." in name else ""


def _key(place: tuple[bool, str]) -> str:
    # A channel and a process may have the same name; "/" cannot be in the name of either.
    return f"/{place[1]}" if place[0] else place[1]


def _gap(earlier_ns: int, later_ns: int) -> float:
    gap_ms = max(0, later_ns - earlier_ns) / 1e6
    width = 12 + 13 * math.log10(1 + gap_ms * 10)
    return max(width, 74.0) if later_ns - earlier_ns >= BREAK_NS else width


@dataclass(slots=True)
class _Cursor:
    """How far each lane is filled, and how far the glyphs of the last column reach."""

    filled: dict[str, float] = field(default_factory=dict)
    glyphs: float = 4.0


def _place(
    events: Sequence[Event],
    lanes: Mapping[str, Lane],
    cited: Mapping[int, tuple[int, ...]],
    *,
    stretch: float,
) -> tuple[list[Column], list[Mark], float]:
    columns: list[Column] = []
    marks: list[Mark] = []
    cursor = _Cursor()
    for group in _groups(events):
        keys = [_key(lane_name(event)) for event in group]
        left = cursor.glyphs
        if columns:
            left += _gap(columns[-1].t_ns, group[0].t_ns) * stretch
        blocking = lanes if any(_crosses(event) for event in group) else keys
        left = max([left, *(cursor.filled.get(key, 0.0) for key in blocking)])
        right = left
        at: dict[str, float] = {}
        doing = left
        for key, event in zip(keys, group, strict=True):
            label = label_of(event)
            cites = cited.get(event.seq, ())
            # The badge that numbers the findings sits above the glyph and moves its label away.
            badge = badge_width(cites) / 2 if cites else 0.0
            x = at.get(key, left) + max(_GLYPH / 2, badge)
            if event.kind in _IN_TURN:
                # What the recorder does, it does in turn; an arrow falls from its step's badge.
                x = max(x, doing)
                if _crosses(event):
                    x = max([x, *(end for other, end in at.items() if lanes[other].index)])
                doing = x + (0.0 if event.kind is Kind.STEP_STARTED else _GLYPH)
            reach = label_offset(cites) + text_width(label) if label else max(_GLYPH / 2, badge)
            at[key] = x + reach + _PAD
            cursor.filled[key] = at[key]
            right = max(right, x + _GLYPH / 2)
            marks.append(Mark(event, lanes[key], x, label, cites))
        columns.append(Column(group[0].t_ns, left, right))
        cursor.glyphs = right
    width = max([cursor.glyphs, *cursor.filled.values()]) + 8
    return columns, marks, width


def _crosses(event: Event) -> bool:
    """Whether an event is drawn as a line across lanes, which no label may stand in."""
    return event.kind is Kind.SIGNAL_SENT or event.data.get("trigger") is True


def badge_width(cites: tuple[int, ...]) -> float:
    """Pixels of the badge with the numbers of the findings that cite an event."""
    return max(14.0, CHAR_WIDTH * len(",".join(map(str, cites))) + 8)


def label_offset(cites: tuple[int, ...]) -> float:
    """From the middle of a glyph to the begin of its label."""
    return max(LABEL_OFFSET, badge_width(cites) / 2 + 3) if cites else LABEL_OFFSET


def _groups(events: Sequence[Event]) -> list[list[Event]]:
    groups: list[list[Event]] = []
    for event in events:
        last = groups[-1][-1] if groups else None
        if last and last.wake == event.wake and event.t_ns - last.t_ns < SPLIT_NS:
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _brackets(marks: Sequence[Mark]) -> list[Bracket]:
    by_wake: dict[int, list[Mark]] = {}
    for mark in marks:
        if is_observation(mark.event):
            by_wake.setdefault(mark.event.wake, []).append(mark)
    return [
        Bracket(min(m.x for m in seen) - 7, max(m.x for m in seen) + 7, len(seen))
        for seen in by_wake.values()
        if any(shares_wake_up(seen[0].event, other.event) for other in seen[1:])
    ]
