"""Fixtures of all tests: nothing is left behind, and which bwraps there are."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from necessities import missing

from harness.agent import procfs
from harness.backends.local import bundled_bwrap
from harness.errors import EnvironmentUnfit

# As from a terminal, whoever starts the tests: nohup(1) and the background of a script ignore
# signals, and so would everything that the tests start.
for _number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A TMPDIR of the tests' own, so that what is left in it was left by one of them.

    Below /tmp, and not below pytest's folders: those are closed to the users of scenarios.
    """
    tmp_path_factory.getbasetemp()  # pytest's own folders are made in the real one
    folder = Path(tempfile.mkdtemp(prefix="harness-tests-"))
    folder.chmod(0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    shutil.rmtree(folder)


def open_fds() -> dict[int, str]:
    """The fds of this process, but for the one that the listing itself takes."""
    return procfs.fds(os.getpid()) or {}


@pytest.fixture(autouse=True)
def leaves_nothing(temporary_folder: Path) -> Iterator[None]:
    """Fail a test that leaves a child, an open fd or a temporary file.

    Orphans go where they go on this machine; tests that can leave some look for them themselves.
    """
    fds, files = open_fds(), set(os.listdir(temporary_folder))
    children = procfs.children_of(os.getpid())
    yield
    assert procfs.children_of(os.getpid()) == children, "a test left a child"
    assert open_fds() == fds, "a test left a file descriptor open"
    assert set(os.listdir(temporary_folder)) == files, "a test left a temporary file"


# --- which bwraps there are ----------------------------------------------------------------------


@functools.cache
def why_unusable(path: str) -> str:
    """Why a bwrap cannot make a sandbox here, or an empty text."""
    if not os.access(path, os.X_OK):
        return f"{path} is not there"
    argv = [path, "--unshare-all", "--dev-bind", "/", "/", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{path}: {done.stderr.strip()}"


def bwraps() -> dict[str, str]:
    """The bwraps that tests are run with, by name; not all of them may be there."""
    try:
        bundled = bundled_bwrap()
    except EnvironmentUnfit:
        bundled = "/nonexistent/bundled/bwrap"
    return {"bundled": bundled, "host": "/usr/bin/bwrap"}


@pytest.fixture(params=["bundled", "host"])
def each_bwrap(request: pytest.FixtureRequest) -> str:
    """Run the test once with every bwrap that works here."""
    path = bwraps()[request.param]
    reason = why_unusable(path)
    if reason:
        missing(reason)
    return path


@pytest.fixture
def bwrap() -> str:
    """One bwrap that works here, the bundled one if it does."""
    reasons = {path: why_unusable(path) for path in bwraps().values()}
    for path, reason in reasons.items():
        if not reason:
            return path
    missing("no bwrap works here: " + "; ".join(reasons.values()))
    raise AssertionError  # missing() has raised
