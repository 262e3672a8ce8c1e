"""An agent at the far end of a connection: the same protocol as ``local``, multiplexed.

An engine gives one connection for the stdin, stdout and stderr of a process.  What we send is its
stdin as it is; what comes back is cut into frames of a byte that names the stream, three of
padding, a length of four and so much data (Docker's API, "Attach to a container", stream format).
The timeline is written into the run's file line by line as it arrives.

Knows nothing of the engine: ``harness.backends.docker`` opens the connection and says, when it
breaks, what became of the process.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from harness.backends.local import (
    ANSWER_DEADLINE_S,
    END_DEADLINE_S,
    agent_fault,
    recording_limit_s,
)
from harness.errors import HarnessError, Interrupted, RecordingLost, ReportNotWritten
from harness.model.timeline import Kind, Plan

STDOUT, STDERR = 1, 2
_HEADER_BYTES = 8
_READ_BYTES = 1 << 16
#: How long the far end may take to make room for a request; it reads them at once.
_SEND_DEADLINE_S = 30.0
#: What an agent's stderr is quoted with at most.
_SAID_BYTES = 4000


class Wire:
    """One connection to a process; owns ``connection`` and closes it.

    ``early`` is what was read off the connection before it came here.  Anything with ``recv``,
    ``sendall``, ``settimeout``, ``fileno`` and ``close`` is a connection: a socket, one with TLS,
    or the channel of an SSH client.
    """

    def __init__(self, connection: Any, *, early: bytes = b"") -> None:
        self._connection = connection
        self._raw = early
        self.framed = True
        connection.settimeout(_SEND_DEADLINE_S)

    def send(self, data: bytes) -> None:
        """Send all of it.  OSError when the far end is gone."""
        self._connection.sendall(data)

    def hang_up(self) -> None:
        """Let the process read the end of its stdin, and go on listening, where that is possible.

        TLS cannot close one half: there the whole connection ends, with the same effect inside.
        """
        with contextlib.suppress(OSError):
            if hasattr(self._connection, "unwrap"):
                self._connection.close()
            else:
                self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def read(self, deadline: float, *, stop_fd: int | None = None) -> tuple[int, bytes] | None:
        """The next frame as (stream, data); None at the end of the stream.

        TimeoutError past ``deadline`` (monotonic seconds), Interrupted when ``stop_fd`` is
        readable.  What is not framed is an engine's last words, and comes as stderr.
        """
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            if not self._fill(deadline, stop_fd):
                rest, self._raw = self._raw, b""
                return (STDERR, rest) if rest else None

    def _take(self) -> tuple[int, bytes] | None:
        if len(self._raw) < _HEADER_BYTES:
            return None
        stream, padding = self._raw[0], self._raw[1:4]
        if not self.framed or padding != b"\0\0\0" or stream > STDERR:
            self.framed = False
            return None
        end = _HEADER_BYTES + int.from_bytes(self._raw[4:_HEADER_BYTES], "big")
        if len(self._raw) < end:
            return None
        data, self._raw = self._raw[_HEADER_BYTES:end], self._raw[end:]
        return stream, data

    def _fill(self, deadline: float, stop_fd: int | None) -> bool:
        """Read once; False at the end of the stream, or when the connection broke."""
        pending = getattr(self._connection, "pending", None)
        if pending is None or not pending():  # TLS may have read more than it gave
            try:
                fds = [self._connection.fileno(), *([] if stop_fd is None else [stop_fd])]
                ready, _, _ = select.select(fds, [], [], max(0.0, deadline - time.monotonic()))
            except (OSError, ValueError):  # closed by hang_up
                return False
            if stop_fd in ready:
                raise Interrupted
            if not ready:
                raise TimeoutError
        try:
            data: bytes = self._connection.recv(_READ_BYTES)
        except OSError:
            return False
        self._raw += data
        return bool(data)


class StreamAgent:
    """An agent reached over a :class:`Wire`, which it owns.

    Not safe for use from several threads at once.  ``why_lost`` is asked when the connection ends,
    with what the process said on stderr, and ``has_ended`` whether the process is gone.  ``log``
    takes what it says on stderr, and may be exchanged between questions.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        stop_fd: int,
        log: IO[bytes],
        why_lost: Callable[[str], HarnessError],
        has_ended: Callable[[float], bool],
    ) -> None:
        self._wire = wire
        self._stop_fd = stop_fd
        self.log = log
        self._why_lost = why_lost
        self._has_ended = has_ended
        self._buffered = b""
        self._said = b""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One question, one answer.

        What ``why_lost`` says when the agent is gone, RecordingLost when it hangs.
        """
        self._send(request)
        try:
            line = self._read_line(time.monotonic() + ANSWER_DEADLINE_S)
        except TimeoutError:
            self.close()
            raise RecordingLost(
                f"the agent did not answer within {ANSWER_DEADLINE_S:g} s: {request['do']}"
            ) from None
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:  # an engine that could not start it tells so on its stdout
            self._said += line + self._buffered
            raise self._lost() from None
        if answer.get("reply") == "fault":
            raise agent_fault(answer)
        return answer

    def record(
        self,
        plan: Plan,
        path: Path,
        *,
        timeout_s: float | None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """As ``harness.backends.local.LocalAgent.record``; each line is in the file once it came.

        Raises what ``ask`` raises, Interrupted, and ReportNotWritten when the file cannot take it.
        """
        limit_s = timeout_s if timeout_s is not None else recording_limit_s(plan)
        self._send({"do": "record", "plan": plan})
        deadline = time.monotonic() + limit_s
        meanwhile()
        lines: list[str] = []
        try:
            with path.open("ab", buffering=0) as file:
                while True:
                    line = self._read_line(deadline)
                    if b'"reply"' in line and "reply" in (answer := json.loads(line)):
                        raise agent_fault(answer)
                    file.write(line + b"\n")
                    lines.append(line.decode("utf-8", "replace"))
                    if _closes(line):
                        return lines
        except TimeoutError:
            self.close()
            raise RecordingLost(
                f"{plan['id']} took longer than {limit_s:g} s and was ended"
            ) from None
        except OSError as fault:  # only the file: what the wire raises was dealt with
            raise ReportNotWritten(
                f"the recording cannot be kept: {fault.strerror}; "
                "make room, or choose another folder with --reports"
            ) from fault

    def close(self) -> None:
        """End the agent in good order: its stdin hangs up, and it leaves nothing behind."""
        self._wire.hang_up()
        deadline = time.monotonic() + END_DEADLINE_S
        with contextlib.suppress(TimeoutError):
            while (frame := self._wire.read(deadline)) is not None:
                self._hear(*frame)
        self._has_ended(max(0.0, deadline - time.monotonic()))
        self._wire.close()

    def _send(self, request: Mapping[str, Any]) -> None:
        try:
            self._wire.send(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._lost() from None

    def _read_line(self, deadline: float) -> bytes:
        while b"\n" not in self._buffered:
            frame = self._wire.read(deadline, stop_fd=self._stop_fd)
            if frame is None:
                raise self._lost()
            self._hear(*frame)
        line, _, self._buffered = self._buffered.partition(b"\n")
        return line

    def _hear(self, stream: int, data: bytes) -> None:
        if stream == STDOUT:
            self._buffered += data
            return
        self._said = (self._said + data)[-_SAID_BYTES:]
        with contextlib.suppress(OSError):  # a full disk is told of where it matters
            self.log.write(data)
            self.log.flush()

    def _lost(self) -> HarnessError:
        return self._why_lost(self._said.decode("utf-8", "replace").strip())


def _closes(line: bytes) -> bool:
    """Whether a line is the last one of a recording.  What a sandbox says may look like it."""
    word = Kind.RECORDING_CLOSED.value
    return word.encode() in line and json.loads(line)["kind"] == word
