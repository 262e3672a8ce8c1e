"""The arithmetic of races."""

from __future__ import annotations

import math

from harness.model.verdict import Interval

#: The 97.5 % quantile of the normal distribution: two-sided 95 %.
Z_95 = 1.959963984540054


def wilson(hits: int, n: int, z: float = Z_95) -> Interval:
    """The Wilson score interval of a share (Wilson 1927); [0, 1] when nothing was tried.

    Unlike the textbook interval it is not empty at 0 of n: 0 of 200 still allows 1.9 %.
    """
    if n == 0:
        return Interval(0, 0, 0.0, 1.0)
    share = hits / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the two ends the bound is exact; floating point would put it a hair beside it.
    low = 0.0 if hits == 0 else (middle - spread) / scale
    high = 1.0 if hits == n else (middle + spread) / scale
    return Interval(hits, n, low, high)


def fisher_exact(hits_a: int, n_a: int, hits_b: int, n_b: int) -> float:
    """The two-sided p-value of Fisher's exact test for two shares (Fisher 1922).

    The chance, if both sides had the same rate, of a split at least as uneven as this one: the
    sum over all tables with the same margins that are no likelier than the one at hand.
    """
    hits, n = hits_a + hits_b, n_a + n_b

    def log_choose(whole: int, part: int) -> float:
        return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)

    def log_chance(a: int) -> float:
        return log_choose(n_a, a) + log_choose(n_b, hits - a) - log_choose(n, hits)

    # Equal chances may differ in the last digits, and must count.
    limit = log_chance(hits_a) + 1e-9
    possible = range(max(0, hits - n_b), min(n_a, hits) + 1)
    return min(1.0, sum(math.exp(log_chance(a)) for a in possible if log_chance(a) <= limit))
