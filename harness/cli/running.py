"""``harness run``: choose, find the subjects, record, and deliver what came of it."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from harness.archive import assemble, begin_run
from harness.backends.local import NO_ROOM_TO_WORK
from harness.cli.choosing import filters_of, load, tell_hidden
from harness.cli.delivering import codes_of, deliver, refuse_two_outputs
from harness.cli.voice import answer, style_for, tell
from harness.errors import (
    EnvironmentUnfit,
    ExitCode,
    HarnessError,
    Interrupted,
    NothingSelected,
    ReportNotWritten,
    worst,
)
from harness.loader import Loaded, Problem
from harness.model.scenario import Scenario
from harness.needs import unmet_need
from harness.pipeline import Job, Options, Run, StopSwitch, Target, facts_for, unloadable
from harness.progress import Progress
from harness.selection import Selection, select
from harness.subjects import DEFAULT_SUBJECT, check_spec, open_targets

MUST_WORK = "HARNESS_MUST_WORK"


def run(arguments: argparse.Namespace) -> ExitCode:
    refuse_two_outputs(arguments)
    loaded, problems, wanted = load(arguments.paths)
    seed = arguments.seed if arguments.seed is not None else int(time.time() * 1000) % (1 << 31)
    chosen = select(
        loaded.scenarios, filters_of(arguments, wanted), seed=seed if arguments.shuffle else None
    )
    tell_hidden(chosen)
    if not chosen.scenarios and not problems and not arguments.allow_empty:
        raise NothingSelected("nothing was selected: loosen the filters, or give --allow-empty")
    specs = list(dict.fromkeys(arguments.subject or [DEFAULT_SUBJECT]))
    for spec in specs:
        check_spec(spec)
    if arguments.dry_run:
        for each in chosen.scenarios:
            answer(f"{each.scenario.id}  {each.file}:{each.line}\n")
        tell(f"{len(chosen.scenarios)} scenario(s) on {', '.join(specs)} would run")
        return ExitCode.SCENARIOS_INVALID if problems else ExitCode.AS_EXPECTED
    options = Options(
        jobs=arguments.jobs,
        fail_fast=arguments.fail_fast,
        repeat=arguments.repeat,
        timeout_s=arguments.timeout,
        timeout_multiplier=arguments.timeout_multiplier,
        seed=seed,
        must_work=os.environ.get(MUST_WORK, "") not in ("", "0"),
        command=shlex.join(["harness", *sys.argv[1:]]),
    )
    try:
        return _record(arguments, options, chosen, loaded, problems, specs)
    except HarnessError as fault:
        if not problems:
            raise
        # Two things are wrong, and the run that would have told of the files never came to be.
        tell("\n\n".join(str(problem) for problem in problems) + "\n")
        tell(f"harness: {fault}")
        return worst([fault.exit_code, ExitCode.SCENARIOS_INVALID])


def _record(
    arguments: argparse.Namespace,
    options: Options,
    chosen: Selection,
    loaded: Loaded,
    problems: Sequence[Problem],
    specs: list[str],
) -> ExitCode:
    with ready_to_run(specs, arguments, [each.scenario for each in chosen.scenarios]) as (
        targets,
        switch,
    ):
        jobs = [Job(each, target) for target in targets for each in chosen.scenarios]
        if arguments.require_env:
            _refuse_skips(jobs)
        return _record_jobs(arguments, options, chosen, loaded, problems, jobs, targets, switch)


@contextmanager
def ready_to_run(
    specs: Sequence[str], arguments: argparse.Namespace, scenarios: Sequence[Scenario]
) -> Iterator[tuple[list[Target], StopSwitch]]:
    """The subjects, found and identified, and the switch that ^C and SIGTERM throw meanwhile.

    Interrupted when it was thrown before all were found.
    """
    switch = StopSwitch()
    try:
        with _stopped_by_signals(switch), temporary_log() as log, ExitStack() as stack:
            try:
                targets = open_targets(
                    specs,
                    arguments.user,
                    tools=sorted({tool for each in scenarios for tool in each.needs.tools}),
                    as_root=any(each.user == "root" for each in scenarios),
                    privileged=arguments.privileged,
                    tell=tell,
                    stop_fd=switch.fd,
                    log=log,
                    stack=stack,
                )
            except Interrupted:
                raise Interrupted("interrupted before anything ran") from None
            yield targets, switch
    finally:
        switch.close()


def _record_jobs(
    arguments: argparse.Namespace,
    options: Options,
    chosen: Selection,
    loaded: Loaded,
    problems: Sequence[Problem],
    jobs: list[Job],
    targets: list[Target],
    switch: StopSwitch,
) -> ExitCode:
    folder, meta = begin_run(
        Path(arguments.reports), options, targets, chosen.scenarios, loaded.clauses, chosen.hidden
    )
    codes: list[ExitCode] = [ExitCode.SCENARIOS_INVALID] if problems else []
    style = style_for(arguments, sys.stderr)
    progress = Progress(len(jobs), style, arguments.quiet)
    run = Run(folder, options, progress, switch)
    started = time.monotonic()
    interrupted = False
    try:
        with progress:
            run.record_all(jobs)
        interrupted = switch.thrown
    except (ReportNotWritten, EnvironmentUnfit) as fault:
        # What was judged is still in memory: it is told on the terminal at least.
        tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    if interrupted:
        tell(f"harness: interrupted: {len(run.results)} of {len(jobs)} case(s) were judged")
        codes.append(ExitCode.INTERRUPTED)
    order = [(job.loaded.scenario.id, job.target.spec) for job in jobs]
    record = assemble(
        meta,
        [
            *(each for target in targets for each in unloadable(problems, target.spec)),
            *(run.results[key] for key in order if key in run.results),
        ],
        duration_s=time.monotonic() - started,
        complete=len(run.results) == len(jobs),
        cut_short=run.cut_short and not interrupted,
    )
    codes += codes_of(record)
    if interrupted:
        deliver(arguments, folder, record, codes)  # the one who asked for the end gets it told
    else:
        with _stopped_at_once(f"what was recorded is kept: harness report {folder.path}"):
            deliver(arguments, folder, record, codes)
    return worst(codes)


def temporary_log() -> IO[bytes]:
    """Where agents may say what went wrong before the run has a folder."""
    try:
        return tempfile.TemporaryFile()
    except OSError as fault:
        raise EnvironmentUnfit(f"no temporary file: {fault.strerror}; {NO_ROOM_TO_WORK}") from fault


def _refuse_skips(jobs: Sequence[Job]) -> None:
    for job in jobs:
        facts = facts_for(job.loaded.scenario, job.target.facts)
        unmet = unmet_need(job.loaded.scenario, facts, job.target.environment)
        if unmet is not None and not unmet.of_subject:
            raise EnvironmentUnfit(
                f"{job.loaded.scenario.id} cannot run on {job.target.spec}: "
                f"{unmet.reason}: {unmet.remedy}"
            )


@contextmanager
def _stopped_at_once(advice: str) -> Iterator[None]:
    """^C and SIGTERM end what can be done again at any time: writing reports of a large run."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted(f"interrupted while reports were written; {advice}")

    with _handled(handler):
        yield


@contextmanager
def _stopped_by_signals(switch: StopSwitch) -> Iterator[None]:
    """^C and SIGTERM stop the run in good order; a second one is no worse than the first.

    The handler alone would do for one signal.  Of two that come at once another thread may take
    both from the queue that they share, and the main thread, which alone runs handlers, sleeps on
    (measured: in 3 of 49 tries with SIGTERM and SIGHUP on two busy cores).  So the interpreter
    throws the switch itself, in whichever thread.
    """

    def handler(_number: int, _frame: FrameType | None) -> None:
        switch.throw()

    with _handled(handler):
        before = signal.set_wakeup_fd(switch.write_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # What the caller has us ignore stays ignored: nohup(1) means it, a shell's background too.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
