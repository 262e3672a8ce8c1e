"""Which scenarios run: every filter, what it hides, and what it refuses."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.loader import LoadedScenario
from harness.model.scenario import Scenario
from harness.selection import Filters, Selection, select

TAGS = {
    "block-fd.byte-opens": ["block-fd", "quick"],
    "block-fd.eof-opens": ["block-fd"],
    "sync-fd.eof-at-end": ["sync-fd", "quick"],
    "lock-file.is-shared": [],
    "lock-file.is-read": ["quick"],
}


def loaded(scenario_id: str) -> LoadedScenario:
    scenario = Scenario.model_validate(
        {
            "id": scenario_id,
            "title": "A scenario of these tests",
            "clauses": ["TEST-1"],
            "tags": TAGS[scenario_id],
            "sandbox": {"command": ["true"]},
            "expect": [{"exit": {"of": "monitor", "code": 0}}],
        }
    )
    return LoadedScenario(scenario, "x.yaml", 1, "0" * 64)


ALL = [loaded(each) for each in TAGS]


def ids(selection: Selection) -> list[str]:
    return [each.scenario.id for each in selection.scenarios]


BYTE, EOF, SYNC, SHARED, READ = TAGS
FILTERS: dict[str, tuple[Filters, list[str], dict[str, int]]] = {
    "no filter": (Filters(), list(TAGS), {}),
    "part of an id": (Filters(pattern="eof"), [EOF, SYNC], {"-k eof": 3}),
    "a shell pattern is for all of the id": (
        Filters(pattern="lock-file.*"),
        [SHARED, READ],
        {"-k lock-file.*": 3},
    ),
    "a shell pattern for a part matches nothing": (Filters(pattern="lock?"), [], {"-k lock?": 5}),
    "a set of letters": (Filters(pattern="[bs]*-opens"), [BYTE, EOF], {"-k [bs]*-opens": 3}),
    "letters are told apart by case": (Filters(pattern="EOF"), [], {"-k EOF": 5}),
    "a tag": (Filters(tags=("quick",)), [BYTE, SYNC, READ], {"--tag quick": 2}),
    "both tags": (
        Filters(tags=("quick", "block-fd")),
        [BYTE],
        {"--tag quick": 2, "--tag block-fd": 2},
    ),
    "without a tag": (
        Filters(without_tags=("quick",)),
        [EOF, SHARED],
        {"--exclude-tag quick": 3},
    ),
    "by id": (Filters(ids=frozenset([SYNC])), [SYNC], {"FILE::ID": 4}),
    "what failed before": (Filters(rerun=frozenset([READ])), [READ], {"--rerun-failed": 4}),
    "nothing failed before": (Filters(rerun=frozenset()), [], {"--rerun-failed": 5}),
    "a filter counts only what was left by those before it": (
        Filters(pattern="eof", without_tags=("block-fd",), rerun=frozenset([BYTE, SYNC])),
        [SYNC],
        {"-k eof": 3, "--exclude-tag block-fd": 1, "--rerun-failed": 0},
    ),
    "the first of two shards": (Filters(shard="1/2"), [BYTE, SYNC, READ], {"--shard 1/2": 2}),
    "a shard of what the others left": (
        Filters(pattern="eof", shard="2/2"),
        [SYNC],
        {"-k eof": 3, "--shard 2/2": 1},
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_keeps_what_was_asked_for_and_counts_what_it_hides(name: str) -> None:
    filters, kept, hidden = FILTERS[name]
    found = select(ALL, filters, seed=None)
    assert (sorted(ids(found)), found.hidden) == (sorted(kept), hidden)


def test_without_a_seed_the_order_is_that_of_the_files() -> None:
    assert ids(select(ALL, Filters(), seed=None)) == list(TAGS)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_shards_have_every_scenario_once_on_every_machine(count: int) -> None:
    shards = [
        ids(select(order, Filters(shard=f"{index}/{count}"), seed=None))
        for index, order in ((i, ALL if i % 2 else ALL[::-1]) for i in range(1, count + 1))
    ]
    assert sorted(each for shard in shards for each in shard) == sorted(TAGS)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_seed_gives_the_same_order_again_and_loses_nothing() -> None:
    orders = [ids(select(ALL, Filters(), seed=seed)) for seed in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1
    assert all(sorted(order) == sorted(TAGS) for order in orders)


@pytest.mark.parametrize(
    "shard", ["", "1", "/", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2", " 1/2", "²/3"]
)
def test_a_shard_that_cannot_be_is_refused(shard: str) -> None:
    with pytest.raises(UsageError, match="expected I/N with 1 <= I <= N, such as 1/3"):
        select(ALL, Filters(shard=shard), seed=None)


@pytest.mark.parametrize("filters", [Filters(tags=("quik",)), Filters(without_tags=("quik",))])
def test_a_tag_that_no_scenario_has_is_refused_with_those_there_are(filters: Filters) -> None:
    with pytest.raises(UsageError, match="has the tag quik: there are block-fd, quick, sync"):
        select(ALL, filters, seed=None)
