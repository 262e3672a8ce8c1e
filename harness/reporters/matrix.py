"""The supervision contract against every subject: one row a clause, one column a subject.

Where subjects disagree is what a reader of several versions came for, so those rows come first.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.verdict import Held, Result, RunRecord, Status
from harness.reporters.words import STATUS_ORDER, subject_order


@dataclass(frozen=True, slots=True)
class Cell:
    """What all results of one subject say about one clause.

    ``status`` is the most urgent of them, None when none tested the clause; ``result`` is the one
    that it comes from; ``agreeing`` of ``total`` results upheld the clause.
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
        undecided = (None, Status.SKIP)
        return len({cell.status for cell in self.cells if cell.status not in undecided}) > 1


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
    if not results:
        return Cell(None)
    judged = [(clause_status(clause, result), result) for result in results]
    ranked = sorted(judged, key=lambda pair: STATUS_ORDER.index(pair[0]))
    agreeing = sum(status is Status.PASS for status, _ in judged)
    return Cell(ranked[0][0], ranked[0][1], agreeing, len(judged))
