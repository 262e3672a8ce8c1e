"""Bisecting, on subjects that are nothing but a rate: whether the answer is right, how often."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from harness.bisect import bisect
from harness.model.bisection import ANY_RULE, Bisection, Like, Seen
from harness.model.verdict import Subject
from harness.reporters import bisection
from harness.reporters.terminal import Style


class Bench:
    """Subjects whose recordings fail a rule at a given rate; counts what was asked of each."""

    def __init__(self, rates: Sequence[float], seed: int = 0, undecided: float = 0.0) -> None:
        self.rates = rates
        self.asked = [0] * len(rates)
        self._undecided = undecided
        self._chance = random.Random(seed)

    def measure(self, place: int, times: int) -> list[frozenset[str] | None]:
        self.asked[place] += times
        return [self._one(self.rates[place]) for _ in range(times)]

    def _one(self, rate: float) -> frozenset[str] | None:
        if self._chance.random() < self._undecided:
            return None
        return frozenset({"exit"}) if self._chance.random() < rate else frozenset()

    def bisect(self, error_rate: float = 0.01, most: int = 1000) -> Bisection:
        return bisect(len(self.rates), self.measure, error_rate=error_rate, most=most)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("worse", [True, False])
def test_a_certain_flip_is_found_wherever_it_is_and_few_recordings_do(
    count: int, worse: bool
) -> None:
    for flip in range(1, count):
        rates = [float((place >= flip) == worse) for place in range(count)]
        bench = Bench(rates)
        found = bench.bisect()
        assert (found.rule, found.before, found.after, found.trouble) == (
            "exit",
            flip - 1,
            flip,
            "",
        )
        assert max(bench.asked) <= 20
        assert max(bench.asked[1:-1], default=0) <= 3


def test_not_every_subject_is_looked_at() -> None:
    bench = Bench([0.0] * 20 + [1.0] * 12)
    assert bench.bisect().after == 20
    assert sum(1 for asked in bench.asked if asked) <= 2 + 5


@pytest.mark.parametrize("rates", [(0.0, 0.3), (0.05, 0.5), (0.9, 0.2), (1.0, 0.6)])
def test_a_race_is_placed_wrongly_no_more_often_than_was_asked_for(
    rates: tuple[float, float],
) -> None:
    wrong = 0
    for seed in range(300):
        flip = 1 + seed % 4
        bench = Bench([rates[0]] * flip + [rates[1]] * (5 - flip), seed)
        found = bench.bisect(error_rate=0.05)
        wrong += (found.before, found.after) != (flip - 1, flip)
    # 5 % of 300 is 15; 29 and more would be seen once in a thousand times at that rate.
    assert wrong < 29


def test_a_smaller_error_rate_takes_more_recordings() -> None:
    asked = []
    for error_rate in (0.1, 0.001):
        benches = [Bench([0.1, 0.1, 0.6, 0.6], seed) for seed in range(20)]
        for bench in benches:
            bench.bisect(error_rate=error_rate)
        asked.append(sum(sum(bench.asked) for bench in benches))
    assert asked[0] < asked[1]


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_ends_that_are_alike_are_no_flip(rate: float) -> None:
    wrong = 0
    for seed in range(40):
        bench = Bench([rate] * 4, seed)
        found = bench.bisect(error_rate=0.01, most=80)
        wrong += found.rule != ""
        if not found.rule:
            assert "do not differ in 80 recordings each" in found.trouble
            assert (bench.asked[0], bench.asked[3]) == (80, 80)
            assert bench.asked[1:3] == [0, 0]
    assert wrong <= 3  # 0.5 % of 40; four would be seen twice in a hundred thousand times


def test_recordings_that_prove_nothing_do_not_count() -> None:
    found = Bench([0.0, 0.0, 1.0, 1.0], undecided=0.5).bisect()
    assert (found.before, found.after) == (1, 2)
    for seen in found.seen.values():
        assert seen.tried >= seen.n


@pytest.mark.parametrize(("place", "name"), [(0, "first"), (3, "last")])
def test_an_end_where_nothing_is_ever_decided_is_said_so(place: int, name: str) -> None:
    bench = Bench([0.0, 0.0, 1.0, 1.0])

    def measure(at: int, times: int) -> list[frozenset[str] | None]:
        return [None] * times if at == place else bench.measure(at, times)

    found = bisect(4, measure, error_rate=0.01, most=1000)
    assert (found.rule, found.trouble) == ("", f"nothing could be decided on the {name} subject")


def test_a_subject_like_neither_end_leaves_the_answer_open() -> None:
    bench = Bench([0.0, 1.0])

    def measure(at: int, times: int) -> list[frozenset[str] | None]:
        return [None] * times if at == 1 else bench.measure(min(at, 1), times)

    found = bisect(3, measure, error_rate=0.01, most=1000)
    assert (found.before, found.after, found.like[1]) == (0, 2, Like.UNDECIDED)
    assert "like neither" in found.trouble


def test_the_rule_that_differs_is_named_and_not_one_that_fails_everywhere() -> None:
    failed = {0: {"order"}, 1: {"order"}, 2: {"order", "exit"}, 3: {"order", "exit"}}
    found = bisect(4, lambda at, n: [frozenset(failed[at])] * n, error_rate=0.01, most=1000)
    assert (found.rule, found.before, found.after) == ("exit", 1, 2)


def test_what_fails_by_another_rule_each_time_is_any_rule() -> None:
    chance = random.Random(1)

    def measure(at: int, times: int) -> list[frozenset[str] | None]:
        return [frozenset({f"rule-{chance.randrange(50)}"} if at else ()) for _ in range(times)]

    found = bisect(2, measure, error_rate=0.01, most=1000)
    assert (found.rule, found.before, found.after) == (ANY_RULE, 0, 1)


# --- in words ------------------------------------------------------------------------------------

SUBJECTS = [Subject(f"path:/{n}", f"0.{n}.0", f"/{n}") for n in range(4)]
PLAIN = Style(color=False, unicode=True)


def told(rates: Sequence[float]) -> list[str]:
    found = Bench(rates).bisect(most=20)
    return bisection.text(found, "a.b", SUBJECTS, PLAIN).splitlines()


def test_the_answer_is_one_sentence_below_what_was_seen_of_each() -> None:
    lines = told([0.0, 1.0, 1.0, 1.0])
    assert lines[0] == "a.b: exit"
    assert [line.split("(bwrap")[0].strip(" -") for line in lines[2:-2]] == [
        *("path:/0", "flips here", "path:/1", "path:/2", "path:/3"),
    ]
    assert "not looked at" not in lines[2]
    assert (
        lines[-1] == "exit begins to fail between path:/0 (bwrap 0.0.0) and path:/1 (bwrap 0.1.0)"
    )
    assert told([1.0, 1.0, 0.0, 0.0])[-1].startswith("exit stops failing between path:/1 ")


def test_no_answer_is_said_with_its_reason() -> None:
    assert told([1.0] * 4)[-1] == (
        "nothing to bisect: the first and the last subject do not differ in 20 recordings each"
    )
    open_answer = Bisection("exit", 0, 3, {0: Seen()}, {}, {0: Like.FIRST, 3: Like.LAST}, "why")
    last = bisection.text(
        Bisection("exit", 0, 3, {}, {}, open_answer.like, "why"), "a.b", SUBJECTS, PLAIN
    ).splitlines()[-1]
    assert last == ("between path:/0 (bwrap 0.0.0) and path:/3 (bwrap 0.3.0), no closer: why")


def test_json_says_the_same() -> None:
    found = Bench([0.0, 0.0, 1.0, 1.0]).bisect()
    value = json.loads(bisection.to_json(found, "a.b", SUBJECTS))
    answer = [value[key] for key in ("id", "rule", "before", "after", "trouble")]
    assert answer == ["a.b", "exit", 1, 2, ""]
    assert [each["like"] for each in value["subjects"]] == ["first", "first", "last", "last"]
    assert value["subjects"][3]["failures"] == {"exit": 10, ANY_RULE: 10}
    assert value["subjects"][3]["recordings"] == value["subjects"][3]["counted"] == 10
