"""On which versions, users and machines conditions hold together: decided by trying all kinds.

A condition only compares with constants, so what can be told apart is finite: each constant, what
comes right after it, and the very beginning.  Versions have three numbers here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from harness.model.condition import Condition, leading_version
from harness.model.scenario import Scenario

Facts = Mapping[str, str | int | bool]
#: More combinations than this are not tried: five conditions of three terms each stay below.
MOST_COMBINATIONS = 5000


def kinds_of_runs(scenario: Scenario, conditions: Iterable[Condition]) -> Iterator[Facts]:
    """Facts for every kind of run that ``conditions`` tell apart and ``needs`` allow.

    Nothing at all when there are too many of them to try.
    """
    needed = [] if scenario.needs.bwrap is None else [scenario.needs.bwrap]
    terms = [term for each in (*conditions, *needed) for term in each.terms]
    values: dict[str, list[str | int | bool]] = {}
    for name in dict.fromkeys(["uid", *(term.name for term in terms)]):
        constants = [term.value for term in terms if term.name == name]
        if name == "uid":
            numbers = {0, *(int(c) for c in constants)}
            values[name] = sorted({n + more for n in numbers for more in range(len(constants) + 2)})
        elif name in ("bwrap", "kernel"):
            values[name] = list(_versions(constants))
        else:
            values[name] = [True, False]
    total = 1
    for each in values.values():
        total *= len(each)
    if total > MOST_COMBINATIONS:
        return
    for combination in itertools.product(*values.values()):
        facts = dict(zip(values, combination, strict=True))
        if _allowed(scenario, needed, facts):
            yield facts


def _versions(constants: list[str]) -> list[str]:
    found: set[tuple[int, ...]] = set()
    for text in ("0.0.0", *constants):
        version = leading_version(text)
        numbers = list(version.release if version is not None else (0,))
        numbers += [0] * (3 - len(numbers))
        for _ in range(len(constants) + 1):  # != takes out one of them each
            found.add(tuple(numbers))
            numbers[-1] += 1
    return [".".join(map(str, numbers)) for numbers in sorted(found)]


def _allowed(scenario: Scenario, needed: list[Condition], facts: Facts) -> bool:
    if not all(condition.holds(facts) for condition in needed):
        return False
    if scenario.user == "root" or scenario.needs.user == "root":
        return facts["uid"] == 0
    return not (scenario.needs.user == "non-root" and facts["uid"] == 0)


def in_plain_words(facts: Facts, conditions: Iterable[Condition]) -> str:
    """The facts that ``conditions`` ask about: ``bwrap 0.8.1, uid 0``."""
    asked = dict.fromkeys(term.name for condition in conditions for term in condition.terms)
    return ", ".join(f"{name} {str(facts[name]).lower()}" for name in asked)
