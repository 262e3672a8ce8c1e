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
