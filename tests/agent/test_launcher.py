"""The process between supervisor and bwrap ends when it is told to, and for nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from harness.agent import scripted, talk


class Launcher(NamedTuple):
    """A launcher process, with the ends that its supervisor and the recorder would hold."""

    pid: int
    started_pid: int
    started_pidfd: int
    recorder_end: socket.socket
    end_w: int


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end_r, end_w = os.pipe()
    launch = {
        "argv": ["/bin/sleep", "30"],
        "environment": {},
        "fds": {},
        "session": None,
        "defaults": [],
        "ignored": [],
        "blocked": [],
    }
    pid = os.fork()
    if pid == 0:
        try:
            os.close(end_w)
            ours.close()
            scripted._serve_launcher(theirs, "", launch, end_r)
        finally:
            os._exit(70)
    theirs.close()
    os.close(end_r)
    message, (pidfd,) = talk.hear(ours)
    assert message is not None
    try:
        yield Launcher(pid, message["pid"], pidfd, ours, end_w)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pidfd)
        ours.close()


def test_a_launcher_process_outlives_its_supervisor(launcher: Launcher) -> None:
    os.close(launcher.end_w)  # all that the death of its supervisor does to it
    signal.pidfd_send_signal(launcher.started_pidfd, signal.SIGKILL)
    assert talk.hear(launcher.recorder_end) == (
        {
            "said": "exited",
            "lane": "monitor",
            "pid": launcher.started_pid,
            "status": signal.SIGKILL,  # wait(2): a signal's number as it is
        },
        [],
    )
    assert os.waitpid(launcher.pid, os.WNOHANG) == (0, 0)


def test_a_launcher_process_ends_when_it_is_told_to(launcher: Launcher) -> None:
    os.write(launcher.end_w, b"e")
    os.close(launcher.end_w)
    ended = os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)
