"""Fixtures of the tests that run the real ``harness``: a place, and proof that nothing is left."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest
from cli_place import Place, sweep

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fail a test after which a process is still there 2 s later.

    The test process is made a subreaper: whatever outlives its parent comes here, whatever its
    session, its name or its environment may be.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
        assert sweep() == [], "processes left"
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def place() -> Iterator[Place]:
    """A folder to run in; fails when a temporary file is left in it."""
    made = Place()
    try:
        yield made
        assert sweep() == [], "processes left"
        assert os.listdir(made.temporary) == [], "temporary files left"
    finally:
        made.remove()


@pytest.fixture(scope="module")
def shared_place() -> Iterator[Place]:
    """One folder for all tests of a module that only read."""
    made = Place()
    yield made
    made.remove()


@pytest.fixture
def as_root() -> None:
    """Skip where mounts cannot be made for one test alone."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a mount namespace of its own: run the tests as root")
