"""The ``harness`` command: arguments, printing, exit codes.  The only module that prints or exits.

Machine output goes to stdout and is nothing but that; progress and words for people about a run go
to stderr.  Every command is a function ``_verb(arguments) -> ExitCode``; errors that are the
user's or the environment's are one message, ours are a traceback and exit code 70.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from harness import __version__
from harness.doctor import doctor_lines
from harness.errors import (
    EXIT_CODE_MEANINGS,
    EnvironmentUnfit,
    ExitCode,
    HarnessError,
    Interrupted,
    NothingSelected,
    ReportNotWritten,
    ScenarioFilesInvalid,
    UsageError,
    worst,
)
from harness.explain import explain
from harness.loader import Loaded, LoadedScenario, Problem, json_schema, load_leniently, nearest
from harness.model.verdict import Result, RunRecord, Status
from harness.needs import unmet_need
from harness.pipeline import (
    Job,
    Options,
    Run,
    StopSwitch,
    Target,
    assemble,
    describe_run,
    facts_for,
    judge_again,
    new_run_id,
    shown_timelines,
    snapshot,
    store_results,
    unloadable,
)
from harness.progress import Progress
from harness.reporters import github, html, jsonreport, junit, tap, terminal
from harness.selection import Filters, Selection, select
from harness.store import LATEST, RunFolder, write_output
from harness.subjects import DEFAULT_SUBJECT, LocalBackend, choose_identity, find_targets

#: Files of a run that every run writes: name in its folder, and who renders it.
REPORTS = {"junit.xml": junit.render, "report.html": html.render}
MUST_WORK = "HARNESS_MUST_WORK"


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="harness",
        description="Conformance and test harness for bubblewrap (bwrap) supervision.",
        epilog="exit codes:\n"
        + "\n".join(f"  {code.value:>3}  {text}" for code, text in EXIT_CODE_MEANINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _add_run(verbs)
    listing = _verb(verbs, "list", "list scenarios", _list)
    _add_paths(listing)
    _add_filters(listing)
    _add_format(listing)
    validate = _verb(verbs, "validate", "check scenario files; all problems at once", _validate)
    _add_paths(validate)
    told = _verb(verbs, "explain", "say what a scenario does, expects, and why", _explain)
    told.add_argument("id", help="the scenario's id")
    told.add_argument("paths", nargs="*", metavar="PATH", help="where to look (default scenarios)")
    _add_color(told)
    for name, what, body in (
        ("judge", "judge the recordings of a stored run again", _judge),
        ("report", "write the reports of a stored run again", _report),
    ):
        again = _verb(verbs, name, what, body)
        again.add_argument("run", metavar="RUN", help="a run's folder, its id, or latest")
        if name == "judge":
            again.add_argument(
                "--scenarios",
                action="append",
                metavar="PATH",
                help="judge by the expectations in PATH instead of those of the time",
            )
        _add_outputs(again)
    doctor = _verb(
        verbs, "doctor", "say what this machine allows, and which layer refuses", _doctor
    )
    doctor.add_argument("--user", help="the user that sandboxes would run as")
    _add_format(doctor)
    _add_color(doctor)
    _verb(verbs, "schema", "print the JSON Schema of scenario files", _schema)
    return parser


def _verb(verbs: Any, name: str, what: str, body: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what + ".")
    made.set_defaults(body=body)
    return made


def _add_run(verbs: Any) -> None:
    run = _verb(verbs, "run", "record, judge and report scenarios", _run)
    _add_paths(run)
    _add_filters(run)
    _add_outputs(run)
    more = run.add_argument
    more(
        "--subject", action="append", metavar="SPEC", help="bundled, host or path:FILE; repeatable"
    )
    more("--user", help="the user that supervisors run as (default: an unprivileged one)")
    more("-j", "--jobs", type=_positive, default=1, metavar="N", help="so many at once")
    more("-x", "--fail-fast", action="store_true", help="stop at the first unexpected result")
    more("--repeat", type=_positive, metavar="N", help="record each scenario N times")
    more("--timeout", type=_seconds, metavar="SECONDS", help="the limit for one recording")
    more("--timeout-multiplier", type=_factor, default=1.0, metavar="X", help="stretch deadlines")
    more("--shuffle", action="store_true", help="run in random order")
    more("--seed", type=int, metavar="N", help="the seed of --shuffle")
    more("--allow-empty", action="store_true", help="an empty selection is no error")
    more("--require-env", action="store_true", help="what cannot run here ends the run (exit 4)")
    more("-n", "--dry-run", action="store_true", help="say what would run, and run nothing")


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="scenario files or folders; FILE::ID for one"
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    more = parser.add_argument
    more("-k", dest="pattern", metavar="PATTERN", help="ids that contain (or, with *, match) it")
    more(
        "-t", "--tag", action="append", default=[], metavar="TAG", help="with this tag; repeatable"
    )
    more("--exclude-tag", action="append", default=[], metavar="TAG", help="without this tag")
    more("--shard", metavar="I/N", help="the I-th of N parts")
    more("--rerun-failed", action="store_true", help="what was not as expected in the last run")
    _add_reports(parser)


def _add_reports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reports", default="reports", metavar="DIR", help="where runs are kept (default reports)"
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    for name in ("junit", "html", "json", "tap"):
        parser.add_argument(f"--{name}", metavar="PATH", help=f"write {name.upper()}; - for stdout")
    parser.add_argument("--github", action="store_true", help="annotations for GitHub Actions")
    if not any("--reports" in action.option_strings for action in parser._actions):
        _add_reports(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="details of every case")
    parser.add_argument("-q", "--quiet", action="store_true", help="only what was not as expected")
    _add_color(parser)


def _add_color(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a number from 1 on")
    return value


def _seconds(text: str) -> float:
    value = float(text.removesuffix("s"))
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("expected a number of seconds above 0")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError("expected a factor above 0, at most 1000")
    return value


# --- saying things -------------------------------------------------------------------------------


def _tell(text: str) -> None:
    """Words for people: to stderr."""
    try:
        print(text, file=sys.stderr, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)


def _print(text: str) -> None:
    """What a command is asked for: to stdout, in UTF-8 whatever the locale says."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.flush()


def _style(arguments: argparse.Namespace, stream: Any) -> terminal.Style:
    color = terminal.wants_color(arguments.color, os.environ, stream.isatty())
    unicode = (getattr(stream, "encoding", "") or "").lower().replace("-", "") == "utf8"
    return terminal.Style(color=color, unicode=unicode)


# --- run -----------------------------------------------------------------------------------------


def _load(paths: Sequence[str]) -> tuple[Loaded, tuple[Problem, ...], set[str]]:
    """Load the paths; ``FILE::ID`` loads the file and asks for that id."""
    wanted = {path.partition("::")[2] for path in paths if "::" in path}
    files = list(dict.fromkeys(Path(path.partition("::")[0]) for path in paths))
    loaded, problems = load_leniently(files)
    ids = [each.scenario.id for each in loaded.scenarios]
    for missing in sorted(wanted - set(ids)):
        close = nearest(missing, ids)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise UsageError(f"there is no scenario {missing} in what was given{hint}")
    return loaded, problems, wanted


def _filters(arguments: argparse.Namespace, wanted: set[str]) -> Filters:
    failed: frozenset[str] | None = None
    if arguments.rerun_failed:
        reports = Path(arguments.reports)
        last = RunFolder.open(Path(LATEST), reports).results()
        if last is None:
            raise UsageError("the last run has no results yet: nothing to rerun")
        settled = (Status.PASS, Status.KNOWN, Status.SKIP)
        failed = frozenset(r.id for r in last.results if r.status not in settled)
    return Filters(
        ids=frozenset(wanted) if wanted else None,
        pattern=arguments.pattern,
        tags=tuple(arguments.tag),
        without_tags=tuple(arguments.exclude_tag),
        rerun=failed,
        shard=arguments.shard,
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
    loaded, problems, wanted = _load(arguments.paths)
    seed = arguments.seed if arguments.seed is not None else int(time.time() * 1000) % (1 << 31)
    chosen = select(
        loaded.scenarios, _filters(arguments, wanted), seed=seed if arguments.shuffle else None
    )
    _tell_hidden(chosen)
    if not chosen.scenarios and not problems and not arguments.allow_empty:
        raise NothingSelected("nothing was selected: loosen the filters, or give --allow-empty")
    specs = list(dict.fromkeys(arguments.subject or [DEFAULT_SUBJECT]))
    if arguments.dry_run:
        for each in chosen.scenarios:
            _print(f"{each.scenario.id}  {each.file}:{each.line}\n")
        _tell(f"{len(chosen.scenarios)} scenario(s) on {', '.join(specs)} would run")
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
    return _record(arguments, options, chosen, loaded, problems, specs)


def _tell_hidden(chosen: Selection) -> None:
    for what, count in chosen.hidden.items():
        if count:
            _tell(f"{what} hid {count} scenario(s)")


def _record(
    arguments: argparse.Namespace,
    options: Options,
    chosen: Selection,
    loaded: Loaded,
    problems: Sequence[Problem],
    specs: list[str],
) -> ExitCode:
    identity = choose_identity(arguments.user)
    tools = sorted({tool for each in chosen.scenarios for tool in each.scenario.needs.tools})
    switch = StopSwitch()
    try:
        with _stopped_by_signals(switch), tempfile.TemporaryFile() as log:
            try:
                targets = list(
                    find_targets(specs, identity, tools=tools, stop_fd=switch.fd, log=log)
                )
            except Interrupted:
                return ExitCode.INTERRUPTED
            jobs = [Job(each, target) for target in targets for each in chosen.scenarios]
            if arguments.require_env:
                _refuse_skips(jobs)
            return _record_jobs(arguments, options, chosen, loaded, problems, jobs, targets, switch)
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
    now = datetime.datetime.now(datetime.UTC)
    folder = RunFolder.create(Path(arguments.reports), new_run_id(now))
    meta = describe_run(folder.path.name, options, targets, loaded.clauses, chosen.hidden, now)
    folder.write_json("run.json", meta)
    folder.write_json("scenarios.json", snapshot(chosen.scenarios))
    folder.point_latest()
    codes: list[ExitCode] = [ExitCode.SCENARIOS_INVALID] if problems else []
    style = _style(arguments, sys.stderr)
    progress = Progress(len(jobs), style, arguments.quiet)
    run = Run(folder, options, progress, switch)
    started = time.monotonic()
    interrupted = False
    try:
        with progress:
            run.record_all(jobs)
        interrupted = switch.thrown
    except ReportNotWritten as fault:
        # What was judged is still in memory: it is told on the terminal at least.
        _tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    if interrupted:
        codes.append(ExitCode.INTERRUPTED)
    order = [(job.loaded.scenario.id, job.target.spec) for job in jobs]
    record = assemble(
        meta,
        [
            *(unloadable(each, target.spec) for target in targets for each in problems),
            *(run.results[key] for key in order if key in run.results),
        ],
        duration_s=time.monotonic() - started,
        complete=len(run.results) == len(jobs),
    )
    codes += codes_of(record)
    _deliver(arguments, folder, record, codes)
    return worst(codes)


def _refuse_skips(jobs: Sequence[Job]) -> None:
    for job in jobs:
        facts = facts_for(job.loaded.scenario, job.target.facts)
        unmet = unmet_need(job.loaded.scenario, facts, job.target.environment)
        if unmet is not None:
            raise EnvironmentUnfit(
                f"{job.loaded.scenario.id} cannot run on {job.target.spec}: {unmet[0]}: {unmet[1]}"
            )


@contextmanager
def _stopped_by_signals(switch: StopSwitch) -> Iterator[None]:
    """^C and SIGTERM stop the run in good order; a second one is no worse than the first."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        switch.throw()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def codes_of(record: RunRecord) -> list[ExitCode]:
    """The exit codes that the results of a run ask for, one for each class."""
    codes = []
    ran = [r for r in record.results if r.status is not Status.SKIP]
    if any(r.status.is_unexpected for r in ran):
        codes.append(ExitCode.UNEXPECTED_RESULTS)
    if any(r.status is Status.INCONCLUSIVE for r in ran):
        codes.append(ExitCode.VERDICT_MISSING)
    if any(r.status is Status.ERROR and not r.id.startswith("unloadable.") for r in ran):
        codes.append(ExitCode.INCOMPLETE)
    if not ran and record.results:
        codes.append(ExitCode.NOTHING_RAN)
    return codes


def _deliver(
    arguments: argparse.Namespace, folder: RunFolder, record: RunRecord, codes: list[ExitCode]
) -> None:
    """Write all reports and tell the summary; a report that cannot be written does not stop it."""
    timelines = shown_timelines(folder, record)
    written: dict[str, str] = {}
    try:
        store_results(folder, record)
        for name, render in REPORTS.items():
            written[name] = str(folder.write(name, render(record, timelines)))
    except ReportNotWritten as fault:
        _tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    for name, render_text in (
        ("junit", junit.render),
        ("html", html.render),
        ("json", jsonreport.render),
        ("tap", tap.render),
    ):
        target = getattr(arguments, name)
        if target == "-":
            _print(render_text(record, timelines))
        elif target is not None:
            write_output(target, render_text(record, timelines))
    if arguments.github:
        _print(github.annotations(record))
        summary_file = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary_file:
            with open(summary_file, "a", encoding="utf-8") as file:
                file.write(github.step_summary(record))
    style = _style(arguments, sys.stderr)
    for result in record.results:
        if result.status not in (Status.PASS, Status.KNOWN, Status.SKIP) or arguments.verbose:
            timeline = timelines.get((result.id, result.subject))
            block = terminal.failure_block(result, timeline, style, contract=record.contract)
            _tell(block)
    _tell(terminal.summary(record, style, reports=written))


# --- the other commands --------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> ExitCode:
    loaded, problems, wanted = _load(arguments.paths)
    if problems:
        raise ScenarioFilesInvalid("\n\n".join(str(problem) for problem in problems))
    chosen = select(loaded.scenarios, _filters(arguments, wanted), seed=None)
    _tell_hidden(chosen)
    if arguments.format == "json":
        _print(json.dumps([_listed(each) for each in chosen.scenarios], indent=1) + "\n")
    else:
        width = max((len(each.scenario.id) for each in chosen.scenarios), default=0)
        for each in chosen.scenarios:
            _print(f"{each.scenario.id:<{width}}  {each.scenario.title}\n")
    return ExitCode.AS_EXPECTED if chosen.scenarios else ExitCode.NOTHING_RAN


def _listed(each: LoadedScenario) -> dict[str, Any]:
    scenario = each.scenario
    return {
        "id": scenario.id,
        "title": scenario.title,
        "tags": list(scenario.tags),
        "clauses": list(scenario.clauses),
        "file": each.file,
        "line": each.line,
        "needs": scenario.needs.model_dump(mode="json", exclude_defaults=True),
        "repeat": scenario.repeat,
    }


def _validate(arguments: argparse.Namespace) -> ExitCode:
    loaded, problems, _wanted = _load(arguments.paths)
    for problem in problems:
        _print(f"{problem}\n\n")
    files = len({each.file for each in loaded.scenarios})
    _tell(f"{len(loaded.scenarios)} scenario(s) in {files} file(s), {len(problems)} problem(s)")
    return ExitCode.SCENARIOS_INVALID if problems else ExitCode.AS_EXPECTED


def _explain(arguments: argparse.Namespace) -> ExitCode:
    loaded, _problems, _wanted = _load(arguments.paths or ["scenarios"])
    for each in loaded.scenarios:
        if each.scenario.id == arguments.id:
            _print(explain(each, loaded.clauses))
            return ExitCode.AS_EXPECTED
    close = nearest(arguments.id, [each.scenario.id for each in loaded.scenarios])
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise UsageError(f"there is no scenario {arguments.id}{hint}")


def _judge(arguments: argparse.Namespace) -> ExitCode:
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    current = None
    if arguments.scenarios:
        loaded, problems, _wanted = _load(arguments.scenarios)
        if problems:
            raise ScenarioFilesInvalid("\n\n".join(str(problem) for problem in problems))
        current = {each.scenario.id: each for each in loaded.scenarios}
    record = judge_again(folder, scenarios=current)
    codes = codes_of(record)
    _deliver(arguments, folder, record, codes)
    return worst(codes)


def _report(arguments: argparse.Namespace) -> ExitCode:
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    record = folder.results() or judge_again(folder)
    codes = [] if record.complete else [ExitCode.INCOMPLETE]
    _deliver(arguments, folder, record, codes)
    return worst(codes)


def _doctor(arguments: argparse.Namespace) -> ExitCode:
    identity = choose_identity(arguments.user)
    read_end, write_end = os.pipe()
    try:
        with tempfile.TemporaryFile() as log:
            agent = LocalBackend().start_agent(stop_fd=read_end, log=log)
            try:
                found = agent.ask({"do": "facts", "uid": identity.uid})
            finally:
                agent.close()
    finally:
        os.close(read_end)
        os.close(write_end)
    facts = found["facts"]
    if arguments.format == "json":
        _print(json.dumps({"uid": identity.uid, "facts": list(facts.values())}, indent=1) + "\n")
    else:
        _print(doctor_lines(facts, identity.uid, _style(arguments, sys.stdout)))
    fit = all(facts[name]["ok"] for name in ("user-namespaces", "mount-namespace") if name in facts)
    return ExitCode.AS_EXPECTED if fit else ExitCode.ENVIRONMENT_UNFIT


def _schema(_arguments: argparse.Namespace) -> ExitCode:
    _print(json.dumps(json_schema(), indent=2) + "\n")
    return ExitCode.AS_EXPECTED


# --- the program ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.  Raises SystemExit only for --help and --version."""
    try:
        parsed = build_parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ExitCode.USAGE)
    try:
        return int(parsed.body(parsed))
    except HarnessError as fault:
        _tell(f"harness: {fault}")
        return int(fault.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our stdout has gone: nobody is left to tell anything.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OUR_FAULT)
    except Exception:
        _tell(traceback.format_exc())
        _tell("harness: this is a fault of the harness itself; please report the lines above")
        return int(ExitCode.OUR_FAULT)


def run_as_program() -> NoReturn:
    """The console script."""
    sys.exit(main())


__all__ = ["Result", "build_parser", "codes_of", "main", "run_as_program"]
