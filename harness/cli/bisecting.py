"""``harness bisect``: between which two of an ordered list of subjects a verdict flips."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.archive import begin_run, judge_again, shown_timelines
from harness.bisect import bisect
from harness.cli.choosing import find
from harness.cli.delivering import write_own_reports
from harness.cli.running import ready_to_run
from harness.cli.voice import answer, style_for, tell
from harness.errors import EnvironmentUnfit, ExitCode, Interrupted, UsageError, worst
from harness.loader import Loaded, LoadedScenario
from harness.measuring import Measuring
from harness.model.bisection import Bisection
from harness.needs import unmet_need
from harness.pipeline import Agents, Job, Options, StopSwitch, Target, facts_for
from harness.reporters import bisection
from harness.store import RunFolder
from harness.subjects import check_spec


def bisect_subjects(arguments: argparse.Namespace) -> ExitCode:
    loaded, chosen = find(arguments.id, arguments.paths)
    specs = list(dict.fromkeys(arguments.subject or []))
    for spec in specs:
        check_spec(spec)
    if len(specs) < 2:
        raise UsageError("name at least two subjects, in order: --subject A --subject B")
    with ready_to_run(specs, arguments, [chosen.scenario]) as (targets, switch):
        fit = [target for target in targets if _is_fit(chosen, target)]
        if len(fit) < 2:
            raise EnvironmentUnfit(f"{arguments.id} can run on fewer than two of the subjects")
        return _bisect(arguments, loaded, chosen, fit, switch)


def _is_fit(chosen: LoadedScenario, target: Target) -> bool:
    facts = facts_for(chosen.scenario, target.facts)
    unmet = unmet_need(chosen.scenario, facts, target.environment)
    if unmet is not None:
        tell(f"{target.spec} is left out: {unmet.reason}: {unmet.remedy}")
    return unmet is None


def _bisect(
    arguments: argparse.Namespace,
    loaded: Loaded,
    chosen: LoadedScenario,
    targets: list[Target],
    switch: StopSwitch,
) -> ExitCode:
    options = Options(
        timeout_s=arguments.timeout,
        timeout_multiplier=arguments.timeout_multiplier,
        command=shlex.join(["harness", *sys.argv[1:]]),
    )
    clauses = {name: loaded.clauses[name] for name in chosen.scenario.clauses}
    folder, _meta = begin_run(Path(arguments.reports), options, targets, [chosen], clauses)
    subjects = [target.subject for target in targets]
    codes: list[ExitCode] = []
    try:
        found = _record(arguments, folder, options, switch, chosen, targets)
    except Interrupted:
        raise Interrupted(f"interrupted; what was recorded is in {folder.path}") from None
    record = dataclasses.replace(judge_again(folder), complete=True)
    write_own_reports(folder, record, shown_timelines(folder, record), codes)
    if arguments.format == "json":
        answer(bisection.to_json(found, arguments.id, subjects))
    else:
        answer(bisection.text(found, arguments.id, subjects, style_for(arguments, sys.stdout)))
    tell(f"recordings  {folder.path}")
    codes.append(
        ExitCode.VERDICT_MISSING if found.trouble or not found.rule else ExitCode.AS_EXPECTED
    )
    return worst(codes)


def _record(
    arguments: argparse.Namespace,
    folder: RunFolder,
    options: Options,
    switch: StopSwitch,
    chosen: LoadedScenario,
    targets: Sequence[Target],
) -> Bisection:
    with folder.agent_log() as log:
        agents = Agents(options, switch, log)
        measuring = Measuring(folder, agents)

        def measure(place: int, times: int) -> Sequence[frozenset[str] | None]:
            failed = measuring.measure(Job(chosen, targets[place]), times)
            bad = sum(1 for each in failed if each)
            tell(f"{targets[place].spec}: {bad} of {times} recording(s) failed")
            return failed

        try:
            return bisect(
                len(targets),
                measure,
                error_rate=arguments.error_rate,
                most=arguments.max_repeats,
            )
        finally:
            agents.close()
