"""What a bisection saw of each subject, and what it came to."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.model.verdict import Interval

#: What fails when any rule does.
ANY_RULE = "any rule"


class Like(enum.StrEnum):
    """Which end of the list a subject is like."""

    FIRST = "first"
    LAST = "last"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class Seen:
    """What was recorded of one subject: how often each rule failed in ``n`` that count.

    ``tried`` counts those as well that prove nothing either way.
    """

    n: int = 0
    tried: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, recordings: Sequence[frozenset[str] | None]) -> None:
        """Count more: the rules that failed in each recording, None for one that proves nothing."""
        self.tried += len(recordings)
        for failed in recordings:
            if failed is not None:
                self.n += 1
                self.failures.update(failed)
                self.failures[ANY_RULE] += bool(failed)


@dataclass(frozen=True, slots=True)
class Bisection:
    """The answer, in places of the list of subjects, from 0.

    ``rule`` is what differs between the ends, and is empty when they do not differ; ``before`` and
    ``after`` are the subjects between which it flips: neighbours when all went well.  ``trouble``
    says why they are not, or why there is no flip at all.  ``seen``, ``like`` and ``shares`` (how
    often the rule failed, or any) have those that were looked at.
    """

    rule: str
    before: int
    after: int
    seen: Mapping[int, Seen]
    shares: Mapping[int, Interval]
    like: Mapping[int, Like]
    trouble: str = ""
