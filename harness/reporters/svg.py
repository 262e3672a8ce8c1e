"""One timeline as a swim-lane picture: inline SVG in a box that scrolls sideways.

Pure string building; ``lanes`` decides where things go, ``report.css`` how they look (classes that
begin with ``tl-``), so that one drawing serves light, dark and print.  Text from outside is escaped
here and nowhere else.  For readers who do not see it the picture is one image with a sentence; the
table of events beside it says what it shows.

A page has tens of thousands of events, so what all of them share is said once: lines of one look
are one path, offsets are in the style sheet, only what is linked to has an id, and an event whose
words are in the table beside the picture has no more than its number and time in its tooltip.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from harness.model.timeline import Event, Kind, Timeline
from harness.reporters.events import describe
from harness.reporters.glyphs import SHAPES, look
from harness.reporters.lanes import (
    BREAK_NS,
    EVENTS_DRAWN,
    LABEL_OFFSET,
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
_QUIET = ("mute", "step")  # the colour of marks that have no class
_TOGETHER = "noticed in one wake-up: which came first is not known"
_BADGE_HEIGHT = 13  # the width of the badge's line in report.css

#: Fills the column of the page on a desktop; wider pictures scroll.
_WIDTH_FILLED = 940


@dataclass(frozen=True, slots=True)
class Drawing:
    """The markup, the events in it, and how many there was no room for."""

    markup: str
    drawn: frozenset[int]
    hidden: int


def draw(
    timeline: Timeline,
    *,
    cited: Mapping[int, tuple[int, ...]] | None = None,
    broken: frozenset[int] = frozenset(),
    fragments: Mapping[int, str] | None = None,
    tabled: Collection[int] = frozenset(),
    limit: int = EVENTS_DRAWN,
) -> Drawing:
    """Draw a timeline.

    ``cited`` maps the sequence number of an event to the numbers of the findings that cite it,
    ``broken`` are the numbers of those that did not hold.  ``fragments`` are the ids of the events
    that something links to, ``tabled`` the events that have a row in the table of the page.
    """
    layout = arrange(timeline, cited=cited or {}, limit=limit, at_least=_WIDTH_FILLED)
    height = _TOP + LANE_HEIGHT * len(layout.lanes) + _BOTTOM
    width = round(layout.width + _left_over_room(layout))
    parts = [
        *_lane_lines(layout, width),
        *_axis(layout, height),
        *_spans(layout.spans),
        _path("tl-steps", _steps(layout)),
        *_breaks(layout, height),
        *_triggers(layout, height),
        _path("tl-arrow", (_arrow(mark, layout) for mark in layout.marks)),
        '<g class="tl-marks">',
        *(_mark(mark, broken, fragments or {}, tabled) for mark in layout.marks),
        "</g>",
        *(_left_over(span) for span in layout.spans if span.end == "left-over"),
    ]
    about = _attribute(_sentence(timeline, layout, tabled))
    plot = (
        f'<svg class="tl-plot" width="{width}" height="{height}" role="img" aria-label="{about}">'
        f"{''.join(parts)}</svg>"
    )
    box = '<div class="tl" tabindex="0" role="group" aria-label="Timeline">'
    return Drawing(
        f"{box}{_names(layout, height)}{plot}</div>",
        frozenset(mark.event.seq for mark in layout.marks),
        layout.hidden,
    )


def render(timeline: Timeline) -> str:
    """The markup of :func:`draw` for a timeline that no finding cites."""
    return draw(timeline).markup


def _path(look: str, pieces: Iterable[str], title: str = "") -> str:
    """All lines of one look as one path; nothing when there are none."""
    line = "".join(pieces)
    if not line:
        return ""
    end = f"><title>{title}</title></path>" if title else "/>"
    return f'<path class="{look}" d="{line}"{end}'


def _text(text: object) -> str:
    return html.escape(one_line(text), quote=False)


def _attribute(text: object) -> str:
    return html.escape(one_line(text, limit=600), quote=True)


def _n(number: float) -> str:
    """A coordinate in whole pixels: a decimal can be neither seen nor had for nothing."""
    return f"{number:.0f}"


def _y(lane: Lane) -> int:
    return _TOP + LANE_HEIGHT * lane.index + _CENTRE


def _sentence(timeline: Timeline, layout: Layout, tabled: Collection[int]) -> str:
    last = timeline.events[-1].t_ns if timeline.events else 0
    names = ", ".join(lane.name.removeprefix("/") for lane in layout.lanes)
    count = plural(len(timeline.events), "event")
    rows = "all events" if len(tabled) == len(timeline.events) else plural(len(tabled), "event")
    table = f" The table has {rows}." if tabled else ""
    return f"Timeline of {count} in {seconds(last / 1e9)}; lanes: {names}.{table}"


def _names(layout: Layout, height: int) -> str:
    shown = [short(lane.name.removeprefix("/"), width=_NAME_CHARS) for lane in layout.lanes]
    width = round(max((text_width(name) for name in shown), default=0) * 1.1 + 20)
    texts = {True: "", False: ""}
    for lane, name in zip(layout.lanes, shown, strict=True):
        whole = f"<title>{_text(_about(lane))}</title>" if name.endswith("…") else ""
        texts[lane.is_channel] += f'<text y="{_y(lane) + 4}">{_text(name)}{whole}</text>'
    return (
        f'<svg class="tl-names" width="{width}" height="{height}" aria-hidden="true">'
        f'<g transform="translate({width - 8})">{texts[False]}<g class="tl-chan">{texts[True]}</g>'
        "</g></svg>"
    )


def _about(lane: Lane) -> str:
    return f"channel {lane.name[1:]}" if lane.is_channel else lane.name


def _lane_lines(layout: Layout, width: int) -> list[str]:
    first = next((lane.index for lane in layout.lanes if lane.is_channel), 0)
    top = _TOP + LANE_HEIGHT * first + 1
    divider = [f"M0 {top}H{width}"] if first else []
    return [
        _path("tl-div", divider),
        _path("tl-lane", (f"M0 {_y(lane)}H{width}" for lane in layout.lanes)),
    ]


def _axis(layout: Layout, height: int) -> list[str]:
    """Times, as many as fit, and a bracket over every wake-up that hides an order."""
    lines: list[str] = []
    times: list[str] = []
    free = 0.0
    for column in layout.columns:
        x = column.left + 6
        label = f"{column.t_ns / 1e6:.1f}" if column.t_ns < 1e9 else f"{column.t_ns / 1e6:.0f}"
        label += " ms" if not times else ""
        half = text_width(label) / 2
        at = max(x, half + 3)
        if at - half >= free:
            free = at + half + 10
            lines.append(f"M{_n(x)} {_TOP - 8}V{height - _BOTTOM}")
            times.append(f'<text x="{_n(at)}">{label}</text>')
    return [
        _path("tl-grid", lines),
        f'<g class="tl-time" transform="translate(0 27)">{"".join(times)}</g>',
        _path("tl-band", (_band(bracket, height) for bracket in layout.brackets), _TOGETHER),
        _path("tl-brace", (_brace(bracket) for bracket in layout.brackets)),
    ]


def _band(bracket: Bracket, height: int) -> str:
    left, right = _n(bracket.left), _n(bracket.right)
    return f"M{left} {_TOP - 4}H{right}V{height - _BOTTOM}H{left}z"


def _brace(bracket: Bracket) -> str:
    return f"M{_n(bracket.left)} {_TOP}v-5H{_n(bracket.right)}v5"


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


def _spans(spans: Iterable[Span]) -> list[str]:
    """The bars of all processes and channels, and the dotted ends of who was not collected yet."""
    lines: dict[str, str] = {}
    for span in spans:
        y = _y(span.lane)
        look = "tl-life tl-stray" if span.end == "left-over" else "tl-life"
        look = "tl-pipe" if span.lane.is_channel else look
        lines[look] = lines.get(look, "") + f"M{_n(span.start)} {y}H{_n(span.stop)}"
        if span.zombie_until is not None:
            line = f"M{_n(span.stop)} {y}H{_n(span.zombie_until)}"
            lines["tl-zombie"] = lines.get("tl-zombie", "") + line
    return [_path(look, [line]) for look, line in lines.items()]


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
                parts.append(f"M{_n(begin.x)} {y}H{_n(mark.x)}")
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
    if mark.event.kind is not Kind.SIGNAL_SENT:
        return ""
    by = str(mark.event.data.get("by", "observer"))
    sender = next((lane for lane in layout.lanes if lane.name == by and not lane.is_channel), None)
    if sender is None or sender.index == mark.lane.index:
        return ""
    down = sender.index < mark.lane.index
    begin = _y(sender) + (8 if down else -8)
    end = _y(mark.lane) + (-5 if down else 5)
    return f"M{_n(mark.x)} {begin}V{end}"


def _mark(
    mark: Mark, broken: frozenset[int], fragments: Mapping[int, str], tabled: Collection[int]
) -> str:
    event = mark.event
    # The page's script finds an event by the number that its title begins with.
    title = f"#{event.seq} at {milliseconds(event.t_ns)} ms"
    if event.seq not in tabled:
        title += f": {describe(event)}"
    if event.kind is Kind.STEP_STARTED:
        shape, tone = _step_badge(event), "step"
    else:
        name, tone = look(event)
        shape = SHAPES[name]
    fragment = fragments.get(event.seq)
    attributes = f' id="{html.escape(fragment)}"' if fragment else ""
    if tone not in _QUIET or event.kind is Kind.STEP_STARTED:
        attributes += f' class="tl-{tone}"'
    return (
        f'<g{attributes} transform="translate({_n(mark.x)} {_y(mark.lane)})">'
        f"<title>{_text(title)}</title>{shape}{_label(mark)}{_cite(mark, broken)}</g>"
    )


def _label(mark: Mark) -> str:
    if not mark.label:
        return ""
    # The style sheet moves every label by the usual offset.
    further = label_offset(mark.cites) - LABEL_OFFSET
    place = f' x="{_n(further)}"' if further else ""
    return f"<text{place}>{_text(mark.label)}</text>"


def _step_badge(event: Event) -> str:
    index = short(event.data.get("index", "?"), width=2)
    return f'<circle r="6.5"/><text>{_text(index)}</text>'


def _cite(mark: Mark, broken: frozenset[int]) -> str:
    if not mark.cites:
        return ""
    # The badge is a line as thick as it is high, whose round ends make it a pill.
    length = badge_width(mark.cites) - _BADGE_HEIGHT
    tone = " tl-broken" if broken.intersection(mark.cites) else ""
    line = f"M{-length / 2:.1f} 0h{length:.1f}"
    return (
        f'<g class="tl-cite{tone}"><path d="{line}"/>'
        f"<text>{','.join(map(str, mark.cites))}</text></g>"
    )
