"""Scenario files for these tests: one that is right, and the ways to spoil it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.loader import Loaded, Problem, load_leniently

CONTRACT = """\
- {id: STATUS-1, family: status-stream, sentence: Every line is an object., source: bwrap(1)}
- {id: BLOCK-2, family: block-fd, sentence: A byte starts the command., source: bwrap(1)}
- {id: HOWTO-1, family: how-to, sentence: The pipe must be drained., source: how-to}
"""

GOOD = """\
id: block-fd.byte-opens-the-gate
title: One byte on the gate starts the command
clauses: [STATUS-1, BLOCK-2]
sandbox:
  args: [--unshare-pid, --chdir, "{scratch}"]
  command: {shell: "touch $SCRATCH/ran; exit 7"}
  channels:
    status: {option: json-status-fd}
    gate: {option: block-fd}
steps:
  - wait: {object: status, has: child-pid}
  - write: {to: gate, text: x}
    trigger: true
  - wait: {end: main}
expect:
  - exit: {of: monitor, code: 7}
  - ran: ran
"""

TWO_BOXES = """\
id: lock-file.is-shared
title: Two sandboxes may hold the same lock
clauses: [STATUS-1]
files: {lock: {}}
sandboxes:
  left: {command: {shell: "exit 0"}, launched_by: thread}
  right: {command: {shell: "exit 0"}}
helpers:
  holder: {lock: read, file: lock}
expect:
  - exit: {of: left.monitor, code: 0}
  - exit: {of: right.monitor, code: 0}
"""


def write(folder: Path, text: str, *, name: str = "one.yaml", contract: str = CONTRACT) -> Path:
    """Write a scenario file with a contract beside it."""
    (folder / "contract.yaml").write_text(contract, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in ``folder``, so that messages have relative paths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def load(folder: Path, text: str, *, contract: str = CONTRACT) -> tuple[Loaded, list[Problem]]:
    """Load one file; what was loaded, and the problems."""
    write(folder, text, contract=contract)
    with inside(folder):
        loaded, problems = load_leniently([Path("one.yaml")])
    return loaded, list(problems)


def said(folder: Path, text: str) -> list[str]:
    """``WORD | message`` of every problem of one file; WORD is what the caret points at."""
    _, problems = load(folder, text)
    return [f"{pointed_at(problem)} | {problem.message}" for problem in problems]


def pointed_at(problem: Problem) -> str:
    """The word under the caret."""
    word = re.match(r"\"?[^\s,:\]}\"]+|\S", problem.source[problem.column - 1 :])
    return word[0] if word is not None else ""


def spoilt(old: str, new: str, *, base: str = GOOD) -> str:
    """``base`` with ``old`` replaced, which must be in it exactly once."""
    assert base.count(old) == 1, f"{old!r} is in the base {base.count(old)} times"
    return base.replace(old, new)
