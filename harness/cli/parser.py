"""The command line: which commands and options there are, and who carries them out."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from harness import __version__
from harness.errors import EXIT_CODE_MEANINGS, ExitCode


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
    listing = _verb(verbs, "list", "list scenarios", "telling.list_scenarios")
    _add_paths(listing)
    _add_filters(listing)
    _add_format(listing)
    validate = _verb(
        verbs, "validate", "check scenario files; all problems at once", "telling.validate"
    )
    _add_paths(validate)
    told = _verb(
        verbs, "explain", "say what a scenario does, expects, and why", "telling.explain_scenario"
    )
    told.add_argument("id", help="the scenario's id")
    told.add_argument("paths", nargs="*", metavar="PATH", help="where to look (default scenarios)")
    _add_color(told)
    _add_repro(verbs)
    for name, what, body in (
        ("judge", "judge the recordings of a stored run again", "stored.judge"),
        ("report", "write the reports of a stored run again", "stored.report"),
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
    _add_bisect(verbs)
    doctor = _verb(
        verbs,
        "doctor",
        "say what this machine allows, and which layer refuses",
        "telling.tell_doctor",
    )
    doctor.add_argument("--user", help="the user that sandboxes would run as")
    _add_format(doctor)
    _add_color(doctor)
    _add_images(verbs)
    _verb(verbs, "schema", "print the JSON Schema of scenario files", "telling.print_schema")
    return parser


def _verb(verbs: Any, name: str, what: str, body: str) -> argparse.ArgumentParser:
    """A command; ``body`` is its module of this room and the function, imported when it is called.

    So that no command waits for what only another one needs.
    """
    made: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what + ".")
    made.set_defaults(body=body)
    return made


def _add_run(verbs: Any) -> None:
    run = _verb(verbs, "run", "record, judge and report scenarios", "running.run")
    _add_paths(run)
    _add_filters(run)
    _add_outputs(run)
    more = run.add_argument
    _add_subjects(run, "bundled, host, path:FILE or image:NAME; repeatable")
    more("-j", "--jobs", type=_positive, default=1, metavar="N", help="so many at once")
    more("-x", "--fail-fast", action="store_true", help="stop at the first unexpected result")
    more("--repeat", type=_positive, metavar="N", help="record each scenario N times")
    more("--shuffle", action="store_true", help="run in random order")
    more("--seed", type=int, metavar="N", help="the seed of --shuffle")
    more("--allow-empty", action="store_true", help="an empty selection is no error")
    more("--require-env", action="store_true", help="what cannot run here ends the run (exit 4)")
    more("-n", "--dry-run", action="store_true", help="say what would run, and run nothing")


def _add_repro(verbs: Any) -> None:
    repro = _verb(
        verbs,
        "repro",
        "write a scenario as a Python script that needs nothing but bwrap",
        "telling.write_repro",
    )
    repro.add_argument("id", help="the scenario's id")
    repro.add_argument("paths", nargs="*", metavar="PATH", help="where to look (default scenarios)")
    repro.add_argument(
        "--subject",
        metavar="SPEC",
        help="bundled, host or path:FILE: the bwrap that the script runs when none is given to it "
        "(default: the one on PATH)",
    )


def _add_compare(verbs: Any) -> None:
    compared = _verb(
        verbs, "compare", "say what changed between two recorded runs", "stored.compare_runs"
    )
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


def _add_bisect(verbs: Any) -> None:
    bisected = _verb(
        verbs,
        "bisect",
        "say between which two of an ordered list of subjects a verdict flips",
        "bisecting.bisect_subjects",
    )
    more = bisected.add_argument
    more("id", help="the scenario's id")
    more("paths", nargs="*", metavar="PATH", help="where to look (default scenarios)")
    _add_subjects(
        bisected, "in the order of time, at least two of bundled, host, path:FILE, image:NAME"
    )
    more(
        "--error-rate",
        type=_share,
        default=0.01,
        metavar="P",
        help="how likely the answer may be wrong by chance (default 0.01)",
    )
    more(
        "--max-repeats",
        type=_positive,
        default=1000,
        metavar="N",
        help="so many recordings of one subject are enough (default 1000)",
    )
    _add_reports(bisected)
    _add_format(bisected)
    _add_color(bisected)


def _add_subjects(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Where scenarios are recorded, as whom, and for how long."""
    more = parser.add_argument
    more("--subject", action="append", metavar="SPEC", help=help_text)
    more("--user", help="the user that supervisors run as (default: an unprivileged one)")
    more("--privileged", action="store_true", help="privileged containers for image: subjects")
    more("--timeout", type=_seconds, metavar="SECONDS", help="the limit for one recording")
    more("--timeout-multiplier", type=_factor, default=1.0, metavar="X", help="stretch deadlines")


def _add_images(verbs: Any) -> None:
    images = verbs.add_parser("images", help="build and list the images of image: subjects")
    ways = images.add_subparsers(dest="images_verb", required=True, metavar="COMMAND")
    build = _verb(ways, "build", "build images, each with its bwrap", "images.build")
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
    listing = _verb(
        ways, "list", "say which images are built, stale or missing", "images.list_images"
    )
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


def _share(text: str) -> float:
    value = _number(text, float)
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(f"expected a share above 0 and below 0.5, got {text}")
    return value


def _number(text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
