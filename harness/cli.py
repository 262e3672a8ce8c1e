"""The ``harness`` command: arguments, printing, exit codes.  The only module that prints or exits.

Machine output goes to stdout and is nothing but that; progress and words for people about a run go
to stderr.  Every command is a function ``_verb(arguments) -> ExitCode``; errors that are the
user's or the environment's are one message, ours are a traceback and exit code 70.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from harness import __version__
from harness.backends.local import NO_ROOM_TO_WORK
from harness.compare import compare
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
from harness.model.change import Direction
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
    is_unloadable,
    judge_again,
    new_run_id,
    shown_timelines,
    snapshot,
    store_results,
    unloadable,
)
from harness.progress import Progress, tell_line
from harness.recorded import open_side
from harness.reporters import comparison, github, html, jsonreport, junit, tap, terminal
from harness.selection import Filters, Selection, select
from harness.store import LATEST, RunFolder, write_output
from harness.subjects import (
    DEFAULT_SUBJECT,
    LocalBackend,
    check_spec,
    choose_identity,
    open_targets,
)

#: Files of a run that every run writes: name in its folder, and who renders it.
REPORTS = {"junit.xml": junit.render, "report.html": html.render}
#: Reports that are written where the user asks for them: option, and who renders it.
OUTPUTS = {"junit": junit.render, "html": html.render, "json": jsonreport.render, "tap": tap.render}
MUST_WORK = "HARNESS_MUST_WORK"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line instead of after all options there are."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"harness: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
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
    _add_compare(verbs)
    doctor = _verb(
        verbs, "doctor", "say what this machine allows, and which layer refuses", _doctor
    )
    doctor.add_argument("--user", help="the user that sandboxes would run as")
    _add_format(doctor)
    _add_color(doctor)
    _add_images(verbs)
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
        "--subject",
        action="append",
        metavar="SPEC",
        help="bundled, host, path:FILE or image:NAME; repeatable",
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


def _add_compare(verbs: Any) -> None:
    compared = _verb(verbs, "compare", "say what changed between two recorded runs", _compare)
    for name, which in (("before", "the earlier"), ("after", "the later")):
        compared.add_argument(
            name, metavar="RUN[@SUBJECT]", help=f"{which} run: its folder, its id, or latest"
        )
    compared.add_argument(
        "--fail-on",
        choices=("regression", "any-change"),
        default="regression",
        help="what makes the exit code 1",
    )
    for name in ("junit", "html", "json"):
        compared.add_argument(f"--{name}", metavar="PATH", help=f"write {name.upper()}")
    _add_reports(compared)
    _add_format(compared)
    _add_color(compared)


def _add_images(verbs: Any) -> None:
    images = verbs.add_parser("images", help="build and list the images of image: subjects")
    ways = images.add_subparsers(dest="images_verb", required=True, metavar="COMMAND")
    build = _verb(ways, "build", "build images, each with its bwrap", _images_build)
    build.add_argument("names", nargs="*", metavar="NAME", help="as in containers/images")
    build.add_argument("--all", action="store_true", help="all that can be built this way")
    build.add_argument(
        "--from",
        dest="source",
        choices=("auto", "registry", "bootstrap"),
        default="auto",
        help="a registry's image, or mmdebstrap; auto tries the first, then the second",
    )
    build.add_argument("--cache", metavar="DIR", help="where bootstrapped root folders are kept")
    build.add_argument("--mirror", default="", metavar="URL", help="where mmdebstrap gets packages")
    listing = _verb(ways, "list", "say which images are built, stale or missing", _images_list)
    _add_format(listing)
    for each in (build, listing):
        each.add_argument("--containers", metavar="DIR", help="where the definitions are")


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
    value = _number(text, int)
    if not 1 <= value <= 100_000:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 100000, got {text}")
    return int(value)


def _seconds(text: str) -> float:
    value = _number(text.removesuffix("s"), float)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text}")
    return value


def _factor(text: str) -> float:
    value = _number(text, float)
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"expected a factor above 0, at most 1000, got {text}")
    return value


def _number(text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


# --- saying things -------------------------------------------------------------------------------


class _ReaderGone(Exception):
    """Whoever read our stdout has left, as ``head`` does when it has seen enough."""


def _tell(text: str) -> None:
    """Words for people: to stderr."""
    tell_line(text)


def _print(text: str) -> None:
    """What a command is asked for: to stdout, in UTF-8 whatever the locale says.

    _ReaderGone when nobody reads it any more; ReportNotWritten when it cannot be written.
    """
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except OSError as fault:
        # What is left in the buffer would fail once more when the interpreter ends.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(fault, BrokenPipeError):
            raise _ReaderGone from None
        raise ReportNotWritten(
            f"cannot write to stdout: {fault.strerror}; make room, or let it go elsewhere"
        ) from fault


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
    for missing in sorted(wanted - {each.scenario.id for each in loaded.scenarios}):
        raise _no_such(missing, loaded, problems)
    return loaded, problems, wanted


def _no_such(missing: str, loaded: Loaded, problems: Sequence[Problem]) -> HarnessError:
    """Why there is no scenario of that id: a typing error, or a file that cannot be loaded."""
    close = nearest(missing, [each.scenario.id for each in loaded.scenarios])
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    text = f"there is no scenario {missing} in what was given{hint}"
    if not problems:
        return UsageError(text)
    told = "\n\n".join(str(problem) for problem in problems)
    return ScenarioFilesInvalid(f"{text}; it may be in a file that cannot be loaded:\n\n{told}")


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
    _refuse_two_outputs(arguments)
    loaded, problems, wanted = _load(arguments.paths)
    seed = arguments.seed if arguments.seed is not None else int(time.time() * 1000) % (1 << 31)
    chosen = select(
        loaded.scenarios, _filters(arguments, wanted), seed=seed if arguments.shuffle else None
    )
    _tell_hidden(chosen)
    if not chosen.scenarios and not problems and not arguments.allow_empty:
        raise NothingSelected("nothing was selected: loosen the filters, or give --allow-empty")
    specs = list(dict.fromkeys(arguments.subject or [DEFAULT_SUBJECT]))
    for spec in specs:
        check_spec(spec)
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
    try:
        return _record(arguments, options, chosen, loaded, problems, specs)
    except HarnessError as fault:
        if not problems:
            raise
        # Two things are wrong, and the run that would have told of the files never came to be.
        _tell("\n\n".join(str(problem) for problem in problems) + "\n")
        _tell(f"harness: {fault}")
        return worst([fault.exit_code, ExitCode.SCENARIOS_INVALID])


def _refuse_two_outputs(arguments: argparse.Namespace) -> None:
    """Machine output on stdout is nothing but that, so there can be only one."""
    given = [f"--{name}" for name in OUTPUTS if getattr(arguments, name) == "-"]
    given += ["--github"] if arguments.github else []
    if len(given) > 1:
        raise UsageError(f"only one of {', '.join(given)} can go to stdout: give the others a path")


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
    tools = sorted({tool for each in chosen.scenarios for tool in each.scenario.needs.tools})
    switch = StopSwitch()
    try:
        with _stopped_by_signals(switch), _temporary_log() as log, ExitStack() as stack:
            try:
                targets = open_targets(
                    specs,
                    arguments.user,
                    tools=tools,
                    as_root=any(each.scenario.user == "root" for each in chosen.scenarios),
                    tell=_tell,
                    stop_fd=switch.fd,
                    log=log,
                    stack=stack,
                )
            except Interrupted:
                _tell("harness: interrupted before anything ran")
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
    except (ReportNotWritten, EnvironmentUnfit) as fault:
        # What was judged is still in memory: it is told on the terminal at least.
        _tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    if interrupted:
        _tell(f"harness: interrupted: {len(run.results)} of {len(jobs)} case(s) were judged")
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
    )
    codes += codes_of(record)
    _deliver(arguments, folder, record, codes)
    return worst(codes)


def _temporary_log() -> IO[bytes]:
    """Where agents may say what went wrong before the run has a folder."""
    try:
        return tempfile.TemporaryFile()
    except OSError as fault:
        raise EnvironmentUnfit(f"no temporary file: {fault.strerror}; {NO_ROOM_TO_WORK}") from fault


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
    if any(r.status is Status.ERROR and not is_unloadable(r) for r in ran):
        codes.append(ExitCode.INCOMPLETE)
    if not ran and record.results:
        codes.append(ExitCode.NOTHING_RAN)
    return codes


def _deliver(
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
    written: dict[str, str] = {}
    try:
        if keep:
            store_results(folder, record)
            for name, render in REPORTS.items():
                written[name] = str(folder.write(name, render(record, timelines)))
    except ReportNotWritten as fault:
        _tell(f"harness: {fault}")
        codes.append(ExitCode.INCOMPLETE)
    for name, render_text in OUTPUTS.items():
        target = getattr(arguments, name)
        if target is not None:
            _put(target, render_text(record, timelines), codes)
    if arguments.github:
        _put("-", github.annotations(record), codes)
        summary_file = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary_file:
            _put(summary_file, github.step_summary(record), codes, append=True)
    style = _style(arguments, sys.stderr)
    for result in record.results:
        if result.status not in (Status.PASS, Status.KNOWN, Status.SKIP) or arguments.verbose:
            timeline = timelines.get((result.id, result.subject))
            block = terminal.failure_block(result, timeline, style, contract=record.contract)
            _tell(block)
    _tell(terminal.summary(record, style, reports=written))


def _put(target: str, text: str, codes: list[ExitCode], *, append: bool = False) -> None:
    """Write one report to a path or, for ``-``, to stdout; where it fails, say so and go on."""
    try:
        if target == "-":
            _print(text)
        else:
            write_output(target, text, append=append)
    except _ReaderGone:
        _tell("harness: stdout was closed before the report was written")
        codes.append(ReportNotWritten.exit_code)
    except ReportNotWritten as fault:
        _tell(f"harness: {fault}")
        codes.append(fault.exit_code)


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
    if not chosen.scenarios:
        raise NothingSelected("nothing was selected: loosen the filters")
    return ExitCode.AS_EXPECTED


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
    loaded, problems, _wanted = _load(arguments.paths or ["scenarios"])
    for each in loaded.scenarios:
        if each.scenario.id == arguments.id:
            _print(explain(each, loaded.clauses))
            return ExitCode.AS_EXPECTED
    raise _no_such(arguments.id, loaded, problems)


def _judge(arguments: argparse.Namespace) -> ExitCode:
    _refuse_two_outputs(arguments)
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    current = None
    if arguments.scenarios:
        loaded, problems, _wanted = _load(arguments.scenarios)
        if problems:
            raise ScenarioFilesInvalid("\n\n".join(str(problem) for problem in problems))
        current = {each.scenario.id: each for each in loaded.scenarios}
    record = judge_again(folder, scenarios=current)
    codes = codes_of(record)
    codes += [] if record.complete else [ExitCode.INCOMPLETE]
    # Judged by other rules, it is not what the run found: the run's own reports stay as they are.
    _deliver(arguments, folder, record, codes, keep=current is None)
    return worst(codes)


def _report(arguments: argparse.Namespace) -> ExitCode:
    _refuse_two_outputs(arguments)
    folder = RunFolder.open(Path(arguments.run), Path(arguments.reports))
    record = folder.results() or judge_again(folder)
    codes = codes_of(record)
    codes += [] if record.complete else [ExitCode.INCOMPLETE]
    _deliver(arguments, folder, record, codes)
    return worst(codes)


def _compare(arguments: argparse.Namespace) -> ExitCode:
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
        _print(comparison.to_json(found))
    else:
        _print(comparison.text(found, _style(arguments, sys.stdout)))
    if found.refusal:
        return ExitCode.VERDICT_MISSING
    regressed = bool(found.of(Direction.REGRESSION))
    if regressed or (arguments.fail_on == "any-change" and found.changes):
        return ExitCode.UNEXPECTED_RESULTS
    return ExitCode.VERDICT_MISSING if found.of(Direction.LOST) else ExitCode.AS_EXPECTED


def _doctor(arguments: argparse.Namespace) -> ExitCode:
    identity = choose_identity(arguments.user)
    read_end, write_end = os.pipe()
    try:
        with _temporary_log() as log:
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


def _images_build(arguments: argparse.Namespace) -> ExitCode:
    from harness.backends.docker import Engine  # the docker SDK: 0.1 s that others do without
    from harness.images import Workshop, default_cache, read_catalogue

    catalogue = read_catalogue(_given_path(arguments.containers))
    if arguments.all == bool(arguments.names):
        raise UsageError("name the images to build, or give --all")
    names = arguments.names
    if arguments.all:
        # What cannot be built without a registry is no reason to build nothing without one.
        wanted = catalogue.definitions.values()
        names = [each.name for each in wanted if arguments.source == "registry" or each.bootstrap]
        for each in wanted:
            if each.name not in names:
                _tell(f"{each.name} is left out: it needs --from registry")
    for name in names:
        _ = catalogue[name]
    cache = _given_path(arguments.cache) or default_cache()
    engine = Engine.connect()
    try:
        engine.sweep()
        workshop = Workshop(catalogue, engine, cache, _tell, arguments.mirror)
        for name in names:
            built = workshop.build(name, arguments.source)
            _tell(f"{built.tag}: bwrap {built.bwrap}, {built.built_from}, {built.digest}")
    finally:
        engine.close()
    return ExitCode.AS_EXPECTED


def _images_list(arguments: argparse.Namespace) -> ExitCode:
    from harness.backends.docker import Engine
    from harness.images import image_states, read_catalogue

    catalogue = read_catalogue(_given_path(arguments.containers))
    engine = Engine.connect()
    try:
        states = image_states(catalogue, engine)
    finally:
        engine.close()
    if arguments.format == "json":
        _print(json.dumps([dataclasses.asdict(each) for each in states], indent=1) + "\n")
        return ExitCode.AS_EXPECTED
    width = max((len(each.name) for each in states), default=0)
    for each in states:
        version = f"bwrap {each.bwrap}" if each.bwrap else ""
        _print(f"{each.name:<{width}}  {each.state:<7}  {version:<13}  {each.about}\n")
    return ExitCode.AS_EXPECTED


def _given_path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


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
    except _ReaderGone:
        return int(ExitCode.INTERRUPTED)  # as if SIGPIPE had ended us; nobody is left to be told
    except Exception:
        _tell(traceback.format_exc())
        _tell("harness: this is a fault of the harness itself; please report the lines above")
        return int(ExitCode.OUR_FAULT)


def run_as_program() -> NoReturn:
    """The console script."""
    _open_standard_streams()
    sys.exit(main())


def _open_standard_streams() -> None:
    """Give the standard streams that the caller closed to /dev/null.

    Their numbers would otherwise go to files of ours, and whatever is printed would go into those.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


__all__ = ["Result", "build_parser", "codes_of", "main", "run_as_program"]


if __name__ == "__main__":
    run_as_program()
