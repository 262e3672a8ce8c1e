"""Removing a scratch directory: all of it, and nothing around it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from harness.agent.clearing import remove_tree


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
