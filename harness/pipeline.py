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
import functools
import os
import select
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, Self

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

    def record(
        self,
        plan: Plan,
        path: Path,
        *,
        timeout_s: float | None,
        meanwhile: Callable[[], None] = ...,
    ) -> list[str]: ...

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
        agents = Agents(self.options, self.switch, log)
        try:
            # What was recorded is judged while the next is being recorded.
            with _Behind() as behind:
                while not (self.switch.thrown or self.cut_short or self.broken):
                    with self._lock:
                        job = next(queue, None)
                    if job is None:
                        return
                    self._record(job, agents, behind)
                    if self.options.fail_fast:
                        behind.catch_up()
        except Interrupted:
            return
        except Exception as fault:  # raised again by record_all, in the thread that can explain it
            self.broken = self.broken or fault
            self.switch.throw()
        finally:
            agents.close()

    def _finish(self, result: Result, shown: Timeline | None) -> None:
        with self._lock:
            self.results[(result.id, result.subject)] = result
            self.watcher.case_finished(result, shown)
            if self.options.fail_fast and result.status.is_unexpected:
                self.cut_short = True

    def _repeats(self, scenario: Scenario) -> int:
        return self.options.repeat if self.options.repeat is not None else scenario.repeat

    def _record(self, job: Job, agents: Agents, behind: _Behind) -> None:
        loaded, target = job.loaded, job.target
        with self._lock:
            self.watcher.case_started(loaded.scenario.id, target.spec)
        facts = facts_for(loaded.scenario, target.facts)
        unmet = unmet_need(loaded.scenario, facts, target.environment)
        blank = blank_result(loaded, target.spec, self.options)
        if unmet is not None:
            must_work = self.options.must_work and not unmet.of_subject
            result = skipped(blank, unmet.reason, unmet.remedy, must_work=must_work)
            behind.add(self._finish, result, None)
            return
        name = self.folder.timeline_name(target.spec, loaded.scenario.id)
        case = _Case(job, facts)
        started = time.monotonic()
        try:
            path = self.folder.timeline_path(name)
            for repeat in range(self._repeats(loaded.scenario)):
                lines = agents.record(job, repeat, path, meanwhile=behind.begin)
                behind.add(case.judge, repeat, lines)
        except RecordingLost as lost:
            agents.give_up(target.backend)
            reason = str(lost)
            blank = dataclasses.replace(
                blank, status=Status.ERROR, message=reason.partition("\n")[0], reason=reason
            )
        elapsed = time.monotonic() - started
        blank = dataclasses.replace(blank, duration_s=elapsed, timeline=name)
        behind.add(self._conclude, blank, case)

    def _conclude(self, blank: Result, case: _Case) -> None:
        result = blank if blank.reason else concluded(blank, case.tally)
        self._finish(result, case.shown)


class Agents:
    """One worker's agents, one for each backend, started when they are first needed."""

    def __init__(self, options: Options, switch: StopSwitch, log: IO[bytes]) -> None:
        self._options = options
        self._switch = switch
        self._log = log
        self._started: dict[int, Agent] = {}

    def record(
        self,
        job: Job,
        repeat: int,
        path: Path,
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Record a job once; the lines are at the end of the file at ``path`` as well.

        ``meanwhile`` is called once, when the agent has begun.

        RecordingLost when the agent is gone, Interrupted when the run was told to stop.
        """
        backend = job.target.backend
        agent = self._started.get(id(backend))
        if agent is None:
            agent = backend.start_agent(stop_fd=self._switch.fd, log=self._log)
            self._started[id(backend)] = agent
        plan = make_plan(job, repeat, self._options)
        return agent.record(plan, path, timeout_s=self._options.timeout_s, meanwhile=meanwhile)

    def give_up(self, backend: Backend) -> None:
        """Close the agent that lost a recording; there will be another one."""
        lost = self._started.pop(id(backend), None)
        if lost is not None:
            lost.close()

    def close(self) -> None:
        """End them all."""
        for agent in self._started.values():
            agent.close()


class _Behind:
    """What one worker does while its agent is recording: judge what was recorded before.

    It is done in another thread, in the order in which it was added, and begun when the worker says
    so: until the agent has something to do, the interpreter is the worker's alone.  What is raised
    there is raised here, by whatever is called next.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._added: list[Callable[[], None]] = []
        self._begun: Future[None] | None = None

    def add(self, what: Callable[..., None], *arguments: Any) -> None:
        self._added.append(functools.partial(what, *arguments))

    def begin(self) -> None:
        """Begin with what was added, once what was begun before is done."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        added, self._added = self._added, []
        if added:
            self._begun = self._pool.submit(_do_all, added)

    def catch_up(self) -> None:
        """Return when everything is done that was added."""
        self.begin()
        self.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        with self._pool:
            self.catch_up()


def _do_all(added: Sequence[Callable[[], None]]) -> None:
    for each in added:
        each()


def first_timeline(lines: Sequence[str]) -> Timeline:
    """The recording whose lines these are; an empty one when there are none."""
    return next(iter(read_timelines(lines)), Timeline([]))


class _Case:
    """One job while it is being recorded and judged.  ``shown`` is what a reader should see."""

    def __init__(self, job: Job, facts: Mapping[str, Any]) -> None:
        self._scenario = job.loaded.scenario
        self._facts = facts
        self.tally = Tally(self._scenario, facts, (job.loaded.file, job.loaded.line))
        self.shown: Timeline | None = None

    def judge(self, repeat: int, lines: Sequence[str]) -> None:
        """Judge one recording, whose lines these are."""
        timeline = first_timeline(lines)
        self.tally.add(judge_recording(self._scenario, timeline, self._facts, repeat=repeat))
        if self.tally.shown_repeat == repeat:
            self.shown = timeline


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
