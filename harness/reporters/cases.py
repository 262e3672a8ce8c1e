"""What the page shows of each case: numbered findings, linked events, a picture, a cut table.

Decides how much of a recording fits on a page; ``html`` decides where a case goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.model.timeline import Event, Timeline
from harness.model.verdict import Finding, Held, Interval, Result, RunRecord
from harness.reporters.events import describe, shares_wake_up
from harness.reporters.lanes import EVENTS_DRAWN
from harness.reporters.svg import Drawing, draw
from harness.reporters.words import (
    clause_sentence,
    events_sentence,
    milliseconds,
    one_line,
    subject_of,
    subject_order,
    web_address,
    why,
)

#: Rows of one event table; a case that has more says so.
ROWS_PER_CASE = 400

#: Rows of all event tables together.  A row with its glyph takes about 450 bytes (measured), so
#: this keeps a page of 200 cases under 10 MB whatever they recorded.
ROWS_PER_PAGE = 12_000

#: Every case keeps this many even on the largest page.
_ROWS_AT_LEAST = 40


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding with its number in the case; ``links`` are (event number, fragment or None)."""

    number: int
    finding: Finding
    sentence: str
    links: tuple[tuple[int, str | None], ...]
    proof: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as a row; ``joined`` when its order against the row above is not known.

    ``fragment`` is its id when the picture does not have the event, else empty: an id in both
    would be two elements of one name.
    """

    event: Event
    text: str
    time: str
    fragment: str
    joined: bool
    cited: bool


@dataclass(frozen=True, slots=True)
class CaseView:
    """All that the page shows of one result."""

    result: Result
    anchor: str
    version: str
    subject_index: int
    tag_indexes: str
    findings: tuple[FindingRow, ...]
    sentences: tuple[tuple[str, str], ...]
    refs: tuple[tuple[str, str | None], ...]
    bars: tuple[tuple[str, str, str, Markup], ...]
    drawing: Drawing | None
    picture: Markup
    rows: tuple[EventRow, ...]
    rows_hidden: int
    message: str


def case_views(
    run: RunRecord, timelines: Mapping[tuple[str, str], Timeline], tags: Sequence[str]
) -> list[CaseView]:
    """All cases of a run in its order; ``tags`` are all tags, in the order of the page's list."""
    subjects = subject_order(run)
    sizes = [len(t.events) if (t := timelines.get((r.id, r.subject))) else 0 for r in run.results]
    limit = row_limit(sizes)
    anchors = unique_anchors(run.results)
    views = []
    for result, anchor in zip(run.results, anchors, strict=True):
        subject = subject_of(run, result.subject)
        timeline = timelines.get((result.id, result.subject))
        drawing = _drawing(result, timeline, anchor, limit)
        rows = _rows(result, timeline, drawing, anchor, limit)
        views.append(
            CaseView(
                result=result,
                anchor=anchor,
                version=subject.version if subject else "",
                subject_index=subjects.index(result.subject),
                tag_indexes=" ".join(str(tags.index(tag)) for tag in result.tags),
                findings=_findings(result, run, rows, anchor),
                sentences=tuple((c, clause_sentence(run.contract, c)) for c in result.clauses),
                refs=tuple((ref, web_address(ref)) for ref in result.refs),
                bars=tuple(
                    (r.rule, str(r.failures), r.allowed, interval_bar(r.failures))
                    for r in result.rates
                ),
                drawing=drawing,
                picture=Markup(drawing.markup if drawing else ""),
                rows=rows,
                rows_hidden=len(timeline.events) - len(rows) if timeline else 0,
                message=why(result),
            )
        )
    return views


def row_limit(sizes: Sequence[int]) -> int:
    """How many rows each table may have so that all of them keep to :data:`ROWS_PER_PAGE`.

    The longest tables are cut first: one long recording does not shorten two hundred short ones.
    """
    for limit in range(ROWS_PER_CASE, _ROWS_AT_LEAST, -20):
        if sum(min(size, limit) for size in sizes) <= ROWS_PER_PAGE:
            return limit
    return _ROWS_AT_LEAST


def unique_anchors(results: Iterable[Result]) -> list[str]:
    """A fragment for each result, made of its id and subject; stable between runs when unique."""
    taken: set[str] = set()
    anchors = []
    for result in results:
        words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{result.id}--{result.subject}")
        base = "case-" + words.strip("-")[:120]
        anchor, number = base, 2
        while anchor in taken:
            anchor, number = f"{base}--{number}", number + 1
        taken.add(anchor)
        anchors.append(anchor)
    return anchors


def _drawing(result: Result, timeline: Timeline | None, anchor: str, limit: int) -> Drawing | None:
    if timeline is None or not timeline.events:
        return None
    cited: dict[int, tuple[int, ...]] = {}
    for number, finding in enumerate(result.findings, start=1):
        for seq in dict.fromkeys(finding.events):
            cited[seq] = (*cited.get(seq, ()), number)
    broken = frozenset(
        n for n, finding in enumerate(result.findings, start=1) if finding.held is not Held.YES
    )
    return draw(timeline, anchor=anchor, cited=cited, broken=broken, limit=min(limit, EVENTS_DRAWN))


def _rows(
    result: Result,
    timeline: Timeline | None,
    drawing: Drawing | None,
    anchor: str,
    limit: int,
) -> tuple[EventRow, ...]:
    if timeline is None:
        return ()
    cited = {seq for finding in result.findings for seq in finding.events}
    first = timeline.events[:limit]
    # Evidence is never cut away, wherever it is.
    shown = first + [event for event in timeline.events[limit:] if event.seq in cited]
    drawn = drawing.drawn if drawing else frozenset()
    rows: list[EventRow] = []
    previous: Event | None = None
    for event in shown:
        rows.append(
            EventRow(
                event=event,
                text=one_line(describe(event), limit=400),
                time=milliseconds(event.t_ns),
                fragment="" if event.seq in drawn else f"{anchor}-e{event.seq}",
                joined=previous is not None and shares_wake_up(previous, event),
                cited=event.seq in cited,
            )
        )
        previous = event
    return tuple(rows)


def _findings(
    result: Result,
    run: RunRecord,
    rows: Iterable[EventRow],
    anchor: str,
) -> tuple[FindingRow, ...]:
    # Cited events are always among the rows, and each is either in the picture or has a row's id.
    targets = {row.event.seq: f"{anchor}-e{row.event.seq}" for row in rows}
    return tuple(
        FindingRow(
            number=number,
            finding=finding,
            sentence=clause_sentence(run.contract, finding.clause),
            links=tuple((seq, targets.get(seq)) for seq in finding.events),
            proof=events_sentence(finding),
        )
        for number, finding in enumerate(result.findings, start=1)
    )


def interval_bar(interval: Interval) -> Markup:
    """A rate with its confidence interval on a track from 0 to 100 %."""
    # Five pixels of margin: the dot of a rate of 0 or 1 is as wide as any other.
    left, right, dot = (
        5 + 240 * min(1.0, max(0.0, share))
        for share in (interval.low, interval.high, interval.rate)
    )
    ticks = "".join(f"M{x} 4v10" for x in (5, 65, 125, 185, 245))
    return Markup(
        '<svg class="rate" width="250" height="18" viewBox="0 0 250 18" role="img"'
        ' aria-label="{label}"><path class="rate-track" d="M5 9H245{ticks}"/>'
        '<path class="rate-band" d="M{left} 9H{right}"/><circle class="rate-dot" cx="{dot}" cy="9"'
        ' r="4"/></svg>'
    ).format(
        label=str(interval),
        ticks=ticks,
        left=f"{left:.1f}",
        right=f"{max(right, left + 1):.1f}",
        dot=f"{dot:.1f}",
    )
