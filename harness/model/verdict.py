"""What judging gives: findings, verdicts, results of a whole run.

A *finding* is one expectation held against one timeline.  A *verdict* is what all findings of one
scenario on one subject come to, after known deviations were applied.  Nothing here touches the
operating system; ``harness.judges`` makes these, ``harness.reporters`` prints them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Status(enum.StrEnum):
    """The status of a scenario on a subject (``conventions``: Results)."""

    PASS = "pass"
    FAIL = "fail"
    KNOWN = "known"  # failed exactly as a known deviation says
    UNEXPECTED_PASS = "unexpected-pass"
    INCONCLUSIVE = "inconclusive"  # the recording does not decide
    SKIP = "skip"  # a need is not met here; the reason says which, and how to get it
    ERROR = "error"  # trouble of our own or of the environment

    @property
    def is_unexpected(self) -> bool:
        """Whether this status makes the run's exit code 1."""
        return self in (Status.FAIL, Status.UNEXPECTED_PASS)


class Held(enum.StrEnum):
    """Whether one expectation held."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation against one recording.

    ``rule`` is the expectation's name within its scenario; ``expected`` and ``observed`` are short
    texts for people; ``events`` are the sequence numbers that prove it (empty when the proof is
    the absence of an event).  ``repeat`` is the index of the recording, from 0.

    ``observed`` is about what the expectation asked for and nothing else: two recordings are
    compared by it, and a known deviation may name it.  What was seen there besides, and may be
    otherwise next time, is ``aside``.
    """

    rule: str
    held: Held
    expected: str
    observed: str
    clause: str | None = None
    events: tuple[int, ...] = ()
    repeat: int = 0
    aside: str = ""

    @property
    def seen(self) -> str:
        """All that was seen, for people: ``alive: descendant (3 processes)``."""
        return f"{self.observed} ({self.aside})" if self.aside else self.observed


@dataclass(frozen=True, slots=True)
class Interval:
    """A rate: ``hits`` of ``n``, with its Wilson score interval at 95 %."""

    hits: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The observed share, 0 when nothing was observed."""
        return self.hits / self.n if self.n else 0.0

    def __str__(self) -> str:
        return f"{self.hits}/{self.n} ({self.rate:.1%}, 95 % CI {self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True, slots=True)
class Deviation:
    """A known deviation that applied to a result."""

    rule: str
    because: str
    issue: str
    when: str
    fixed_in: str | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """How often one rule failed over the repeats of a scenario."""

    rule: str
    failures: Interval
    allowed: str


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario on one subject.

    ``findings`` are those of the *shown* repeat (the first that did not pass, else the first);
    ``timeline`` is the path of the recordings relative to the run's folder; ``message`` is one
    line for people; ``reason`` and ``remedy`` belong to a skip or an error.
    """

    id: str
    subject: str
    status: Status
    title: str = ""
    tags: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    duration_s: float = 0.0
    findings: tuple[Finding, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    rates: tuple[Rate, ...] = ()
    repeats: int = 1
    shown_repeat: int = 0
    message: str = ""
    reason: str = ""
    remedy: str = ""
    timeline: str = ""
    rerun: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The bwrap under test and where it runs.

    ``spec`` is what the user typed (``bundled``, ``host``, ``path:…``, ``image:…``).
    """

    spec: str
    version: str
    path: str
    sha256: str = ""
    kernel: str = ""
    uid: int = 0
    image_digest: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run: what is stored, reported and compared.

    ``started_at`` is ISO 8601 in UTC; ``duration_s`` is wall time; ``hidden`` says how many
    scenarios each filter hid; ``complete`` is False when cases have no result, because the run was
    interrupted or, with ``cut_short``, because --fail-fast ended it as it was asked to.
    """

    run_id: str
    harness_version: str
    started_at: str
    hostname: str
    command: str
    seed: int
    duration_s: float
    complete: bool
    subjects: tuple[Subject, ...]
    results: tuple[Result, ...]
    hidden: Mapping[str, int] = field(default_factory=dict)
    contract: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cut_short: bool = False

    @property
    def is_interrupted(self) -> bool:
        """Whether cases have no result although nobody asked for that."""
        return not self.complete and not self.cut_short

    def count(self, status: Status) -> int:
        """How many results have ``status``."""
        return sum(1 for result in self.results if result.status is status)
