"""A folder that every user can enter, and bwraps that every user can execute."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from repro_place import reachable


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder outside of pytest's own, which are closed to the user that a script becomes."""
    with tempfile.TemporaryDirectory(prefix="harness-repro-", dir="/tmp") as made:
        path = Path(made)
        path.chmod(0o755)
        yield path


@pytest.fixture
def every_bwrap(each_bwrap: str, open_folder: Path) -> str:
    """Run the test once with every bwrap that works here."""
    return reachable(each_bwrap, open_folder)


@pytest.fixture
def one_bwrap(bwrap: str, open_folder: Path) -> str:
    """One bwrap that works here."""
    return reachable(bwrap, open_folder)
