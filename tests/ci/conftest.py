"""Fixtures of the tests that run harness as somebody else's CI does."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest
from ci_place import Workspace

from harness.agent import kernel, procfs

#: How long what a step started may take to be gone after the step.
GONE_S = 2.0


def _collect() -> list[str]:
    """Reap the children of this process; the names of those that had to be killed."""
    left = []
    while children := procfs.children_of(os.getpid()):
        for pid in children:
            name = (procfs.read_bytes(f"/proc/{pid}/comm") or b"").decode().strip()
            gone = os.pidfd_open(pid)
            if not select.select([gone], [], [], GONE_S)[0]:
                left.append(f"{pid} {name}")
                signal.pidfd_send_signal(gone, signal.SIGKILL)
            os.close(gone)
            os.waitpid(pid, 0)
    return left


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fail a test after which a process is still there 2 s later, wherever it went.

    The test process is a subreaper meanwhile: what outlives its parent comes here.
    """
    kernel.set_child_subreaper()
    try:
        yield
        assert _collect() == [], "processes left"
    finally:
        kernel.set_child_subreaper(False)


@pytest.fixture
def place() -> Iterator[Workspace]:
    """A workspace with one scenario that passes."""
    made = Workspace()
    yield made
    made.remove()


@pytest.fixture
def as_root() -> None:
    """Skip where namespaces cannot be made for one test alone."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a namespace of its own: run the tests as root")
