"""What commands say: words for people to stderr, what they were asked for to stdout."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from harness.errors import ReportNotWritten
from harness.progress import tell_line as tell
from harness.reporters import terminal


class ReaderGone(Exception):
    """Whoever read our stdout has left, as ``head`` does when it has seen enough."""


def answer(text: str) -> None:
    """What a command is asked for: to stdout, in UTF-8 whatever the locale says.

    ReaderGone when nobody reads it any more; ReportNotWritten when it cannot be written.
    """
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except OSError as fault:
        # What is left in the buffer would fail once more when the interpreter ends.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(fault, BrokenPipeError):
            raise ReaderGone from None
        raise ReportNotWritten(
            f"cannot write to stdout: {fault.strerror}; make room, or let it go elsewhere"
        ) from fault


def style_for(arguments: argparse.Namespace, stream: Any) -> terminal.Style:
    color = terminal.wants_color(arguments.color, os.environ, stream.isatty())
    unicode = (getattr(stream, "encoding", "") or "").lower().replace("-", "") == "utf8"
    return terminal.Style(color=color, unicode=unicode)


__all__ = ["ReaderGone", "answer", "style_for", "tell"]
