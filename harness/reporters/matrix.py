"""Every subject side by side: one row a contract clause or a scenario, one column a subject.

Where subjects disagree is what a reader of several versions came for, so those rows come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.verdict import Held, Result, RunRecord, Status
from harness.reporters.words import (
    NEEDS_ATTENTION,
    STATUS_ORDER,
    area,
    subject_of,
    subject_order,
)

#: From this many subjects on the matrix scrolls sideways in a box of its own.
_MANY_SUBJECTS = 7


@dataclass(frozen=True, slots=True)
class Cell:
    """What all results of one subject say about one clause or one scenario.

    ``status`` is the most urgent of them, None when there is none; ``result`` is the one that it
    comes from; ``agreeing`` of ``total`` results upheld the clause.
    """

    status: Status | None
    result: Result | None = None
    agreeing: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One clause; the cells are in the order of :attr:`Matrix.subjects`."""

    clause: str
    sentence: str
    source: str
    cells: tuple[Cell, ...]

    @property
    def is_tested(self) -> bool:
        """Whether any subject has a result for the clause."""
        return any(cell.status is not None for cell in self.cells)

    @property
    def differs(self) -> bool:
        """Whether two subjects that were judged say different things."""
        return _differ(self.cells)


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """One scenario; the cells are in the order of ``words.subject_order``."""

    id: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def differs(self) -> bool:
        """Whether two subjects that were judged say different things."""
        return _differ(self.cells)


def _differ(cells: Iterable[Cell]) -> bool:
    # A skip says nothing about bwrap, and neither does a subject that the scenario never ran on.
    undecided = (None, Status.SKIP)
    return len({cell.status for cell in cells if cell.status not in undecided}) > 1


@dataclass(frozen=True, slots=True)
class Matrix:
    """All clauses: differing ones first, untested ones last, else in the order of the contract."""

    subjects: tuple[str, ...]
    rows: tuple[Row, ...]


def contract_matrix(run: RunRecord) -> Matrix:
    """The matrix of a run.  Clauses that only results name get a row without a sentence."""
    subjects = subject_order(run)
    named = [clause for result in run.results for clause in _clauses(result)]
    by_place: dict[tuple[str, str], list[Result]] = {}
    for result in run.results:
        for clause in _clauses(result):
            by_place.setdefault((clause, result.subject), []).append(result)
    rows = []
    for clause in dict.fromkeys([*run.contract, *named]):
        entry = run.contract.get(clause, {})
        cells = tuple(_cell(clause, by_place.get((clause, spec), [])) for spec in subjects)
        rows.append(Row(clause, entry.get("sentence", ""), entry.get("source", ""), cells))
    rows.sort(key=lambda row: (not row.is_tested, not row.differs))
    return Matrix(tuple(subjects), tuple(rows))


def scenario_rows(run: RunRecord) -> list[ScenarioRow]:
    """All scenarios of a run: those that differ first, the most urgent of them on top.

    Rows that differ in the same way are neighbours, so that what changed between two versions is
    one block; the others are in the order of the run.
    """
    subjects = subject_order(run)
    by_id: dict[str, dict[str, list[Result]]] = {}
    for result in run.results:
        by_id.setdefault(result.id, {}).setdefault(result.subject, []).append(result)
    rows = []
    for scenario, by_subject in by_id.items():
        found = [by_subject.get(spec, []) for spec in subjects]
        title = next((result.title for results in found for result in results if result.title), "")
        cells = (_ranked([(result.status, result) for result in results]) for results in found)
        rows.append(ScenarioRow(scenario, title, tuple(cells)))
    return sorted(rows, key=_likeness)


def _likeness(row: ScenarioRow) -> tuple[bool, list[int]]:
    if not row.differs:
        return True, []
    ranks = [STATUS_ORDER.index(cell.status) if cell.status else 99 for cell in row.cells]
    return False, [min(ranks), *ranks]


@dataclass(frozen=True, slots=True)
class Scenarios:
    """The rows of scenarios: those that differ, and the others by area."""

    differing: list[ScenarioRow]
    alike: list[tuple[str, list[ScenarioRow]]]
    total: int


def scenarios_by_difference(run: RunRecord) -> Scenarios:
    """All rows of scenarios, sorted into those that differ and the others."""
    rows = scenario_rows(run)
    alike: dict[str, list[ScenarioRow]] = {}
    for row in rows:
        if not row.differs:
            alike.setdefault(area(row.id), []).append(row)
    return Scenarios([row for row in rows if row.differs], sorted(alike.items()), len(rows))


def columns(run: RunRecord) -> list[tuple[str, str]]:
    """The heads of the matrix: a subject and its bwrap version."""
    subjects = ((spec, subject_of(run, spec)) for spec in subject_order(run))
    return [(spec, subject.version if subject else "") for spec, subject in subjects]


def totals(run: RunRecord) -> list[list[tuple[Status, int]]]:
    """How many results of each status each subject has: passes first, skips last."""
    found = Counter((result.subject, result.status) for result in run.results)
    order = (Status.PASS, Status.KNOWN, *NEEDS_ATTENTION, Status.SKIP)
    return [
        [(status, found[spec, status]) for status in order if found[spec, status]]
        for spec in subject_order(run)
    ]


def breadth(run: RunRecord) -> str:
    """How wide the matrix is, as the style sheet calls it: ``few``, ``some`` or ``many``."""
    count = len(subject_order(run))
    return "few" if count <= 3 else "some" if count < _MANY_SUBJECTS else "many"


def _clauses(result: Result) -> list[str]:
    found = [finding.clause for finding in result.findings if finding.clause]
    return list(dict.fromkeys([*result.clauses, *found]))


def clause_status(clause: str, result: Result) -> Status:
    """What one result says about one clause.

    A failed scenario often tests several clauses: one whose own findings all held is upheld, even
    though the scenario failed on another.
    """
    held = [finding.held for finding in result.findings if finding.clause == clause]
    if result.status in (Status.FAIL, Status.KNOWN) and held:
        if Held.NO in held:
            return result.status
        return Status.INCONCLUSIVE if Held.UNKNOWN in held else Status.PASS
    return result.status


def _cell(clause: str, results: list[Result]) -> Cell:
    return _ranked([(clause_status(clause, result), result) for result in results])


def _ranked(judged: list[tuple[Status, Result]]) -> Cell:
    if not judged:
        return Cell(None)
    status, result = min(judged, key=lambda pair: STATUS_ORDER.index(pair[0]))
    agreeing = sum(status is Status.PASS for status, _ in judged)
    return Cell(status, result, agreeing, len(judged))
