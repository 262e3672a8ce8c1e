"""Adding up the repeats of a scenario, applying known deviations, and naming the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.judges.rates import wilson
from harness.judges.recording import Judged
from harness.model.scenario import Known, Scenario
from harness.model.verdict import Deviation, Finding, Held, Rate, Status


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What all repeats come to.  ``shown`` is the repeat whose findings a reader should see."""

    status: Status
    message: str
    findings: tuple[Finding, ...]
    shown: int
    rates: tuple[Rate, ...]
    deviations: tuple[Deviation, ...]


@dataclass(slots=True)
class Tally:
    """Takes in judged recordings one by one and keeps only what the conclusion needs.

    ``facts`` are those of the subject; ``place`` is file and line, for naming the entry to change.
    """

    scenario: Scenario
    facts: Mapping[str, Any]
    place: tuple[str, int] = ("", 0)
    n: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    unknowns: Counter[str] = field(default_factory=Counter)
    trouble: str = ""
    vacuous: str = ""
    hindered: str = ""
    other_ways: list[str] = field(default_factory=list)
    duration_s: float = 0.0
    _first: Judged | None = None
    _telling: tuple[int, Judged] | None = None

    @property
    def shown_repeat(self) -> int:
        """The repeat that a reader should see, as far as is known."""
        telling = self._telling[1] if self._telling is not None else self._first
        return telling.repeat if telling is not None else 0

    def add(self, judged: Judged) -> None:
        """Take in one recording.

        The findings of one that may not count are shown, but prove nothing in either direction
        (design law 5): neither a failure nor a known deviation.
        """
        self.n += 1
        self.duration_s += judged.duration_s
        self.trouble = self.trouble or judged.trouble
        self.vacuous = self.vacuous or judged.vacuous
        self.hindered = self.hindered or judged.hindered
        known = {entry.rule: entry for entry in self.applicable()}
        weight = 0
        for finding in () if judged.trouble or judged.vacuous else judged.findings:
            self.applied[finding.rule] += 1
            if finding.held is Held.UNKNOWN:
                self.unknowns[finding.rule] += 1
                weight = max(weight, 2)
            if finding.held is Held.NO:
                self.failures[finding.rule] += 1
                entry = known.get(finding.rule)
                weight = max(weight, 3 if entry is None else 1)
                if entry is not None and entry.observed not in (None, finding.observed):
                    self.other_ways.append(
                        f"{finding.rule} failed another way than the known deviation says: "
                        f"{finding.observed}, not {entry.observed}"
                    )
                    weight = 3
        if judged.hindered:
            weight = max(weight, 2)
        if judged.trouble or judged.vacuous:
            weight = 4
        if self._first is None:
            self._first = judged
        if weight and (self._telling is None or weight > self._telling[0]):
            self._telling = (weight, judged)

    def applicable(self) -> list[Known]:
        """The known deviations whose condition holds for this subject."""
        return [entry for entry in self.scenario.known if entry.when.holds(self.facts)]

    def conclude(self) -> Conclusion:
        """The verdict over everything that was added."""
        status, message = self._decide()
        telling = self._telling[1] if self._telling is not None else self._first
        return Conclusion(
            status,
            message,
            telling.findings if telling is not None else (),
            telling.repeat if telling is not None else 0,
            self._rates(),
            tuple(self._deviations()) if status is Status.KNOWN else (),
        )

    def _decide(self) -> tuple[Status, str]:
        if self.n == 0:
            return Status.ERROR, "nothing was recorded"
        if self.trouble:
            return Status.ERROR, self.trouble
        if self.other_ways:
            return Status.FAIL, self.other_ways[0]
        known = {entry.rule: entry for entry in self.applicable()}
        unknown_failures = [rule for rule in self.failures if rule not in known]
        doubts = []
        for rule in unknown_failures:
            verdict = self._exceeds(rule)
            if verdict is Held.YES:
                return Status.FAIL, self._describe_failure(rule)
            if verdict is Held.UNKNOWN:
                doubts.append(self._describe_failure(rule) + ", which the allowed rate may permit")
        if self.vacuous or self.hindered:
            return Status.INCONCLUSIVE, self.vacuous or self.hindered
        surprise = self._surprise(known)
        if surprise:
            return Status.UNEXPECTED_PASS, surprise
        if self.unknowns:
            return Status.INCONCLUSIVE, self._describe_unknown()
        if doubts:
            return Status.INCONCLUSIVE, doubts[0]
        if known:
            return Status.KNOWN, "; ".join(entry.because for entry in known.values())
        return Status.PASS, ""

    def _exceeds(self, rule: str) -> Held:
        """Whether a rule certainly failed more often than is allowed."""
        allowed = self.scenario.rate.at_most if self.scenario.rate is not None else 0.0
        failures = wilson(self.failures[rule], self.applied[rule])
        if allowed == 0.0 or failures.low > allowed:
            return Held.YES
        return Held.UNKNOWN if failures.rate > allowed else Held.NO

    def _surprise(self, known: Mapping[str, Known]) -> str:
        """The text that names a known deviation that did not happen, or an empty one."""
        for rule, entry in known.items():
            # What could not be decided may have been the deviation: it is no surprise.
            failures = wilson(self.failures[rule] + self.unknowns[rule], self.applied[rule])
            if entry.rate_at_least is None:
                missing = failures.hits < failures.n or failures.n == 0
            else:
                missing = failures.high < entry.rate_at_least
            if missing:
                file, line = self.place
                return (
                    f"{rule} held in {failures.n - failures.hits} of {failures.n}, although it is "
                    f'known to fail when "{entry.when}": if it is fixed, change the known entry '
                    f"of {self.scenario.id} ({file}:{line})"
                )
        return ""

    def _describe_failure(self, rule: str) -> str:
        telling = self._telling[1] if self._telling is not None else self._first
        findings = telling.findings if telling is not None else ()
        for finding in findings:
            if finding.rule == rule and finding.held is Held.NO:
                text = f"{rule}: expected {finding.expected}; observed {finding.seen}"
                break
        else:
            text = f"{rule} failed"
        if self.n > 1:
            text += f" ({wilson(self.failures[rule], self.applied[rule])})"
        return text

    def _describe_unknown(self) -> str:
        telling = self._telling[1] if self._telling is not None else self._first
        for finding in telling.findings if telling is not None else ():
            if finding.held is Held.UNKNOWN:
                return f"{finding.rule}: expected {finding.expected}; {finding.seen}"
        return f"{self.unknowns.total()} finding(s) could not be decided"

    def _rates(self) -> tuple[Rate, ...]:
        if self.n < 2:
            return ()
        allowed = self.scenario.rate.at_most if self.scenario.rate is not None else 0.0
        known = {entry.rule: entry for entry in self.applicable()}
        rates = []
        for rule in self.applied:
            text = f"at most {allowed:.1%}"
            if rule in known:
                least = known[rule].rate_at_least
                text = "known: always" if least is None else f"known: at least {least:.1%}"
            rates.append(Rate(rule, wilson(self.failures[rule], self.applied[rule]), text))
        return tuple(rates)

    def _deviations(self) -> list[Deviation]:
        file, line = self.place
        return [
            Deviation(e.rule, e.because, e.issue, str(e.when), e.fixed_in, file, line)
            for e in self.applicable()
        ]
