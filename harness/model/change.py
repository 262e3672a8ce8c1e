"""What a comparison of two recorded sides gives: changes, and what did the changing."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Cause(enum.StrEnum):
    """What did the changing."""

    SUBJECT = "subject"
    SUITE = "suite"
    ENVIRONMENT = "environment"


class Direction(enum.StrEnum):
    """Whether a change is for the worse."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    LOST = "lost"  # a verdict is missing on the second side
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not the same.  ``scenario`` is empty for the environment."""

    cause: Cause
    direction: Direction
    scenario: str
    what: str
    before: str
    after: str
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that changed from ``before`` to ``after``, worst first.

    ``refusal`` is not empty when the two cannot be compared; then there are no changes.
    """

    before: str
    after: str
    compared: int
    changes: tuple[Change, ...]
    refusal: str = ""

    def of(self, direction: Direction) -> list[Change]:
        """The changes in one direction."""
        return [change for change in self.changes if change.direction is direction]
