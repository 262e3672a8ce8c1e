"""The lives of processes and channels in a picture: from where to where, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.model.timeline import Kind, Timeline
from harness.reporters.picture import CAST, SHARED, Mark, Span


def spans_of(marks: Sequence[Mark], timeline: Timeline, *, width: float) -> list[Span]:
    """One span for each lane with a life; what never ended reaches to ``width``."""
    spans: list[Span] = []
    cleanup = timeline.last(Kind.CLEANUP_DONE)
    killed = cleanup.data.get("killed") if cleanup else None
    end_x = next((m.x for m in reversed(marks) if m.event.kind is Kind.CLEANUP_DONE), width)
    by_lane: dict[str, list[Mark]] = {}
    for mark in marks:
        by_lane.setdefault(mark.lane.name, []).append(mark)
    for lane_marks in by_lane.values():
        lane = lane_marks[0].lane
        if lane.is_channel:
            ends = (Kind.EOF_READ, Kind.CHANNEL_CLOSED)
            last = next((m.x for m in lane_marks if m.event.kind in ends), None)
            spans.append(Span(lane, 0.0, last or width, "exited" if last else "open"))
            continue
        begin = _first(lane_marks, Kind.PROCESS_STARTED, Kind.PROCESS_IDENTIFIED, Kind.HELPER_READY)
        if begin is None:
            continue
        gone = _first(lane_marks, Kind.PROCESS_EXITED, Kind.STATUS_COLLECTED, Kind.HELPER_STOPPED)
        reaped = _first(lane_marks, Kind.STATUS_COLLECTED)
        if gone is not None:
            zombie = reaped.x if reaped is not None and reaped.x > gone.x else None
            spans.append(Span(lane, begin.x, gone.x, "exited", zombie))
        elif isinstance(killed, list) and begin.event.data.get("pid") in killed:
            alive = _is_sandboxed(begin) and _was_alive(begin.event.data.get("pid"), timeline)
            spans.append(Span(lane, begin.x, end_x, "left-over" if alive else "stopped"))
        else:
            spans.append(Span(lane, begin.x, width, "open"))
    return spans


def _is_sandboxed(begin: Mark) -> bool:
    """Whether a process belongs to a sandbox, so that it should have ended by itself.

    The supervisor, helpers and providers are the harness's own: it stops them at the end.
    """
    member = begin.lane.name.rsplit(".", 1)[-1]
    if member in CAST:
        return CAST.index(member) >= SHARED
    return begin.event.kind is Kind.PROCESS_IDENTIFIED


def _was_alive(pid: object, timeline: Timeline) -> bool:
    """Whether the last census has a process that is no zombie; without a census, yes.

    The clean-up kills whatever it can still see, so also one that was just about to be collected.
    """
    census = timeline.last(Kind.CENSUS_TAKEN)
    found = census.data.get("processes") if census else None
    if not isinstance(found, list):
        return True
    entries = [entry for entry in found if isinstance(entry, Mapping)]
    return any(e.get("pid") == pid and e.get("state") not in ("Z", "X") for e in entries)


def _first(marks: Iterable[Mark], *kinds: Kind) -> Mark | None:
    return next((mark for mark in marks if mark.event.kind in kinds), None)
