"""The ``--json-status-fd`` stream, parsed as it arrives.

One object comes in two to nine writes, so a read may end anywhere (bubblewrap ``dump_info``
retries short writes; measured).  This module only turns bytes into facts: it reads no descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_LINE_BYTES", "MAX_OBJECTS", "StatusStream"]

MAX_LINE_BYTES = 64 * 1024
"""Longest line kept.  Real lines are under 200 bytes; the bound keeps a wrong writer (a command
that was handed the descriptor) from filling the supervisor's memory."""

MAX_OBJECTS = 64
"""Most objects kept.  bwrap writes two; the stream is still drained past the bound."""


class StatusStream:
    """Collects lines, objects and the two facts that a supervisor needs.

    ``child_pid`` and ``exit_code`` are the first integer members of these names; unknown members
    and objects are kept and otherwise ignored, since the stream is documented as extensible
    (bwrap(1), ``--json-status-fd``).
    """

    def __init__(self) -> None:
        self.objects: list[Mapping[str, Any]] = []
        self.child_pid: int | None = None
        self.exit_code: int | None = None
        self._partial = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes and return the lines completed by them, without line ends.

        Lines that are too long or not JSON objects change no fact and raise nothing: the stream
        of a newer bwrap must not end the supervision of its sandbox.
        """
        *complete, self._partial = (self._partial + data).split(b"\n")
        lines = []
        for raw in complete:
            if self._skipping or len(raw) > MAX_LINE_BYTES:
                self._skipping = False
                continue
            line = raw.decode("utf-8", "replace")
            lines.append(line)
            self._take(line)
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial, self._skipping = b"", True
        return lines

    def _take(self, line: str) -> None:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        if len(self.objects) < MAX_OBJECTS:
            self.objects.append(value)
        if self.child_pid is None:
            self.child_pid = _positive_integer(value.get("child-pid"))
        if self.exit_code is None:
            self.exit_code = _integer(value.get("exit-code"))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _positive_integer(value: object) -> int | None:
    # pid 0 and -1 mean "the group" and "everyone" to kill(2); they are never a child.
    number = _integer(value)
    return number if number is not None and number > 0 else None
