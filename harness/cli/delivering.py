"""What becomes of the results of a run: reports, the summary, the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from harness.archive import shown_timelines, store_results
from harness.cli.voice import ReaderGone, answer, style_for, tell
from harness.errors import ExitCode, ReportNotWritten, UsageError
from harness.model.timeline import Timeline
from harness.model.verdict import RunRecord, Status
from harness.pipeline import is_unloadable
from harness.reporters import github, html, jsonreport, junit, tap, terminal
from harness.reporters.words import first_of_each_reason
from harness.store import RunFolder, write_output

#: Files of a run that every run writes: name in its folder, and who renders it.
REPORTS = {"junit.xml": junit.render, "report.html": html.render}
#: Reports that are written where the user asks for them: option, and who renders it.
OUTPUTS = {"junit": junit.render, "html": html.render, "json": jsonreport.render, "tap": tap.render}


def refuse_two_outputs(arguments: argparse.Namespace) -> None:
    """Machine output on stdout is nothing but that, so there can be only one."""
    given = [f"--{name}" for name in OUTPUTS if getattr(arguments, name) == "-"]
    given += ["--github"] if arguments.github else []
    if len(given) > 1:
        raise UsageError(f"only one of {', '.join(given)} can go to stdout: give the others a path")


def codes_of(record: RunRecord) -> list[ExitCode]:
    """The exit codes that the results of a run ask for, one for each class."""
    codes = []
    ran = [r for r in record.results if r.status is not Status.SKIP]
    if any(r.status.is_unexpected for r in ran):
        codes.append(ExitCode.UNEXPECTED_RESULTS)
    if any(r.status is Status.INCONCLUSIVE for r in ran):
        codes.append(ExitCode.VERDICT_MISSING)
    if any(r.status is Status.ERROR and not is_unloadable(r) for r in ran):
        codes.append(ExitCode.INCOMPLETE)
    if record.is_interrupted:
        codes.append(ExitCode.INCOMPLETE)
    if not ran and record.results:
        codes.append(ExitCode.NOTHING_RAN)
    return codes


def deliver(
    arguments: argparse.Namespace,
    folder: RunFolder,
    record: RunRecord,
    codes: list[ExitCode],
    *,
    keep: bool = True,
) -> None:
    """Write all reports and tell the summary; a report that cannot be written does not stop it.

    ``keep``: also into the run's own folder.
    """
    timelines = shown_timelines(folder, record)
    written = write_own_reports(folder, record, timelines, codes) if keep else {}
    for name, render_text in OUTPUTS.items():
        target = getattr(arguments, name)
        if target is not None:
            _put(target, render_text(record, timelines), codes)
    if arguments.github:
        _put("-", github.annotations(record), codes)
        summary_file = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary_file:
            _put(summary_file, github.step_summary(record), codes, append=True)
    style = style_for(arguments, sys.stderr)
    shown, _more = first_of_each_reason(record.results)
    for result in shown:
        if result.status not in (Status.PASS, Status.KNOWN, Status.SKIP) or arguments.verbose:
            timeline = timelines.get((result.id, result.subject))
            block = terminal.failure_block(result, timeline, style, contract=record.contract)
            tell(block)
    tell(terminal.summary(record, style, reports=written))


def write_own_reports(
    folder: RunFolder,
    record: RunRecord,
    timelines: Mapping[tuple[str, str], Timeline],
    codes: list[ExitCode],
) -> dict[str, str]:
    """Write results and reports into the run's own folder; where they are, by name."""
    written: dict[str, str] = {}
    try:
        store_results(folder, record)
        for name, render in REPORTS.items():
            written[name] = str(folder.write(name, render(record, timelines)))
    except ReportNotWritten as fault:
        tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    return written


def _put(target: str, text: str, codes: list[ExitCode], *, append: bool = False) -> None:
    """Write one report to a path or, for ``-``, to stdout; where it fails, say so and go on."""
    try:
        if target == "-":
            answer(text)
        else:
            write_output(target, text, append=append)
    except ReaderGone:
        tell("harness: stdout was closed before the report was written")
        codes.append(ReportNotWritten.exit_code)
    except ReportNotWritten as fault:
        tell(f"harness: {fault}")
        codes.append(fault.exit_code)
