"""From the paths on a command line to the text of scenario files, whatever the paths lead to.

Nothing here parses: see ``nodes``.  A path that cannot be read is a problem, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.loader.problem import Problem

SUFFIXES = (".yaml", ".yml")
CONTRACT_NAME = "contract.yaml"
#: A scenario is one or two KB and the pure-Python parser reads about 70 KB a second (55,000 events
#: of a 125 KB file in 1.8 s, measured): a file above this is not one of ours.
LARGEST_FILE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file.  Line ends are LF and there is no byte order mark."""

    file: str
    text: str
    lines: tuple[str, ...]

    def problem(self, line: int, column: int, message: str) -> Problem:
        """A problem at ``line`` and ``column``, which count from 0 here."""
        shown = self.lines[line] if line < len(self.lines) else ""
        return Problem(self.file, line + 1, column + 1, message, shown)


def read_source(path: Path) -> tuple[Source | None, list[Problem]]:
    """The text of ``path``, or None; and what is wrong with the file as a whole."""
    file = str(path)

    def refused(message: str) -> tuple[None, list[Problem]]:
        return None, [Problem(file, 1, 1, message)]

    try:
        path.stat()
        if not path.is_file():
            # Opening a FIFO or a terminal would wait for ever.
            return refused("not a regular file; expected a YAML file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE_BYTES + 1)
    except OSError as fault:
        return refused(f"cannot be read: {fault.strerror or fault}")
    if len(data) > LARGEST_FILE_BYTES:
        limit = LARGEST_FILE_BYTES // 1024
        return refused(f"is larger than {limit} KB; expected a scenario file of a few KB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start)
        column = fault.start - (data.rfind(b"\n", 0, fault.start) + 1)
        message = f"byte 0x{data[fault.start]:02x} is not UTF-8; expected a file in UTF-8"
        return None, [Problem(file, line + 1, column + 1, message)]
    return _normalise(file, text)


def _normalise(file: str, text: str) -> tuple[Source, list[Problem]]:
    """Say what an editor left in the file, take it out, and go on with the rest."""
    found = []
    if text.startswith("\ufeff"):
        text = text[1:]
        found.append("starts with a byte order mark; expected UTF-8 without one")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        found.append("has CR or CRLF line ends; expected LF")
    source = Source(file, text, tuple(text.split("\n")))
    return source, [Problem(file, 1, 1, message) for message in found]


def find_files(paths: Sequence[Path]) -> tuple[list[Path], list[Problem]]:
    """The scenario files that ``paths`` name, directories walked in sorted order, each file once.

    ``contract.yaml`` is left out of a walk.  Problems: a path that does not exist, a directory
    without any scenario file, a directory that contains itself through a symbolic link.
    """
    files: dict[str, Path] = {}  # by where they really are: the same file may be named twice
    problems: list[Problem] = []
    for path in paths:
        found = 0
        before = len(problems)
        for each in _walk(path, ()):
            if isinstance(each, Problem):
                problems.append(each)
                continue
            found += 1
            files.setdefault(_real(each), each)
        if not found and len(problems) == before:
            what = "has no scenario file in it; expected *.yaml or *.yml"
            problems.append(Problem(str(path), 1, 1, what))
    return list(files.values()), problems


def _real(path: Path) -> str:
    try:
        return str(path.resolve())
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links (pathlib, 3.11)
        return str(path)


def _walk(path: Path, above: tuple[str, ...]) -> Iterator[Path | Problem]:
    """Files under ``path``; ``above`` are the directories it was reached through."""
    try:
        if not path.is_dir():
            path.stat()
            yield path
            return
        here = _real(path)
        if here in above:
            yield Problem(str(path), 1, 1, "is a symbolic link to a directory that it is in")
            return
        entries = [(entry, entry.is_dir()) for entry in sorted(path.iterdir())]
    except FileNotFoundError:
        yield Problem(str(path), 1, 1, "does not exist; expected a scenario file or a directory")
        return
    except OSError as fault:
        yield Problem(str(path), 1, 1, f"cannot be read: {fault.strerror or fault}")
        return
    for entry, is_directory in entries:
        if is_directory:
            yield from _walk(entry, (*above, here))
        elif entry.suffix in SUFFIXES and entry.name != CONTRACT_NAME:
            yield entry


def find_contract(paths: Sequence[Path]) -> Path | None:
    """The nearest ``contract.yaml`` at or above the first of ``paths``, or None."""
    if not paths:
        return None
    first = paths[0]
    start = first if first.is_dir() else first.parent
    real = Path(_real(start))
    candidates = [start / CONTRACT_NAME, *(up / CONTRACT_NAME for up in real.parents)]
    return next((each for each in candidates if each.is_file()), None)
