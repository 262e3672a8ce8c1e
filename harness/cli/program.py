"""One command from its arguments to its exit code."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence

from harness.cli.parser import build_parser
from harness.cli.voice import ReaderGone, tell
from harness.errors import ExitCode, HarnessError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.  Raises SystemExit only for --help and --version."""
    try:
        parsed = build_parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ExitCode.USAGE)
    try:
        module, _, name = parsed.body.partition(".")
        body = getattr(importlib.import_module(f"harness.cli.{module}"), name)
        return int(body(parsed))
    except HarnessError as fault:
        tell(f"harness: {fault}")
        return int(fault.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except ReaderGone:
        return int(ExitCode.INTERRUPTED)  # as if SIGPIPE had ended us; nobody is left to be told
    except Exception:
        tell(traceback.format_exc())
        tell("harness: this is a fault of the harness itself; please report the lines above")
        return int(ExitCode.OUR_FAULT)
