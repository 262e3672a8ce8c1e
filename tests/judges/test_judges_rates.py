"""The Wilson interval against values that others published."""

from __future__ import annotations

import pytest

from harness.judges.rates import wilson
from harness.model.verdict import Interval

#: Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3 (score, no continuity
#: correction): 81/263, 15/148, 0/20, 1/29.
NEWCOMBE = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


@pytest.mark.parametrize(("hits", "n", "low", "high"), NEWCOMBE)
def test_the_interval_is_the_published_one(hits: int, n: int, low: float, high: float) -> None:
    found = wilson(hits, n)
    assert (found.hits, found.n, round(found.low, 4), round(found.high, 4)) == (hits, n, low, high)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 200), (3, 7), (20, 20), (117, 200)])
def test_the_interval_of_the_opposite_is_the_mirror_image(hits: int, n: int) -> None:
    one, other = wilson(hits, n), wilson(n - hits, n)
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low))
    assert 0.0 <= one.low <= one.rate <= one.high <= 1.0


def test_the_ends_are_exact() -> None:
    assert wilson(0, 50).low == 0.0
    assert wilson(50, 50).high == 1.0


def test_nothing_tried_tells_nothing() -> None:
    assert wilson(0, 0) == Interval(0, 0, 0.0, 1.0)


def test_more_tries_make_it_narrower() -> None:
    widths = [wilson(n // 10, n) for n in (10, 100, 1000)]
    assert [each.high - each.low for each in widths] == sorted(
        (each.high - each.low for each in widths), reverse=True
    )


def test_it_reads_as_people_write_it() -> None:
    assert str(wilson(0, 200)) == "0/200 (0.0%, 95 % CI 0.0% to 1.9%)"
