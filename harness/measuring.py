"""One scenario recorded as often as somebody asks, on one subject after another.

For questions that a run with a fixed number of repeats cannot answer (``harness bisect``).  All
recordings are kept in the run's folder, so that ``judge`` and ``report`` know them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.judges.recording import judge_recording
from harness.model.verdict import Held
from harness.pipeline import Agents, Job, facts_for, first_timeline
from harness.store import RunFolder


@dataclass(slots=True)
class Measuring:
    """Counts what was recorded of each subject; the agents are the caller's to close."""

    folder: RunFolder
    agents: Agents
    _recorded: dict[str, int] = field(default_factory=dict)

    def measure(self, job: Job, times: int) -> list[frozenset[str] | None]:
        """Record a job so many times more: the rules that failed in each recording.

        None for a recording that proves nothing either way: its trigger did not happen, or nothing
        failed and something could not be decided.
        """
        return [self._once(job) for _ in range(times)]

    def _once(self, job: Job) -> frozenset[str] | None:
        target, scenario = job.target, job.loaded.scenario
        repeat = self._recorded.get(target.spec, 0)
        path = self.folder.timeline_path(self.folder.timeline_name(target.spec, scenario.id))
        timeline = first_timeline(self.agents.record(job, repeat, path))
        self._recorded[target.spec] = repeat + 1
        facts = facts_for(scenario, target.facts)
        judged = judge_recording(scenario, timeline, facts, repeat=repeat)
        if judged.trouble or judged.vacuous:
            return None
        failed = judged.failed_rules()
        undecided = any(finding.held is Held.UNKNOWN for finding in judged.findings)
        if not failed and (undecided or judged.hindered):
            return None
        return frozenset(failed)
