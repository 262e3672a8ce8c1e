"""One scenario held against one recording: every finding, and whether it may count at all."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.judges.channels import judge_eof, judge_field, judge_objects, judge_text
from harness.judges.evidence import find_missing_evidence
from harness.judges.probes import judge_fds, judge_locks, judge_observed, judge_probe
from harness.judges.processes import (
    judge_alive,
    judge_exit,
    judge_never_ran,
    judge_ran,
    judge_survivors,
    judge_zombies,
)
from harness.judges.rules import Case, Judgement, trigger_event
from harness.judges.supervision import judge_outcome, judge_reached
from harness.judges.timing import judge_gap, judge_order
from harness.model.scenario import Expectation, Scenario
from harness.model.timeline import Kind, Timeline
from harness.model.verdict import Finding, Held

RULES: dict[str, Callable[[Any, Case], Judgement]] = {
    "exit": judge_exit,
    "objects": judge_objects,
    "field": judge_field,
    "text": judge_text,
    "eof": judge_eof,
    "order": judge_order,
    "gap": judge_gap,
    "ran": judge_ran,
    "never_ran": judge_never_ran,
    "survivors": judge_survivors,
    "zombies": judge_zombies,
    "alive": judge_alive,
    "locks": judge_locks,
    "fds": judge_fds,
    "observed": judge_observed,
    "probe": judge_probe,
    "outcome": judge_outcome,
    "reached": judge_reached,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One recording judged.

    ``trouble`` is not empty when something of ours went wrong (no closing line, a leak): the
    verdict is then an error.  ``vacuous`` is not empty when the stimulus was not carried out: the
    verdict is then inconclusive, whatever the findings say (design law 5).  ``hindered`` is not
    empty when a later step could not be carried out, or nothing shows a bwrap at work: what failed
    did fail, but nothing is passed.
    """

    repeat: int
    findings: tuple[Finding, ...]
    trouble: str = ""
    vacuous: str = ""
    hindered: str = ""
    duration_s: float = 0.0

    def failed_rules(self) -> set[str]:
        """The names of the rules that certainly did not hold."""
        return {finding.rule for finding in self.findings if finding.held is Held.NO}

    @property
    def is_clean(self) -> bool:
        """Whether every finding held and the recording may count."""
        held = all(finding.held is Held.YES for finding in self.findings)
        return held and bool(self.findings) and not (self.trouble or self.vacuous or self.hindered)


def judge_recording(
    scenario: Scenario, timeline: Timeline, facts: Mapping[str, Any], *, repeat: int = 0
) -> Judged:
    """Hold every expectation that applies under ``facts`` against one recording.

    A rule that crashes is an unknown finding with the traceback, never a pass and never a raise.
    """
    case = Case(scenario, timeline)
    findings = tuple(
        _judge_one(rule, name, case, repeat)
        for rule, name in zip(scenario.expect, scenario.rule_names(), strict=True)
        if rule.when is None or rule.when.holds(facts)
    )
    duration_s = timeline.events[-1].t_ns / 1e9 if timeline.events else 0.0
    return Judged(
        repeat=repeat,
        findings=findings,
        trouble=find_trouble(timeline),
        vacuous=find_vacuity(timeline, findings),
        hindered=find_hindrance(scenario, timeline, findings),
        duration_s=duration_s,
    )


def _judge_one(rule: Expectation, name: str, case: Case, repeat: int) -> Finding:
    verb = rule.verb
    try:
        found = RULES[verb](getattr(rule, verb), case)
    except Exception:  # a judge that crashes must not decide anything
        found = Judgement(Held.UNKNOWN, verb, "the judge crashed: " + traceback.format_exc())
    return Finding(
        rule=name,
        held=found.held,
        expected=found.expected,
        observed=found.observed,
        clause=rule.clause,
        events=found.events,
        repeat=repeat,
        aside=found.aside,
    )


def find_trouble(timeline: Timeline) -> str:
    """What went wrong on our side, or an empty text."""
    if not timeline.closed:
        return "the recording has no closing line: the recorder was interrupted or died"
    cleaned = timeline.last(Kind.CLEANUP_DONE)
    if cleaned is None:
        return "the recording was closed without a clean-up"
    if cleaned.data["leaks"]:
        return "something was left behind: " + "; ".join(cleaned.data["leaks"])
    return ""


def find_vacuity(timeline: Timeline, findings: tuple[Finding, ...]) -> str:
    """Why the recording cannot show what it is about, or an empty text."""
    if trigger_event(timeline) is None:
        stuck = timeline.last(Kind.STEP_FAILED, Kind.STEP_TIMED_OUT)
        if stuck is None:
            return "the trigger was never carried out"
        why = stuck.data.get("reason", "its deadline passed")
        step = f"step {stuck.data['index'] + 1} ({stuck.data['verb']})"
        return f"the trigger was never carried out: {step}: {why}"
    if not findings:
        return "no expectation applies to this subject"
    return ""


def find_hindrance(scenario: Scenario, timeline: Timeline, findings: tuple[Finding, ...]) -> str:
    """Why the recording allows no pass, although a rule that failed did fail; or an empty text."""
    # A wait that could not be met is a finding (``reached``); anything else was simply not done.
    failed = next((e for e in timeline.of(Kind.STEP_FAILED) if e.data["verb"] != "wait"), None)
    if failed is not None:
        step = f"step {failed.data['index'] + 1} ({failed.data['verb']})"
        return f"{step} could not be carried out: {failed.data['reason']}"
    held = {finding.rule for finding in findings if finding.held is Held.YES}
    return find_missing_evidence(scenario, timeline, held)
