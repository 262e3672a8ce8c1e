"""One engine and one image for all tests here, made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_place import IMAGE, OwnEngine, harness, why_no_engine
from necessities import missing

CONTRACT = """\
- id: T-1
  family: test
  sentence: "What a test claims."
  source: "tests/containers"
"""


@pytest.fixture(scope="session")
def engine(temporary_folder: Path) -> Iterator[OwnEngine]:
    """A running engine.  Skips with the reason where there can be none."""
    reason = why_no_engine()
    folder = temporary_folder / "engine"
    folder.mkdir()
    own = OwnEngine(folder)
    reason = reason or own.start()
    if reason:
        shutil.rmtree(folder)
        missing(reason)
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def image(engine: OwnEngine, temporary_folder: Path) -> str:
    """The subject of a bookworm image, built by bootstrap; its root folder comes from the cache."""
    # Where the user's cache is, and not in the tests' temporary folder: CI builds it only once.
    done = harness(
        ["images", "build", IMAGE, "--from", "bootstrap"], temporary_folder, engine.address
    )
    assert done.returncode == 0, done.stderr
    return f"image:{IMAGE}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a contract, to write scenario files into."""
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    return tmp_path
