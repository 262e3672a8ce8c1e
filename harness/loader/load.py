"""Scenario files -> scenarios, with every problem of every file at once.

The order of things: find the files (``source``), read their YAML (``nodes``), make models of it
(``translate``), and check what the models cannot see (``names``, ``links``, ``timing``,
``vacuity``, ``contract``).  A scenario with a problem is never loaded; the others are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.loader import contract as contracts
from harness.loader import links, names, timing, vacuity
from harness.loader.nodes import Node, describe, read_documents
from harness.loader.problem import Problem, ScenarioProblems, in_order
from harness.loader.scene import Scene
from harness.loader.source import CONTRACT_NAME, Source, find_contract, find_files, read_source
from harness.loader.translate import Fault, locate, validate
from harness.model.contract import Clause
from harness.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario and where it stands: ``file`` as it was given, ``line`` counted from 1.

    ``sha256`` is of what it says: comments, layout and defaults that are spelt out do not change
    it.
    """

    scenario: Scenario
    file: str
    line: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The scenarios in the order of their files, and the clauses of the contract by id."""

    scenarios: tuple[LoadedScenario, ...]
    clauses: Mapping[str, Clause]


@dataclass(slots=True)
class _Candidate:
    """One scenario of a file on its way."""

    source: Source
    node: Node
    scenario: Scenario | None
    problems: list[Problem]

    def blame(self, faults: Iterator[Fault]) -> None:
        self.problems += [locate(self.source, self.node, fault) for fault in faults]


def load_scenarios(paths: Sequence[Path], *, contract: Path | None = None) -> Loaded:
    """Load every scenario that ``paths`` (files, or directories to walk) lead to.

    ``contract`` is the file of clauses; by default the nearest ``contract.yaml`` at or above the
    first path.  :class:`ScenarioProblems` with every problem of every file, if there is any.
    """
    loaded, problems = load_leniently(paths, contract=contract)
    if problems:
        raise ScenarioProblems(problems)
    return loaded


def load_leniently(
    paths: Sequence[Path], *, contract: Path | None = None
) -> tuple[Loaded, tuple[Problem, ...]]:
    """What can be loaded, and the problems of the rest, sorted by file, line and column."""
    files, problems = find_files(paths)
    clauses, found = _clauses(paths, contract)
    problems += found
    candidates: list[_Candidate] = []
    for file in files:
        of_file, found = _read_file(file)
        candidates += of_file
        problems += found
    _refuse_shared_ids(candidates)
    for candidate in candidates:
        if candidate.scenario is not None:
            candidate.blame(check(candidate.scenario, clauses))
        problems += candidate.problems
    scenarios = tuple(
        LoadedScenario(each.scenario, each.source.file, each.node.line + 1, digest(each.scenario))
        for each in candidates
        if each.scenario is not None and not each.problems
    )
    return Loaded(scenarios, clauses or {}), in_order(problems)


def check(scenario: Scenario, clauses: Mapping[str, Clause] | None) -> Iterator[Fault]:
    """Everything that is wrong with a scenario beyond its form.

    ``clauses`` are those of the contract, None when it could not be read (one problem says so; a
    second one for each scenario would not help).
    """
    if clauses is not None:
        yield from contracts.check_clauses(scenario, clauses)
        yield from contracts.check_claim(scenario, clauses)
    without_sandbox = list(names.check_sandboxes(scenario))
    yield from without_sandbox
    if without_sandbox:
        return  # no other name means anything then
    scene = Scene(scenario)
    for each in (*names.CHECKS, *links.CHECKS, *timing.CHECKS, *vacuity.CHECKS):
        yield from each(scene)


def digest(scenario: Scenario) -> str:
    """The SHA-256 of what a scenario says."""
    said = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()


def _clauses(
    paths: Sequence[Path], given: Path | None
) -> tuple[dict[str, Clause] | None, list[Problem]]:
    """The contract that goes with ``paths``."""
    if not paths:
        return None, []
    path = given if given is not None else find_contract(paths)
    if path is None:
        message = f"there is no {CONTRACT_NAME} here or above; expected one that lists the clauses"
        return None, [Problem(str(paths[0]), 1, 1, message)]
    return contracts.read_contract(path)


def _read_file(path: Path) -> tuple[list[_Candidate], list[Problem]]:
    """The scenarios of one file, whether they are valid or not."""
    source, problems = read_source(path)
    if source is None:
        return [], problems
    documents, found = read_documents(source)
    problems += found
    nodes = [node for document in documents for node in _scenario_nodes(document)]
    if not nodes and not found:
        problems.append(source.problem(0, 0, "has no scenario in it; expected a mapping with id"))
    return [_read_scenario(source, node) for node in nodes], problems


def _scenario_nodes(document: Node) -> list[Node]:
    """A document is one scenario, or a list of them; nothing at all is passed over."""
    if isinstance(document.value, list):
        return document.value
    return [] if document.value is None else [document]


def _read_scenario(source: Source, node: Node) -> _Candidate:
    if not isinstance(node.value, dict):
        message = f"expected a scenario, a mapping with id, got {describe(node.value)}"
        problem = source.problem(node.line, node.column, message)
        return _Candidate(source, node, None, [problem])
    scenario, faults = validate(Scenario, node)
    return _Candidate(source, node, scenario, [locate(source, node, fault) for fault in faults])


def _refuse_shared_ids(candidates: Sequence[_Candidate]) -> None:
    """Ids are unique across all files, also those of scenarios that are invalid otherwise."""
    first: dict[str, _Candidate] = {}
    for candidate in candidates:
        named = candidate.node.child("id")
        if named is None or not isinstance(named.value, str):
            continue
        other = first.setdefault(named.value, candidate)
        if other is not candidate:
            where = f"{other.source.file}:{other.node.line + 1}"
            message = f"id {named.value} is taken by the scenario in {where}; expected another"
            candidate.blame(iter([Fault(("id",), message)]))
