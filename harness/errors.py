"""The error family, and with it the life of a run.

A run loads scenario files (:class:`ScenarioFilesInvalid`), looks at what the command line asks for
(:class:`UsageError`), finds out whether this machine can do it (:class:`EnvironmentUnfit`), selects
scenarios (:class:`NothingSelected`), records each one (:class:`RecordingLost`), stores and reports
(:class:`ReportNotWritten`).  Everything else that is raised is a fault of the harness itself.

Three parties can be at fault, and they must never be confused: the *user or the environment*
(these errors), *bwrap* (never an exception: a verdict), and *us* (any other exception, exit code
70).  Each error carries one message that says what was expected, what was got and what to try.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of the ``harness`` command; the comment is what ``--help`` prints."""

    AS_EXPECTED = 0  # everything as expected
    UNEXPECTED_RESULTS = 1  # a failure, or an unexpected pass
    USAGE = 2  # the command line or configuration is wrong
    SCENARIOS_INVALID = 3  # a scenario file is invalid
    ENVIRONMENT_UNFIT = 4  # the environment cannot run what was required
    NOTHING_RAN = 5  # nothing selected, or nothing ran
    VERDICT_MISSING = 6  # no unexpected failure, but a verdict is missing (inconclusive)
    INCOMPLETE = 7  # the run is incomplete
    OUR_FAULT = 70  # a fault of the harness itself
    INTERRUPTED = 130  # interrupted by a signal


#: From the worst class to the best: when several apply, the first one listed is the exit code.
WORST_FIRST: tuple[ExitCode, ...] = (
    ExitCode.OUR_FAULT,
    ExitCode.INTERRUPTED,
    ExitCode.INCOMPLETE,
    ExitCode.SCENARIOS_INVALID,
    ExitCode.USAGE,
    ExitCode.ENVIRONMENT_UNFIT,
    ExitCode.UNEXPECTED_RESULTS,
    ExitCode.VERDICT_MISSING,
    ExitCode.NOTHING_RAN,
    ExitCode.AS_EXPECTED,
)

EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.AS_EXPECTED: "everything as expected",
    ExitCode.UNEXPECTED_RESULTS: "unexpected results: a failure, or an unexpected pass",
    ExitCode.USAGE: "the command line or the configuration is wrong",
    ExitCode.SCENARIOS_INVALID: "a scenario file is invalid",
    ExitCode.ENVIRONMENT_UNFIT: "the environment cannot run what was required",
    ExitCode.NOTHING_RAN: "nothing was selected, or nothing ran",
    ExitCode.VERDICT_MISSING: "no unexpected failure, but a verdict is missing (inconclusive)",
    ExitCode.INCOMPLETE: "the run is incomplete: a recording was lost",
    ExitCode.OUR_FAULT: "a fault of the harness itself",
    ExitCode.INTERRUPTED: "interrupted",
}


def worst(codes: list[ExitCode]) -> ExitCode:
    """The exit code of a run that met all of ``codes``; ``AS_EXPECTED`` when there is none."""
    return next((code for code in WORST_FIRST if code in codes), ExitCode.AS_EXPECTED)


class HarnessError(Exception):
    """An error with a message for the user; ``exit_code`` is what the command ends with."""

    exit_code = ExitCode.OUR_FAULT


class UsageError(HarnessError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = ExitCode.USAGE


class ScenarioFilesInvalid(HarnessError):
    """One or more scenario files are invalid; the message lists every problem, one a paragraph."""

    exit_code = ExitCode.SCENARIOS_INVALID


class EnvironmentUnfit(HarnessError):
    """Something that was required by name is missing or refused here; says how to get it."""

    exit_code = ExitCode.ENVIRONMENT_UNFIT


class NothingSelected(HarnessError):
    """The filters left no scenario."""

    exit_code = ExitCode.NOTHING_RAN


class RecordingLost(HarnessError):
    """The recorder went away before it closed a recording; what it had written is kept."""

    exit_code = ExitCode.INCOMPLETE


class ReportNotWritten(HarnessError):
    """A report or the run's own folder could not be written (read-only, full, not a directory)."""

    exit_code = ExitCode.ENVIRONMENT_UNFIT


class Interrupted(HarnessError):
    """The run was told to stop; what was recorded so far is on disk."""

    exit_code = ExitCode.INTERRUPTED
