"""Fixtures of the reference supervisor's tests: a bwrap, and proof that nothing is left."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervise_cast import BWRAPS, Cast

from harness.supervise.processes import children_of

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(scope="session")
def bwrap() -> str:
    """Return a bwrap that works here, or skip with the reason."""
    reasons = []
    for path in BWRAPS:
        if not Path(path).exists():
            reasons.append(f"{path}: not there")
            continue
        probe = subprocess.run(
            [path, "--unshare-all", "--dev-bind", "/", "/", "true"], capture_output=True, text=True
        )
        if probe.returncode == 0:
            return path
        reasons.append(f"{path}: {probe.stderr.strip()}")
    pytest.skip("no working bwrap: " + "; ".join(reasons))


@pytest.fixture
def provider_needs() -> None:
    """Skip where slirp4netns cannot run."""
    if not Path("/dev/net/tun").exists():
        pytest.skip("/dev/net/tun is not there")
    if not any(Path(each, "slirp4netns").exists() for each in os.environ["PATH"].split(":")):
        pytest.skip("slirp4netns is not installed")


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fail a test that leaves a child, an orphan or a descriptor.

    The test process is made a subreaper, so that whatever outlives its parent comes here.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    fds, children = _open_fds(), children_of(os.getpid())
    try:
        yield
        assert children_of(os.getpid()) == children, "processes left"
        assert _open_fds() == fds, "descriptors left"
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _open_fds() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # The listing's own.
    return found


@pytest.fixture
def cast() -> Iterator[Cast]:
    """Yield a maker of supervisors in processes of their own; all are ended afterwards."""
    made = Cast()
    yield made
    made.close()
