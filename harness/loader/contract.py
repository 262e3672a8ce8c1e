"""``contract.yaml`` -> clauses, with the same positioned problems as scenario files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.loader.nodes import Node, describe, read_documents
from harness.loader.problem import Problem, suggestion
from harness.loader.source import Source, read_source
from harness.loader.translate import Fault, locate, validate
from harness.model.contract import Clause
from harness.model.scenario import Scenario

#: The family whose clauses are claims of a how-to, upheld or refuted by what bwrap does.
HOWTO_FAMILY = "how-to"


class ClauseEntry(BaseModel):
    """One entry of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]*(-[A-Z][A-Z0-9]*)*-[0-9]+$")] = Field(
        description="Such as STATUS-1; unique."
    )
    family: str = Field(min_length=1, description="The heading that it is listed under.")
    sentence: str = Field(
        min_length=8, description="One sentence: what a supervisor may rely on, or what is claimed."
    )
    source: str = Field(
        min_length=1, description="A man page option, a how-to's claim, or an issue's address."
    )


def read_contract(path: Path) -> tuple[dict[str, Clause] | None, list[Problem]]:
    """The clauses of a contract file by id, and what is wrong with it; None if it is unreadable."""
    source, problems = read_source(path)
    if source is None:
        return None, problems
    documents, found = read_documents(source)
    problems += found
    if len(documents) != 1 or not isinstance(documents[0].value, list):
        if not found:
            got = describe(documents[0].value) if len(documents) == 1 else "several documents"
            got = got if documents else "nothing"
            message = f"expected one list of clauses, got {got}"
            problems.append(source.problem(0, 0, message))
        return None, problems
    clauses: dict[str, Clause] = {}
    for node in documents[0].value:
        problems += _read_clause(source, node, clauses)
    return clauses, problems


def _read_clause(source: Source, node: Node, clauses: dict[str, Clause]) -> list[Problem]:
    """Add one clause to ``clauses``; what is wrong with it otherwise."""
    entry, faults = validate(ClauseEntry, node)
    if entry is not None and entry.id in clauses:
        faults.append(Fault(("id",), f"clause {entry.id} is given twice; expected unique ids"))
    elif entry is not None:
        clauses[entry.id] = Clause(
            id=entry.id, sentence=entry.sentence, source=entry.source, family=entry.family
        )
    return [locate(source, node, fault) for fault in faults]


def check_clauses(scenario: Scenario, clauses: Mapping[str, Clause]) -> Iterator[Fault]:
    """Every clause that a scenario or one of its expectations names is in the contract."""
    named: list[tuple[tuple[str | int, ...], str]] = [
        (("clauses", index), clause) for index, clause in enumerate(scenario.clauses)
    ]
    named += [
        (("expect", index, "clause"), rule.clause)
        for index, rule in enumerate(scenario.expect)
        if rule.clause is not None
    ]
    for path, clause in named:
        if clause not in clauses:
            near = suggestion(clause, clauses)
            # Dozens of ids help nobody: without a near one, say where they are.
            hint = near if near.startswith("did") else "expected one of contract.yaml"
            yield Fault(path, f"there is no clause {clause}; {hint}")


def check_claim(scenario: Scenario, clauses: Mapping[str, Clause]) -> Iterator[Fault]:
    """``claim`` goes with a clause of a how-to, and such a clause says nothing without it."""
    known = [clauses[each] for each in scenario.clauses if each in clauses]
    claims = [clause.id for clause in known if clause.family == HOWTO_FAMILY]
    if scenario.claim is not None and not claims and len(known) == len(scenario.clauses):
        message = f"claim needs a clause of the family {HOWTO_FAMILY}, such as HOWTO-1"
        yield Fault(("claim",), message, at_key=True)
    if scenario.claim is None and claims:
        message = f"{claims[0]} is a claim; expected claim: upheld or claim: refuted beside it"
        yield Fault(("clauses", scenario.clauses.index(claims[0])), message)
