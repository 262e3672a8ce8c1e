"""Commands about runs that were recorded before: judge, report, compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from harness.archive import judge_again
from harness.cli.choosing import load
from harness.cli.delivering import codes_of, deliver, refuse_two_outputs
from harness.cli.voice import answer, style_for
from harness.compare import compare
from harness.errors import ExitCode, ScenarioFilesInvalid, worst
from harness.model.change import Direction
from harness.recorded import open_side
from harness.reporters import comparison
from harness.store import RunFolder, write_output


def judge(arguments: argparse.Namespace) -> ExitCode:
    refuse_two_outputs(arguments)
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    current = None
    if arguments.scenarios:
        loaded, problems, _wanted = load(arguments.scenarios)
        if problems:
            raise ScenarioFilesInvalid("\n\n".join(str(problem) for problem in problems))
        current = {each.scenario.id: each for each in loaded.scenarios}
    record = judge_again(folder, scenarios=current)
    codes = codes_of(record)
    # Judged by other rules, it is not what the run found: the run's own reports stay as they are.
    deliver(arguments, folder, record, codes, keep=current is None)
    return worst(codes)


def report(arguments: argparse.Namespace) -> ExitCode:
    refuse_two_outputs(arguments)
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    record = folder.results() or judge_again(folder)
    codes = codes_of(record)
    deliver(arguments, folder, record, codes)
    return worst(codes)


def compare_runs(arguments: argparse.Namespace) -> ExitCode:
    reports = Path(arguments.reports)
    before = open_side(arguments.before, reports)
    after = open_side(arguments.after, reports)
    found = compare(before, after)
    outputs: dict[str, Callable[[], str]] = {
        "junit": lambda: comparison.to_junit(found, after.label, after.subject, after.hostname),
        "html": lambda: comparison.page(found),
        "json": lambda: comparison.to_json(found),
    }
    for name, render in outputs.items():
        target = getattr(arguments, name)
        if target is not None:
            write_output(target, render())
    if arguments.format == "json":
        answer(comparison.to_json(found))
    else:
        answer(comparison.text(found, style_for(arguments, sys.stdout)))
    if found.refusal:
        return ExitCode.VERDICT_MISSING
    regressed = bool(found.of(Direction.REGRESSION))
    if regressed or (arguments.fail_on == "any-change" and found.changes):
        return ExitCode.UNEXPECTED_RESULTS
    return ExitCode.VERDICT_MISSING if found.of(Direction.LOST) else ExitCode.AS_EXPECTED
