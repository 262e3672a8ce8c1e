"""A client of one agent, for tests: plans go in, events come out while they happen."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness.agent import kernel, procfs
from harness.backends.local import AGENT_PROGRAM, PYTHON_OPTIONS
from harness.model.scenario import Scenario
from harness.model.timeline import Event, Kind, Timeline

#: How long a test waits for what should take milliseconds; only a failure ever takes it.
PATIENCE_S = 30.0
#: Everything of an agent must be dead so soon after any end of it (design law 8).
DEAD_WITHIN_S = 2.0
#: Whom a scenario's supervisor runs as.
NOBODY = 65534 if os.getuid() == 0 else os.getuid()


def wait_until(condition: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Ask until the answer is true, and return it; for what has no fd to wait on."""
    end = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < end, f"not reached within {within_s} s"
        select.select([], [], [], 0.001)
    return value


def make_plan(bwrap: str, *, uid: int = NOBODY, **members: Any) -> dict[str, Any]:
    """A plan, from what differs from a scenario whose command exits at once."""
    scenario = Scenario.model_validate(
        {
            "id": "test.recorder",
            "title": "A scenario of these tests",
            "clauses": ["TEST-1"],
            "sandbox": {"command": ["true"]},
            "expect": [{"exit": {"of": "monitor", "code": 0}}],
            **members,
        }
    )
    return {**scenario.plan(), "bwrap": bwrap, "uid": uid, "gid": uid}


def _is_in_reserve(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(f"/proc/{pid}").st_uid == os.getuid() and len(procfs.fds(pid) or ()) == 4
    return False


class Agent:
    """One agent process: the watchdog, and below it the recorder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, *PYTHON_OPTIONS, *AGENT_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(harness.__file__).parent.parent),
                "TMPDIR": str(folder),
            },
        )
        self._buffered = b""
        self.recorder: int = wait_until(lambda: procfs.children_of(self.process.pid))[0]
        self._held: list[int] = []

    def left_over(self) -> list[int]:
        """The pids below the recorder that belong to a recording.

        Those that belong to none, the zygote and the next supervisor, have one fd each besides the
        standard ones, and are who the agent is.
        """
        return [pid for pid in procfs.children_of(self.recorder) if not _is_in_reserve(pid)]

    def assert_nothing_left(self) -> None:
        """Of the next supervisor it shows only after a moment that it is one."""
        wait_until(lambda: not self.left_over())

    # -- talking

    def send(self, request: dict[str, Any] | bytes) -> None:
        """Send a request, or bytes as they are."""
        data = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_line(self, within_s: float = PATIENCE_S) -> dict[str, Any] | None:
        """The next line, or None at the end of the agent's output."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        end = time.monotonic() + within_s
        while b"\n" not in self._buffered:
            ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the agent said nothing within {within_s} s"
            data = os.read(fd, 1 << 16)
            if not data:
                return None
            self._buffered += data
        line, _, self._buffered = self._buffered.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value

    def ask(self, request: dict[str, Any] | bytes) -> dict[str, Any] | None:
        self.send(request)
        return self.read_line()

    def read_reply(self) -> dict[str, Any] | None:
        """The next line that is no event; None when the agent has ended without one."""
        while (line := self.read_line()) is not None and "reply" not in line:
            pass
        return line

    def events(self) -> Iterator[Event]:
        """The events of the recording that is on its way, as they come."""
        while (line := self.read_line()) is not None:
            assert "reply" not in line, line.get("traceback", line)
            event = Event.from_line(json.dumps(line))
            yield event
            if event.kind is Kind.RECORDING_CLOSED:
                return

    def record(self, plan: dict[str, Any]) -> Timeline:
        """Record one plan from its first event to its last."""
        self.send({"do": "record", "plan": plan})
        return Timeline(list(self.events()))

    def begin(self, plan: dict[str, Any], kind: Kind, **data: Any) -> list[Event]:
        """Start a recording and read it as far as an event; the sandbox goes on meanwhile."""
        self.send({"do": "record", "plan": plan})
        seen = []
        for event in self.events():
            seen.append(event)
            if event.kind is kind and data.items() <= dict(event.data).items():
                return seen
        raise AssertionError(f"the recording has no {kind} with {data}")

    # -- looking

    @property
    def scratch(self) -> Path:
        """The scratch directory of the recording that is on its way."""
        return next(self.folder.glob("harness-*/s[0-9a-f]*"))

    def hold_everybody(self) -> list[procfs.Process]:
        """Hold watchdog, recorder and all below them, until they are dead."""
        own = procfs.read_process(self.process.pid)
        assert own is not None
        found = [own, *procfs.descendants_of(self.process.pid)]
        for process in found:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._held.append(kernel.pidfd_open(process.pid))
        return found

    def await_death_of_all(self) -> None:
        """All who were held are dead in time, and the folder is empty: nothing is left."""
        end = time.monotonic() + DEAD_WITHIN_S
        for pidfd in self._held:
            dead, _, _ = select.select([pidfd], [], [], max(0.0, end - time.monotonic()))
            assert dead, f"somebody is alive after {DEAD_WITHIN_S} s"
        wait_until(lambda: not os.listdir(self.folder), max(0.1, end - time.monotonic()))

    # -- ending

    def close(self) -> int:
        """Hang up, and return the exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
            self.process.stdout.close()
            for pidfd in self._held:
                os.close(pidfd)
            self._held = []


def reap_orphans() -> None:
    """Reap what fell to this process as its subreaper; a living orphan is an error."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            assert ended is not None, f"alive: {procfs.descendants_of(os.getpid())}"
