"""Rules about order and time.  Order is three-valued; times are the observer's."""

from __future__ import annotations

import itertools

from harness.judges.rules import Case, Judgement, describe_moment, find_moment, judged, undecided
from harness.model.scenario import ExpectGap, Moment
from harness.model.timeline import Order, Timeline


def judge_order(moments: list[Moment], case: Case) -> Judgement:
    """Whether all moments happened, each before the next."""
    expected = ", then ".join(describe_moment(moment) for moment in moments)
    events = [find_moment(case, moment) for moment in moments]
    for moment, event in zip(moments, events, strict=True):
        if event is None:
            return judged(False, expected, f"{describe_moment(moment)} did not happen", events)
    found = [event for event in events if event is not None]
    seen = ", then ".join(
        f"{describe_moment(moment)} at {event.t_ns / 1e6:.2f} ms"
        for moment, event in sorted(zip(moments, found, strict=True), key=lambda pair: pair[1].seq)
    )
    # Of all pairs: two neighbours that are unknown do not excuse what is known beyond them.
    orders = [Timeline.before(a, b) for a, b in itertools.combinations(found, 2)]
    if Order.NO in orders:
        return judged(False, expected, seen, found)
    if Order.UNKNOWN in orders:
        return undecided(expected, f"{seen}; in one wake-up, so their order is not known", found)
    return judged(True, expected, seen, found)


def judge_gap(rule: ExpectGap, case: Case) -> Judgement:
    """Whether the time between two moments lies within bounds.

    ``at_most`` bounds the distance, whichever came first; ``at_least`` demands the order as well.
    """
    names = f"{describe_moment(rule.from_)} to {describe_moment(rule.to)}"
    bounds = []
    if rule.at_least is not None:
        bounds.append(f"at least {rule.at_least / 1e6:g} ms")
    if rule.at_most is not None:
        bounds.append(f"at most {rule.at_most / 1e6:g} ms")
    expected = f"{names}: {' and '.join(bounds)}"
    start, end = find_moment(case, rule.from_), find_moment(case, rule.to)
    for moment, event in ((rule.from_, start), (rule.to, end)):
        if event is None:
            seen = f"{describe_moment(moment)} did not happen"
            return judged(False, expected, seen, [start, end])
    assert start is not None
    assert end is not None
    gap = end.t_ns - start.t_ns
    holds = (rule.at_least is None or gap >= rule.at_least) and (
        rule.at_most is None or abs(gap) <= rule.at_most
    )
    return judged(holds, expected, f"{gap / 1e6:.2f} ms", [start, end])
