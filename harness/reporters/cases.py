"""What the page shows of each case: numbered findings, linked events, a picture, a cut table.

Decides how much of a recording fits on a page; ``html`` decides where a case goes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.model.timeline import Event, Timeline
from harness.model.verdict import Finding, Held, Interval, Result, RunRecord
from harness.reporters.events import describe, shares_wake_up
from harness.reporters.lanes import EVENTS_DRAWN, most_telling
from harness.reporters.svg import Drawing, draw
from harness.reporters.words import (
    NEEDS_ATTENTION,
    clause_sentence,
    events_named,
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

#: Rows of all event tables together.  A row takes 110 to 140 bytes with its share of the head of
#: its table (measured on 1698 recordings), so this is 1.5 MB: all rows of 300 cases, which have 32
#: to 40 events each, and of larger pages those that tell most.
ROWS_PER_PAGE = 12_000

#: Every case keeps this many even on the largest page.
_ROWS_AT_LEAST = 8

#: Events of all pictures together.  One takes 190 to 220 bytes with its share of the lanes and of
#: the axis (measured), so this is 13 MB: the whole pictures of 1800 cases.
MARKS_PER_PAGE = 60_000

#: Every picture keeps this many even on the largest page: most recordings have less.
_MARKS_AT_LEAST = 40


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding with its number in the case.

    ``links`` are (event number, fragment or None), ``more`` the events that are not named;
    ``told`` when a finding above it has the same clause, so that its sentence was read there.
    """

    number: int
    finding: Finding
    sentence: str
    told: bool
    links: tuple[tuple[int, str | None], ...]
    more: int
    proof: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as a row; ``joined`` when its order against the row above is not known.

    ``fragment`` is its id when a finding links to it and the picture does not have it, else empty.
    """

    event: Event
    text: Markup
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
    found = [timelines.get((result.id, result.subject)) for result in run.results]
    sizes = [len(timeline.events) if timeline else 0 for timeline in found]
    limits = row_limits(run.results, sizes)
    drawn = fitting_limit(sizes, MARKS_PER_PAGE, most=EVENTS_DRAWN, least=_MARKS_AT_LEAST)
    views = []
    for number, (result, anchor) in enumerate(
        zip(run.results, unique_anchors(run.results), strict=True)
    ):
        subject = subject_of(run, result.subject)
        linked = {seq for finding in result.findings for seq in events_named(finding)}
        # Short, because a large page has ten thousand of them, each in two places.
        fragments = {seq: f"e{number}-{seq}" for seq in linked}
        shown = _shown(found[number], linked, limits[number])
        drawing = _drawing(result, found[number], fragments, shown, drawn)
        views.append(
            CaseView(
                result=result,
                anchor=anchor,
                version=subject.version if subject else "",
                subject_index=subjects.index(result.subject),
                tag_indexes=" ".join(str(tags.index(tag)) for tag in result.tags),
                findings=_findings(result, run, shown, fragments),
                sentences=_untold(result, run),
                refs=tuple((ref, web_address(ref)) for ref in result.refs),
                bars=tuple(
                    (r.rule, str(r.failures), r.allowed, interval_bar(r.failures))
                    for r in result.rates
                ),
                drawing=drawing,
                picture=Markup(drawing.markup if drawing else ""),
                rows=_rows(shown, fragments, drawing),
                rows_hidden=sizes[number] - len(shown),
                message=why(result),
            )
        )
    return views


def row_limits(results: Sequence[Result], sizes: Sequence[int]) -> list[int]:
    """How many rows the table of each result may have; together :data:`ROWS_PER_PAGE`.

    What needs attention is served first, and what is left is for the others.
    """
    urgent = [result.status in NEEDS_ATTENTION for result in results]
    limits, room = {}, ROWS_PER_PAGE
    for kind in (True, False):
        mine = [size for size, is_urgent in zip(sizes, urgent, strict=True) if is_urgent is kind]
        limits[kind] = fitting_limit(mine, room, most=ROWS_PER_CASE, least=_ROWS_AT_LEAST)
        room -= sum(min(size, limits[kind]) for size in mine)
    return [limits[is_urgent] for is_urgent in urgent]


def fitting_limit(sizes: Sequence[int], budget: int, *, most: int, least: int) -> int:
    """How much each may have, between ``least`` and ``most``, so that all keep to ``budget``.

    The longest are cut first: one long recording does not shorten two hundred short ones.
    """
    for limit in range(most, least, -1):
        if sum(min(size, limit) for size in sizes) <= budget:
            return limit
    return least


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


def _shown(timeline: Timeline | None, linked: Collection[int], limit: int) -> list[Event]:
    """The events that have a row.  What is linked to is never cut away, wherever it is."""
    if timeline is None:
        return []
    return most_telling(timeline.events, linked, max(limit, len(linked)))


def _drawing(
    result: Result,
    timeline: Timeline | None,
    fragments: Mapping[int, str],
    shown: Iterable[Event],
    limit: int,
) -> Drawing | None:
    if timeline is None or not timeline.events:
        return None
    cited: dict[int, tuple[int, ...]] = {}
    for number, finding in enumerate(result.findings, start=1):
        for seq in dict.fromkeys(events_named(finding)):
            cited[seq] = (*cited.get(seq, ()), number)
    broken = frozenset(
        n for n, finding in enumerate(result.findings, start=1) if finding.held is not Held.YES
    )
    return draw(
        timeline,
        cited=cited,
        broken=broken,
        fragments=fragments,
        tabled={event.seq for event in shown},
        limit=limit,
    )


def _rows(
    shown: Iterable[Event], fragments: Mapping[int, str], drawing: Drawing | None
) -> tuple[EventRow, ...]:
    drawn = drawing.drawn if drawing else frozenset()
    rows: list[EventRow] = []
    previous: Event | None = None
    for event in shown:
        neighbour = previous is not None and previous.seq + 1 == event.seq
        rows.append(
            EventRow(
                event=event,
                # Not the template's escape: a quote in text needs none, and JSON is full of them.
                text=Markup(html.escape(one_line(describe(event), limit=400), quote=False)),
                time=milliseconds(event.t_ns),
                # Not when the picture has it: it would be two elements of one name.
                fragment="" if event.seq in drawn else fragments.get(event.seq, ""),
                joined=neighbour and previous is not None and shares_wake_up(previous, event),
                cited=event.seq in fragments,
            )
        )
        previous = event
    return tuple(rows)


def _findings(
    result: Result, run: RunRecord, shown: Iterable[Event], fragments: Mapping[int, str]
) -> tuple[FindingRow, ...]:
    # What is linked to is always among the rows, and either drawn or a row with an id.
    there = {event.seq for event in shown}
    told: set[str | None] = set()
    rows = []
    for number, finding in enumerate(result.findings, start=1):
        named = events_named(finding)
        rows.append(
            FindingRow(
                number=number,
                finding=finding,
                sentence=clause_sentence(run.contract, finding.clause),
                told=finding.clause in told,
                links=tuple((seq, fragments[seq] if seq in there else None) for seq in named),
                more=len(finding.events) - len(named),
                proof=events_sentence(finding),
            )
        )
        told.add(finding.clause)
    return tuple(rows)


def _untold(result: Result, run: RunRecord) -> tuple[tuple[str, str], ...]:
    """The clauses of a case, with their sentences, that none of its findings names."""
    told = {finding.clause for finding in result.findings}
    return tuple((c, clause_sentence(run.contract, c)) for c in result.clauses if c not in told)


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
