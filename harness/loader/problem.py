"""A problem in a scenario file: where it is, what is wrong, what was expected.

Everything in this package that finds something wrong says it with a :class:`Problem`; nothing here
knows which rules there are (``names``, ``timing``, ``vacuity``) or how a file is read (``nodes``).
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.errors import ScenarioFilesInvalid

#: So much of a long source line is shown on either side of the column that is meant.
SHOWN_BESIDE_CARET = 100


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong.  ``line`` and ``column`` count from 1; 1:1 for a whole file.

    ``source`` is the text of that line, empty when there is none to show (a missing file).
    Problems sort by file, line and column.
    """

    file: str
    line: int
    column: int
    message: str
    source: str = field(default="", compare=False)

    @property
    def headline(self) -> str:
        """``file:line:col: what is wrong, what was expected``, without the source line."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}"

    def __str__(self) -> str:
        if not self.source.strip():
            return self.headline
        return f"{self.headline}\n{_excerpt(self.source, self.column - 1)}"


class ScenarioProblems(ScenarioFilesInvalid):
    """Every problem of every file, sorted; the message prints them, one a paragraph."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n\n".join(map(str, self.problems)))


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """``problems`` by file, line and column, each said once."""
    return tuple(sorted(set(problems)))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names in ``known`` that ``name`` may have been meant as, the likeliest first.

    At most three; none when nothing is near.
    """
    by_folded = {each.lower().replace("_", "-"): each for each in known}
    folded = name.lower().replace("_", "-")
    found = difflib.get_close_matches(folded, by_folded, n=3, cutoff=0.6)
    return [by_folded[each] for each in found]


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known ones, or all that exist."""
    names = list(known)
    near = nearest(name, names)
    if near:
        return f"did you mean {in_words(near)}?"
    return f"expected {in_words(sorted(names))}" if names else "there is none here"


def in_words(names: Sequence[str], *, last: str = "or") -> str:
    """``a, b or c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def _excerpt(source: str, column: int) -> str:
    """The source line, cut around ``column`` when it is long, and a caret under that column."""
    start = max(0, column - SHOWN_BESIDE_CARET)
    end = column + SHOWN_BESIDE_CARET
    lead, tail = ("..." if start else ""), ("..." if end < len(source) else "")
    shown = "".join(map(_harmless, source[start:end]))
    padding = "".join(map(_padding, source[start:column]))
    return f"    {lead}{shown}{tail}\n    {' ' * len(lead)}{padding}^"


def _harmless(char: str) -> str:
    """``char`` as it may be printed: a file must not be able to send escapes to a terminal."""
    return char if char == "\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _padding(char: str) -> str:
    """What is as wide as ``char`` on a terminal, so that the caret stands under its column."""
    if char == "\t":
        return "\t"
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in ("W", "F") else " "
