"""Between which two of an ordered list of subjects a verdict flips.  Pure.

What is bisected is how often a rule fails: always and never for what is certain, two rates for a
race.  The two ends are recorded until they certainly differ; each subject in between until it is
certainly like one of them (Wald's sequential probability ratio test, 1945), so that a clear case
takes a handful of recordings and a race as many as it needs.  As every bisection, this one takes
for granted that there is one flip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from harness.judges.rates import fisher_exact, wilson
from harness.model.bisection import ANY_RULE, Bisection, Like, Seen
from harness.model.verdict import Interval

#: How many recordings of each end come first; they double until the ends differ.
FIRST_LOOK = 5
#: After so many recordings without one that counts, none will.
NONE_COUNTS = 10

#: Records a subject (by its place in the list) so many times more; says which rules failed in each
#: recording, or None for one that may not count.
Measure = Callable[[int, int], Sequence[frozenset[str] | None]]


def bisect(subjects: int, measure: Measure, *, error_rate: float, most: int) -> Bisection:
    """Find the flip among so many subjects.

    ``error_rate`` is the chance that the answer is wrong; half of it is for telling the ends apart,
    half for the subjects in between.  ``most`` recordings of one subject are enough.
    """
    last = subjects - 1
    seen: dict[int, Seen] = {}

    def look(place: int, times: int) -> Seen:
        known = seen.setdefault(place, Seen())
        known.add(measure(place, times))
        return known

    rule, trouble = _tell_ends_apart(look, last, error_rate / 2, most)
    if not rule:
        return Bisection("", 0, last, seen, _shares(seen, ANY_RULE), {}, trouble)
    rates = (_rate(seen[0], rule), _rate(seen[last], rule))
    like = {0: Like.FIRST, last: Like.LAST}
    low, high = 0, last
    questions = max(1, math.ceil(math.log2(max(last, 1))))
    while high - low > 1:
        place = (low + high) // 2
        like[place] = _assign(look, place, rule, rates, error_rate / 2 / questions, most)
        if like[place] is Like.UNDECIDED:
            trouble = (
                f"the subject in the middle is like neither, after {seen[place].tried} recordings"
            )
            break
        low, high = (place, high) if like[place] is Like.FIRST else (low, place)
    return Bisection(rule, low, high, seen, _shares(seen, rule), like, trouble)


def _shares(seen: Mapping[int, Seen], rule: str) -> dict[int, Interval]:
    return {place: wilson(known.failures[rule], known.n) for place, known in seen.items()}


def _tell_ends_apart(
    look: Callable[[int, int], Seen], last: int, error_rate: float, most: int
) -> tuple[str, str]:
    """The rule that most certainly differs, or an empty one and the reason."""
    looks = max(1, math.ceil(math.log2(max(2, most / FIRST_LOOK))) + 1)
    more = min(FIRST_LOOK, most)
    while True:
        first, final = look(0, more), look(last, more)
        for end, name in ((first, "first"), (final, "last")):
            if end.n == 0 and end.tried >= min(most, NONE_COUNTS):
                return "", f"nothing could be decided on the {name} subject"
        rules = sorted(set(first.failures) | set(final.failures))
        if first.n and final.n and rules:
            # One rule says more than any: it comes first where both are as certain.
            p_value, _, rule = min(
                (
                    fisher_exact(first.failures[each], first.n, final.failures[each], final.n),
                    each == ANY_RULE,
                    each,
                )
                for each in rules
            )
            if p_value * len(rules) * looks < error_rate:
                return rule, ""
        more = min(first.tried, most - first.tried)
        if more <= 0:
            return "", (
                f"the first and the last subject do not differ in {first.tried} recordings each"
            )


def _rate(seen: Seen, rule: str) -> float:
    """A rate that is neither 0 nor 1, which no number of recordings can prove (Jeffreys' prior)."""
    return (seen.failures[rule] + 0.5) / (seen.n + 1)


def _assign(
    look: Callable[[int, int], Seen],
    place: int,
    rule: str,
    rates: tuple[float, float],
    error_rate: float,
    most: int,
) -> Like:
    """Which end a subject is like: one recording after another, until the odds are clear."""
    first, last = rates
    limit = math.log((1 - error_rate) / error_rate)
    on_failure = math.log(last / first)
    on_success = math.log((1 - last) / (1 - first))
    while True:
        seen = look(place, 1)
        failed = seen.failures[rule]
        odds = failed * on_failure + (seen.n - failed) * on_success
        if odds >= limit:
            return Like.LAST
        if odds <= -limit:
            return Like.FIRST
        if seen.tried >= most or (seen.n == 0 and seen.tried >= NONE_COUNTS):
            return Like.UNDECIDED
