"""Checks of order and time.  Order is three-valued: what one wake-up saw has none."""

from __future__ import annotations

from harness.model.scenario import Expectation, Moment
from harness.repro.source import WIDTH, literal, seconds
from harness.repro.story import Story, refuse


def _moment(story: Story, moment: Moment, where: str) -> tuple[str, str]:
    """A moment in words, and the expression of its event."""
    if moment.line is not None or moment.object is not None:
        kind = "line" if moment.line is not None else "object"
        pipe = story.channel(moment.line or moment.object or "", where)
        wanted = moment.contains if kind == "line" else moment.has
        fits = f", {literal(wanted)}" if wanted is not None else ""
        about = f"{kind} {wanted or ''}".strip()
        return f"{about} on {pipe.lane}", f'first("{kind}", {literal(pipe.lane)}{fits})'
    if moment.eof is not None:
        lane = story.channel(moment.eof, where).lane
        return f"end of file on {lane}", f'first("eof", {literal(lane)})'
    if moment.exit is not None:
        return f"end of {moment.exit}", f'first("exit", {literal(moment.exit)})'
    if moment.marker is not None:
        return f"file {moment.marker}", f'first("marker", {literal(moment.marker)})'
    if moment.lost is not None:
        return f"loss of {moment.lost}", f'first("eof", {literal(moment.lost + " alive")})'
    if moment.trigger:
        return "the stimulus", 'first("did", "trigger")'
    raise refuse(story.scenario, f"{where} names a moment of a supervisor of its own, or provider")


def order_check(story: Story, name: str, rule: Expectation) -> None:
    """Whether all moments happened, each before the next."""
    pairs = [_moment(story, moment, f"rule {name}") for moment in rule.order or []]
    source = story.source
    source.add("check_order(", f"    {literal(name)},", "    [")
    for words, event in pairs:
        line = f"        ({literal(words)}, {event}),"
        if len(line) < WIDTH - 4:
            source.add(line)
        else:
            source.add(
                "        (", f"            {literal(words)},", f"            {event},", "        ),"
            )
    source.add("    ],", ")")


def gap_check(story: Story, name: str, rule: Expectation) -> None:
    """Whether the time between two moments lies within bounds."""
    assert rule.gap is not None
    gap = rule.gap
    start, begins = _moment(story, gap.from_, f"rule {name}")
    end, ends = _moment(story, gap.to, f"rule {name}")
    bounds, more = [], []
    if gap.at_least is not None:
        bounds.append(f"at least {gap.at_least / 1e6:g} ms")
        more.append(f"at_least={seconds(gap.at_least)}")
    if gap.at_most is not None:
        bounds.append(f"at most {gap.at_most / 1e6:g} ms")
        more.append(f"at_most={seconds(gap.at_most)}")
    expected = literal(f"{' and '.join(bounds)} from {start} to {end}")
    story.source.call("check_gap(", [literal(name), expected, begins, ends, *more])
