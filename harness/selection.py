"""Which scenarios run, in which order, and how many each filter hid.  Pure."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.loader import LoadedScenario


@dataclass(frozen=True, slots=True)
class Filters:
    """What was asked for; None and empty mean everything.

    ``pattern`` is part of an id, or a shell pattern for all of it; ``tags`` must all be there;
    ``shard`` is ``I/N``, from 1.
    """

    ids: frozenset[str] | None = None
    pattern: str | None = None
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    rerun: frozenset[str] | None = None
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen scenarios in running order; ``hidden`` counts by the filter that hid them."""

    scenarios: tuple[LoadedScenario, ...]
    hidden: dict[str, int]


def select(scenarios: Sequence[LoadedScenario], filters: Filters, *, seed: int | None) -> Selection:
    """Apply the filters one after the other; shuffle with ``seed`` when there is one.

    UsageError for a shard that cannot be, and for a tag that no scenario has: a typing error must
    not look like a green run of nothing.
    """
    known = {tag for each in scenarios for tag in each.scenario.tags}
    for tag in (*filters.tags, *filters.without_tags):
        if tag not in known:
            raise UsageError(f"no scenario has the tag {tag}: there are {', '.join(sorted(known))}")
    hidden: dict[str, int] = {}
    left = list(scenarios)
    for name, keep in _steps(filters):
        kept = [each for each in left if keep(each)]
        hidden[name] = len(left) - len(kept)
        left = kept
    if filters.shard is not None:
        index, count = _parse_shard(filters.shard)
        # By sorted id: a shard is the same on every machine, whatever the order of files is there.
        ids = sorted(each.scenario.id for each in left)
        mine = set(ids[index - 1 :: count])
        kept = [each for each in left if each.scenario.id in mine]
        hidden[f"--shard {filters.shard}"] = len(left) - len(kept)
        left = kept
    if seed is not None:
        random.Random(seed).shuffle(left)
    return Selection(tuple(left), hidden)


def _steps(filters: Filters) -> list[tuple[str, Callable[[LoadedScenario], bool]]]:
    steps: list[tuple[str, Callable[[LoadedScenario], bool]]] = []
    if filters.ids is not None:
        ids = filters.ids
        steps.append(("FILE::ID", lambda each: each.scenario.id in ids))
    if filters.pattern is not None:
        pattern = filters.pattern
        steps.append((f"-k {pattern}", lambda each: _fits(each.scenario.id, pattern)))
    steps += [(f"--tag {tag}", _has_tag(tag)) for tag in filters.tags]
    steps += [(f"--exclude-tag {tag}", _lacks_tag(tag)) for tag in filters.without_tags]
    if filters.rerun is not None:
        rerun = filters.rerun
        steps.append(("--rerun-failed", lambda each: each.scenario.id in rerun))
    return steps


def _has_tag(tag: str) -> Callable[[LoadedScenario], bool]:
    return lambda each: tag in each.scenario.tags


def _lacks_tag(tag: str) -> Callable[[LoadedScenario], bool]:
    return lambda each: tag not in each.scenario.tags


def _fits(scenario_id: str, pattern: str) -> bool:
    if any(letter in pattern for letter in "*?["):
        return fnmatch.fnmatchcase(scenario_id, pattern)
    return pattern in scenario_id


def _parse_shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError(
            f"cannot read the shard {text}: expected I/N with 1 <= I <= N, such as 1/3"
        )
    return int(index), int(count)
