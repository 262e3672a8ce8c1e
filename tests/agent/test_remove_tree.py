"""Removing a scratch directory: all of it, and nothing around it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.agent.clearing import remove_tree, scratch_directory


def test_what_is_not_there_is_no_error_and_its_parent_keeps_its_mode(tmp_path: Path) -> None:
    parent = tmp_path / "shared"
    parent.mkdir()
    parent.chmod(0o1777)
    remove_tree(str(parent / "gone"))
    assert stat.S_IMODE(parent.stat().st_mode) == 0o1777


def test_what_a_command_made_unwritable_is_removed_too(tmp_path: Path) -> None:
    tree = tmp_path / "scratch"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").touch()
    (tree / "a" / "b").chmod(0o500)
    (tree / "a").chmod(0o000)
    parent_mode = tmp_path.stat().st_mode
    remove_tree(str(tree))
    assert (os.path.lexists(tree), tmp_path.stat().st_mode) == (False, parent_mode)


# --- putting a scratch directory by ---------------------------------------------------------------

IDS = (os.getuid(), os.getgid())


def test_one_that_is_as_it_was_made_is_put_by_and_comes_back_under_another_name(
    tmp_path: Path,
) -> None:
    with scratch_directory(str(tmp_path), *IDS) as first:
        made = os.lstat(first)
    assert [entry.stat().st_ino for entry in tmp_path.iterdir()] == [made.st_ino]
    with scratch_directory(str(tmp_path), *IDS) as second:
        assert second != first
        found = os.lstat(second)
        assert [path.name for path in tmp_path.iterdir()] == [os.path.basename(second)]
    assert (found.st_ino, found.st_mode) == (made.st_ino, made.st_mode)


TOUCHED: dict[str, Callable[[str], None]] = {
    "a file": lambda path: Path(path, "left").touch(),
    "a mode": lambda path: os.chmod(path, 0o1777),
    "an attribute": lambda path: os.setxattr(path, "user.left", b"x"),
    "gone": os.rmdir,
    "a link": lambda path: (os.rmdir(path), os.symlink("/", path)),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("name", TOUCHED)
def test_one_that_was_touched_is_removed(tmp_path: Path, name: str) -> None:
    with scratch_directory(str(tmp_path), *IDS) as path:
        try:
            TOUCHED[name](path)
        except OSError as fault:
            pytest.skip(f"this file system has no such thing: {fault.strerror}")
    assert list(tmp_path.iterdir()) == []


def test_one_of_another_user_is_not_given_away(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes directories for others: run as root")
    with scratch_directory(str(tmp_path), 1234, 1234):
        pass
    with scratch_directory(str(tmp_path), *IDS) as path:
        assert os.lstat(path).st_uid == IDS[0]
        assert len(list(tmp_path.iterdir())) == 2
