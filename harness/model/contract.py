"""The contract: the clauses that scenarios test, each a sentence with the place it comes from.

``scenarios/contract.yaml`` holds them; the loader reads it; a scenario that names an unknown
clause is refused.  A clause says what a supervisor may rely on, as it is documented or measured;
whether a given bwrap keeps it is what a run finds out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause.  ``source`` names the man page sentence, how-to claim or issue address."""

    id: str
    sentence: str
    source: str
    family: str = ""
