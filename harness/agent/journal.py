"""The journal: the one writer of the timeline.

Every event of a recording goes through :meth:`Journal.write`, which gives it its sequence number,
its time and the number of the current wake-up, and hands the line to the kernel at once, so that
what was seen is not lost when the recorder is killed a moment later (design law 2).  Nothing is
buffered here and nothing is decided here.
"""

from __future__ import annotations

import os
import time
from typing import Any

from harness.model.vocabulary import Kind, encode_event


class Journal:
    """Writes one recording to ``out_fd``, which stays the caller's.

    ``wake`` is advanced by the poll loop only; see ``harness.model.timeline`` for what it proves.
    """

    def __init__(self, out_fd: int) -> None:
        self._out_fd = out_fd
        self._opened_ns = time.monotonic_ns()
        self.wake = 0
        self.count = 0

    def elapsed_ns(self) -> int:
        """Monotonic nanoseconds since this recording was opened."""
        return time.monotonic_ns() - self._opened_ns

    def write(self, event_kind: Kind, lane: str, *, late: bool = False, **data: Any) -> None:
        """Write one event.  OSError when the reader at the other end is gone."""
        line = encode_event(self.count, self.elapsed_ns(), self.wake, event_kind, lane, data, late)
        self.count += 1
        write_all(self._out_fd, line.encode("utf-8", "backslashreplace") + b"\n")


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data`` to a blocking fd, however many writes that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
