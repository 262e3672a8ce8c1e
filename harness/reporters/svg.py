"""One timeline as a swim-lane picture: inline SVG in a box that scrolls sideways.

Pure string building; ``lanes`` decides where things go, ``report.css`` how they look (classes that
begin with ``tl-``), so that one drawing serves light, dark and print.  Text from outside is escaped
here and nowhere else.  For readers who do not see it the picture is one image with a sentence; the
table of events beside it says everything that it shows.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

from harness.model.timeline import Event, Kind, Timeline
from harness.reporters.events import describe
from harness.reporters.glyphs import SHAPES, look
from harness.reporters.lanes import (
    BREAK_NS,
    EVENTS_DRAWN,
    LANE_HEIGHT,
    arrange,
    badge_width,
    label_offset,
    text_width,
)
from harness.reporters.picture import Bracket, Lane, Layout, Mark, Span
from harness.reporters.words import milliseconds, one_line, plural, seconds, short

_TOP = 42  # the flag of the trigger, the times, the brackets
_BOTTOM = 20  # the lengths of the breaks
_CENTRE = 22  # from the top of a lane to its bar: there is room for a badge above
_NAME_CHARS = 18

#: Fills the column of the page on a desktop; wider pictures scroll.
_WIDTH_FILLED = 940


@dataclass(frozen=True, slots=True)
class Drawing:
    """The markup, and the events in it: each has the id ``<anchor>-e<seq>``."""

    markup: str
    drawn: frozenset[int]
    hidden: int


def draw(
    timeline: Timeline,
    *,
    anchor: str,
    cited: Mapping[int, tuple[int, ...]] | None = None,
    broken: frozenset[int] = frozenset(),
    limit: int = EVENTS_DRAWN,
) -> Drawing:
    """Draw a timeline.

    ``cited`` maps the sequence number of an event to the numbers of the findings that cite it,
    ``broken`` are the numbers of those that did not hold.
    """
    layout = arrange(timeline, cited=cited or {}, limit=limit, at_least=_WIDTH_FILLED)
    height = _TOP + LANE_HEIGHT * len(layout.lanes) + _BOTTOM
    width = round(layout.width + _left_over_room(layout))
    parts = [
        *(_lane_line(lane, layout, width) for lane in layout.lanes),
        *_axis(layout, height),
        *(_span(span) for span in layout.spans),
        *_steps(layout),
        *_breaks(layout, height),
        *_triggers(layout, height),
        *(_arrow(mark, layout) for mark in layout.marks if mark.event.kind is Kind.SIGNAL_SENT),
        *(_mark(mark, anchor, broken) for mark in layout.marks),
        *(_left_over(span) for span in layout.spans if span.end == "left-over"),
    ]
    plot = (
        f'<svg class="tl-plot" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="{_attribute(_sentence(timeline, layout))}">{"".join(parts)}</svg>'
    )
    box = '<div class="tl" tabindex="0" role="group" aria-label="Timeline">'
    return Drawing(
        f"{box}{_names(layout, height)}{plot}</div>",
        frozenset(mark.event.seq for mark in layout.marks),
        layout.hidden,
    )


def render(timeline: Timeline, *, anchor: str = "case") -> str:
    """The markup of :func:`draw` for a timeline that no finding cites."""
    return draw(timeline, anchor=anchor).markup


def _text(text: object) -> str:
    return html.escape(one_line(text), quote=False)


def _attribute(text: object) -> str:
    return html.escape(one_line(text, limit=600), quote=True)


def _n(number: float) -> str:
    """A coordinate with at most one decimal: hundreds of events make the page heavy otherwise."""
    return f"{number:.1f}".removesuffix(".0")


def _y(lane: Lane) -> int:
    return _TOP + LANE_HEIGHT * lane.index + _CENTRE


def _sentence(timeline: Timeline, layout: Layout) -> str:
    last = timeline.events[-1].t_ns if timeline.events else 0
    names = ", ".join(lane.name.removeprefix("/") for lane in layout.lanes)
    count = plural(len(timeline.events), "event")
    return (
        f"Timeline of {count} in {seconds(last / 1e9)}; lanes: {names}. The table has all events."
    )


def _names(layout: Layout, height: int) -> str:
    shown = [short(lane.name.removeprefix("/"), width=_NAME_CHARS) for lane in layout.lanes]
    width = round(max((text_width(name) for name in shown), default=0) * 1.1 + 20)
    texts = [
        f'<text class="{"tl-chan" if lane.is_channel else "tl-name"}" x="{width - 8}"'
        f' y="{_y(lane) + 4}">{_text(name)}<title>{_text(_about(lane))}</title></text>'
        for lane, name in zip(layout.lanes, shown, strict=True)
    ]
    return (
        f'<svg class="tl-names" width="{width}" height="{height}" aria-hidden="true">'
        f"{''.join(texts)}</svg>"
    )


def _about(lane: Lane) -> str:
    return f"channel {lane.name[1:]}" if lane.is_channel else lane.name


def _lane_line(lane: Lane, layout: Layout, width: int) -> str:
    previous = layout.lanes[lane.index - 1] if lane.index else lane
    divider = ""
    if lane.is_channel and not previous.is_channel:
        top = _TOP + LANE_HEIGHT * lane.index + 1
        divider = f'<path class="tl-div" d="M0 {top}H{width}"/>'
    return f'{divider}<path class="tl-lane" d="M0 {_y(lane)}H{width}"/>'


def _axis(layout: Layout, height: int) -> list[str]:
    """Times, as many as fit, and a bracket over every wake-up that hides an order."""
    parts: list[str] = []
    free = 0.0
    for column in layout.columns:
        x = column.left + 6
        label = f"{column.t_ns / 1e6:.1f}" if column.t_ns < 1e9 else f"{column.t_ns / 1e6:.0f}"
        label += " ms" if not parts else ""
        half = text_width(label) / 2
        at = max(x, half + 1)
        if at - half >= free:
            free = at + half + 10
            parts.append(f'<path class="tl-grid" d="M{_n(x)} {_TOP - 8}V{height - _BOTTOM}"/>')
            parts.append(f'<text class="tl-time" x="{_n(at)}" y="27">{label}</text>')
    parts += [_bracket(bracket, height) for bracket in layout.brackets]
    return parts


def _bracket(bracket: Bracket, height: int) -> str:
    left, right = bracket.left, bracket.right
    low = height - _BOTTOM
    title = f"{bracket.count} events of one wake-up: their order is not known"
    return (
        f'<g class="tl-wake"><title>{title}</title>'
        f'<path class="tl-band" d="M{_n(left)} {_TOP - 4}H{_n(right)}V{low}H{_n(left)}z"/>'
        f'<path class="tl-brace" d="M{_n(left)} {_TOP}v-5H{_n(right)}v5"/></g>'
    )


def _breaks(layout: Layout, height: int) -> list[str]:
    parts = []
    for before, after in zip(layout.columns, layout.columns[1:], strict=False):
        gap_ns = after.t_ns - before.t_ns
        if gap_ns < BREAK_NS:
            continue
        middle, top, low = (before.right + after.left) / 2, _TOP - 4, height - _BOTTOM
        left, right = _n(middle - 5), _n(middle + 5)
        parts.append(
            f'<g class="tl-break"><path class="tl-cut" d="M{left} {top}h10V{low}h-10z"/>'
            f'<path class="tl-edge" d="M{left} {top}V{low}M{right} {top}V{low}"/>'
            f'<text class="tl-time" x="{_n(middle)}" y="{low + 13}">{seconds(gap_ns / 1e9)}</text>'
            "</g>"
        )
    return parts


def _span(span: Span) -> str:
    y = _y(span.lane)
    if span.lane.is_channel:
        return f'<path class="tl-pipe" d="M0 {y}H{_n(span.stop)}"/>'
    kind = {"left-over": "tl-life tl-stray", "open": "tl-life tl-open"}.get(span.end, "tl-life")
    bar = f'<path class="{kind}" d="M{_n(span.start)} {y}H{_n(span.stop)}"/>'
    if span.zombie_until is None:
        return bar
    zombie = f'<path class="tl-zombie" d="M{_n(span.stop)} {y}H{_n(span.zombie_until)}"/>'
    return bar + zombie


_LEFT_OVER = "left over, killed"


def _left_over(span: Span) -> str:
    y = _y(span.lane)
    return (
        f'<g class="tl-warn" transform="translate({_n(span.stop)} {y})">{SHAPES["cross"]}'
        f'<text class="tl-label" x="9" y="-6">{_LEFT_OVER}</text>'
        "<title>still there at the end: the clean-up killed it</title></g>"
    )


def _left_over_room(layout: Layout) -> float:
    stops = [span.stop for span in layout.spans if span.end == "left-over"]
    return max(0.0, max(stops, default=0.0) + 18 + text_width(_LEFT_OVER) - layout.width)


def _steps(layout: Layout) -> list[str]:
    """A thin line from the begin of a step to its end."""
    begun: dict[str, Mark] = {}
    parts = []
    for mark in layout.marks:
        index = str(mark.event.data.get("index"))
        match mark.event.kind:
            case Kind.STEP_STARTED:
                begun[index] = mark
            case Kind.STEP_DONE | Kind.STEP_TIMED_OUT | Kind.STEP_FAILED if index in begun:
                begin, y = begun.pop(index), _y(mark.lane)
                parts.append(f'<path class="tl-steps" d="M{_n(begin.x)} {y}H{_n(mark.x)}"/>')
            case _:
                pass
    return parts


def _triggers(layout: Layout, height: int) -> list[str]:
    parts = []
    for mark in layout.marks:
        if mark.event.data.get("trigger") is True:
            x = _n(mark.x)
            # In two pieces: the time of the column stands between them.
            parts.append(
                f'<g class="tl-trigger"><path d="M{x} 3v13M{x} 31V{height - _BOTTOM}"/>'
                f'<text x="{_n(mark.x + 4)}" y="11">trigger</text></g>'
            )
    return parts


def _arrow(mark: Mark, layout: Layout) -> str:
    """From the sender to the receiver; who is not on the picture sends from the observer's lane."""
    by = str(mark.event.data.get("by", "observer"))
    sender = next((lane for lane in layout.lanes if lane.name == by and not lane.is_channel), None)
    if sender is None or sender.index == mark.lane.index:
        return ""
    down = sender.index < mark.lane.index
    begin = _y(sender) + (8 if down else -8)
    end = _y(mark.lane) + (-5 if down else 5)
    return f'<path class="tl-arrow" d="M{_n(mark.x)} {begin}V{end}"/>'


def _mark(mark: Mark, anchor: str, broken: frozenset[int]) -> str:
    event = mark.event
    title = f"#{event.seq} · {milliseconds(event.t_ns)} ms · {event.lane}: {describe(event)}"
    if event.kind is Kind.STEP_STARTED:
        shape, tone = _step_badge(event), "step"
    else:
        name, tone = look(event)
        shape = SHAPES[name]
    label = ""
    if mark.label:
        x = _n(label_offset(mark.cites))
        label = f'<text class="tl-label" x="{x}" y="-6">{_text(mark.label)}</text>'
    return (
        f'<g id="{html.escape(anchor)}-e{event.seq}" class="tl-{tone}"'
        f' transform="translate({_n(mark.x)} {_y(mark.lane)})">'
        f"<title>{_text(title)}</title>{shape}{label}{_cite(mark, broken)}</g>"
    )


def _step_badge(event: Event) -> str:
    index = short(event.data.get("index", "?"), width=2)
    return f'<circle r="6.5"/><text class="tl-index" y="3.2">{_text(index)}</text>'


def _cite(mark: Mark, broken: frozenset[int]) -> str:
    if not mark.cites:
        return ""
    width = badge_width(mark.cites)
    tone = " tl-broken" if broken.intersection(mark.cites) else ""
    numbers = ",".join(map(str, mark.cites))
    return (
        f'<g class="tl-cite{tone}"><rect x="{_n(-width / 2)}" y="-21" width="{_n(width)}"'
        f' height="13" rx="6.5"/><text y="-11.2">{numbers}</text></g>'
    )
