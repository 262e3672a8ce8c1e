"""The run: who records what and when, and what is concluded of each scenario.

:class:`Run` works through the jobs; arguments, printing and exit codes are ``harness.cli``'s.  It
reaches sandboxes through the :class:`Backend` protocol only, so where a sandbox ran is metadata and
never part of what a scenario is.

Read next: ``harness.agent.recorder`` (what records), ``harness.judges`` (what judges),
``harness.archive`` (what is kept of a run, and how it is judged again).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from harness import __version__
from harness.errors import Interrupted, RecordingLost
from harness.judges.recording import judge_recording
from harness.judges.tally import Tally
from harness.loader import LoadedScenario, Problem
from harness.model.scenario import Scenario
from harness.model.timeline import Plan, Timeline, read_timelines
from harness.model.verdict import Result, Status, Subject
from harness.needs import unmet_need
from harness.store import RunFolder


class Agent(Protocol):
    """What records, wherever it is."""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]: ...

    def record(self, plan: Plan, path: Path, *, timeout_s: float | None) -> list[str]: ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Starts agents in one place.  ``stop_fd`` becomes readable when the run is to stop."""

    def start_agent(self, *, stop_fd: int, log: IO[bytes]) -> Agent: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A subject that was found and proved itself, with where and as whom it runs.

    ``spec`` is what the user typed; ``path`` is bwrap where the agent is; ``facts`` are what
    conditions may ask about, and ``environment`` is what ``doctor`` found there.
    """

    spec: str
    backend: Backend
    path: str
    uid: int
    gid: int
    subject: Subject
    facts: Mapping[str, Any]
    environment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.  ``timeout_s`` limits one recording; ``repeat`` replaces what scenarios say."""

    jobs: int = 1
    fail_fast: bool = False
    repeat: int | None = None
    timeout_s: float | None = None
    timeout_multiplier: float = 1.0
    seed: int = 0
    must_work: bool = False
    command: str = "harness run"


@dataclass(frozen=True, slots=True)
class Job:
    """One scenario on one subject."""

    loaded: LoadedScenario
    target: Target


class Watcher(Protocol):
    """Is told what happens while it happens; called from several threads, one at a time."""

    def case_started(self, scenario_id: str, subject: str) -> None: ...

    def case_finished(self, result: Result, timeline: Timeline | None) -> None: ...


class StopSwitch:
    """Tells every worker to stop.  ``fd`` becomes readable, and stays so, once it was thrown.

    Whoever writes to ``write_fd``, which never blocks, throws it: also the interpreter itself, for
    which it is made to be a wake-up descriptor (``signal.set_wakeup_fd``).
    """

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)

    @property
    def thrown(self) -> bool:
        """Whether it was thrown."""
        return bool(select.select([self.fd], [], [], 0)[0])

    def throw(self) -> None:
        """Stop as soon as possible; safe in a signal handler, and more than once."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_fd, b"x")

    def close(self) -> None:
        """Close both ends."""
        os.close(self.fd)
        os.close(self.write_fd)


@dataclass(slots=True)
class Run:
    """A run in progress: its folder, what is left to do, and what came of the rest.

    ``cut_short`` says that --fail-fast ended it, which is no interruption from outside.
    """

    folder: RunFolder
    options: Options
    watcher: Watcher
    switch: StopSwitch
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    cut_short: bool = False
    broken: Exception | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_all(self, jobs: Sequence[Job]) -> None:
        """Work through the jobs with ``options.jobs`` workers, each with agents of its own.

        An error of the environment or of ours in one worker stops all of them and is raised here.
        """
        # Long ones first, or a race with hundreds of repeats would run alone at the end.
        waiting = sorted(jobs, key=lambda job: -self._repeats(job.loaded.scenario))
        queue = iter(waiting)
        workers = max(1, min(self.options.jobs, len(waiting)))
        with (
            self.folder.agent_log() as log,
            ThreadPoolExecutor(max_workers=workers) as pool,
        ):
            for future in [pool.submit(self._work, queue, log) for _ in range(workers)]:
                future.result()
        if self.broken is not None:
            raise self.broken

    def _work(self, queue: Iterator[Job], log: IO[bytes]) -> None:
        agents: dict[int, Agent] = {}
        try:
            while not (self.switch.thrown or self.cut_short or self.broken):
                with self._lock:
                    job = next(queue, None)
                if job is None:
                    return
                self._finish(*self._record(job, agents, log))
        except Interrupted:
            return
        except Exception as fault:  # raised again by record_all, in the thread that can explain it
            self.broken = self.broken or fault
            self.switch.throw()
        finally:
            for agent in agents.values():
                agent.close()

    def _finish(self, result: Result, shown: Timeline | None) -> None:
        with self._lock:
            self.results[(result.id, result.subject)] = result
            self.watcher.case_finished(result, shown)
            if self.options.fail_fast and result.status.is_unexpected:
                self.cut_short = True

    def _repeats(self, scenario: Scenario) -> int:
        return self.options.repeat if self.options.repeat is not None else scenario.repeat

    def _record(
        self, job: Job, agents: dict[int, Agent], log: IO[bytes]
    ) -> tuple[Result, Timeline | None]:
        loaded, target = job.loaded, job.target
        with self._lock:
            self.watcher.case_started(loaded.scenario.id, target.spec)
        facts = facts_for(loaded.scenario, target.facts)
        unmet = unmet_need(loaded.scenario, facts, target.environment)
        blank = blank_result(loaded, target.spec, self.options)
        if unmet is not None:
            must_work = self.options.must_work and not unmet.of_subject
            return skipped(blank, unmet.reason, unmet.remedy, must_work=must_work), None
        name = self.folder.timeline_name(target.spec, loaded.scenario.id)
        tally = Tally(loaded.scenario, facts, (loaded.file, loaded.line))
        shown = _Shown()
        started = time.monotonic()
        try:
            agent = agents.get(id(target.backend))
            if agent is None:
                agent = target.backend.start_agent(stop_fd=self.switch.fd, log=log)
                agents[id(target.backend)] = agent
            path = self.folder.timeline_path(name)
            for repeat, timeline in self._recordings(agent, job, path):
                tally.add(judge_recording(loaded.scenario, timeline, facts, repeat=repeat))
                shown.keep(tally, repeat, timeline)
        except RecordingLost as lost:
            gone = agents.pop(id(target.backend), None)
            if gone is not None:
                gone.close()
            result = dataclasses.replace(
                blank, status=Status.ERROR, message=str(lost).partition("\n")[0], reason=str(lost)
            )
        else:
            result = concluded(blank, tally)
        elapsed = time.monotonic() - started
        result = dataclasses.replace(result, duration_s=elapsed, timeline=name)
        return result, shown.timeline

    def _recordings(self, agent: Agent, job: Job, path: Path) -> Iterator[tuple[int, Timeline]]:
        """Every recording of a job; the next one is made while the caller judges the last."""
        repeats = self._repeats(job.loaded.scenario)
        options = self.options
        if repeats == 1:
            yield 0, record_once(agent, job, 0, path, options)
            return
        with ThreadPoolExecutor(max_workers=1) as ahead:
            following = ahead.submit(record_once, agent, job, 0, path, options)
            for repeat in range(repeats):
                timeline = following.result()
                if repeat + 1 < repeats:
                    following = ahead.submit(record_once, agent, job, repeat + 1, path, options)
                yield repeat, timeline


def record_once(agent: Agent, job: Job, repeat: int, path: Path, options: Options) -> Timeline:
    """Record a job one time more; the recording is appended to ``path``.

    RecordingLost when the agent is gone, Interrupted when the run was told to stop.
    """
    plan = make_plan(job, repeat, options)
    lines = agent.record(plan, path, timeout_s=options.timeout_s)
    return next(iter(read_timelines(lines)), Timeline([]))


@dataclass(slots=True)
class _Shown:
    """The one recording of many that a reader should see."""

    timeline: Timeline | None = None
    repeat: int = -1

    def keep(self, tally: Tally, repeat: int, timeline: Timeline) -> None:
        if tally.shown_repeat == repeat:
            self.timeline, self.repeat = timeline, repeat


def facts_for(scenario: Scenario, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as they are for one scenario, which may want another user than the run's."""
    return {**facts, "uid": 0} if scenario.user == "root" else dict(facts)


def make_plan(job: Job, repeat: int, options: Options) -> Plan:
    """The plan of one recording: the scenario less its expectations, and where and as whom."""
    target = job.target
    plan = job.loaded.scenario.plan()
    for step in plan["steps"]:
        step["within"] = round(step["within"] * options.timeout_multiplier)
    root = job.loaded.scenario.user == "root"
    plan.update(
        bwrap=target.path,
        subject={
            "path": target.subject.path,
            "version": target.subject.version,
            "sha256": target.subject.sha256,
        },
        uid=0 if root else target.uid,
        gid=0 if root else target.gid,
        repeat_index=repeat,
        sha256=job.loaded.sha256,
        harness=__version__,
    )
    return plan


def blank_result(loaded: LoadedScenario, subject: str, options: Options) -> Result:
    """What is known of a result before anything was recorded."""
    scenario = loaded.scenario
    rerun = f"harness run {shlex.quote(f'{loaded.file}::{scenario.id}')} --subject {subject}"
    if options.repeat is not None:
        rerun += f" --repeat {options.repeat}"
    rerun += f" --seed {options.seed}"
    return Result(
        id=scenario.id,
        subject=subject,
        status=Status.ERROR,
        title=scenario.title,
        tags=tuple(scenario.tags),
        clauses=tuple(scenario.clauses),
        refs=tuple(scenario.refs),
        file=loaded.file,
        line=loaded.line,
        rerun=rerun,
    )


def skipped(blank: Result, reason: str, remedy: str, *, must_work: bool) -> Result:
    """A result that says what is missing; a failure where everything must work."""
    status = Status.FAIL if must_work else Status.SKIP
    return dataclasses.replace(
        blank, status=status, message=f"{reason}: {remedy}", reason=reason, remedy=remedy
    )


def concluded(blank: Result, tally: Tally) -> Result:
    """A result from everything that was recorded and judged."""
    conclusion = tally.conclude()
    return dataclasses.replace(
        blank,
        status=conclusion.status,
        message=conclusion.message,
        findings=conclusion.findings,
        shown_repeat=conclusion.shown,
        rates=conclusion.rates,
        deviations=conclusion.deviations,
        repeats=tally.n,
    )


def unloadable(problems: Sequence[Problem], subject: str) -> list[Result]:
    """A scenario file that could not be loaded is a case of its own, never an absence."""
    by_file: dict[str, list[Problem]] = {}
    for problem in problems:
        by_file.setdefault(problem.file, []).append(problem)
    return [
        Result(
            id=f"{_UNLOADABLE}{file}",
            subject=subject,
            status=Status.ERROR,
            title=f"{file} cannot be loaded",
            file=file,
            line=found[0].line,
            message=found[0].message + (f" (and {len(found) - 1} more)" if found[1:] else ""),
            reason="\n\n".join(map(str, found)),
        )
        for file, found in by_file.items()
    ]


def is_unloadable(result: Result) -> bool:
    """Whether a result stands for a file instead of a scenario, which always names a clause."""
    return result.id.startswith(_UNLOADABLE) and not result.clauses


_UNLOADABLE = "unloadable."
