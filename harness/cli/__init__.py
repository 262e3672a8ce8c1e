"""The ``harness`` command: arguments, printing, exit codes.  The only room that prints or exits.

Machine output goes to stdout and is nothing but that; progress and words for people about a run go
to stderr.  Every command is a function from its arguments to an exit code; errors that are the
user's or the environment's are one message, ours are a traceback and exit code 70.

Read next: ``parser`` (which commands there are), ``running`` (the one that matters most).  This
module imports nothing of that before it is ready for ^C, since the imports take half a second.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def run_as_program() -> NoReturn:
    """The console script."""
    try:
        _open_standard_streams()
        from harness.cli.program import main

        code = main()
    except KeyboardInterrupt:
        code = 130  # ExitCode.INTERRUPTED, which may not be there yet
    sys.exit(code)


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


__all__ = ["run_as_program"]
