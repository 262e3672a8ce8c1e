"""Building Python text: literals, lists that fit a line, and the pieces a script is made of."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

#: No generated line is longer, apart from a single word that is.
WIDTH = 96
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")


def literal(text: str) -> str:
    """A Python literal of a text, with double quotes: what JSON writes is valid Python as well."""
    return json.dumps(text, ensure_ascii=False)


def bytes_literal(text: str) -> str:
    """A Python literal of the UTF-8 bytes of a text."""
    found = repr(text.encode())
    return found if '"' in found else 'b"' + found[2:-1] + '"'


def filled(text: str, names: Mapping[str, str]) -> str:
    """A Python expression of a text in which ``{name}`` stands for the value of a variable.

    ``names`` are the variables by placeholder; anything else in braces is left as it is.
    """
    alone = _PLACEHOLDER.fullmatch(text)
    if alone is not None and alone[1] in names:
        variable = names[alone[1]]
        return variable if alone[1] == "scratch" else f"str({variable})"
    pieces, end, is_plain = "", 0, True
    for match in _PLACEHOLDER.finditer(text):
        if match[1] in names:
            pieces += _escape(text[end : match.start()]) + "{" + names[match[1]] + "}"
            end, is_plain = match.end(), False
    return literal(text) if is_plain else "f" + literal(pieces + _escape(text[end:]))


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def identifier(name: str) -> str:
    """A name of a scenario as an identifier; callers add a suffix, so no keyword comes out."""
    return name.replace("-", "_").replace(".", "_")


def seconds(duration_ns: int) -> str:
    """A duration as a literal in seconds."""
    return f"{duration_ns / 1e9:g}"


def broken(text: str) -> list[str]:
    """A long literal of a text in pieces, one for each of its lines, to stand in brackets."""
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        start = 0
        while start < len(line):
            end = start + WIDTH - 20
            if end < len(line):
                end = line.rfind(" ", start, end) + 1 or end
            pieces.append(literal(line[start:end]))
            start = end
    return pieces


def _in_lines(argument: str, room: int) -> list[str]:
    """An argument of a call with its comma, in several lines where it is too long for one."""
    if len(argument) <= room:
        return [argument + ","]
    if argument.startswith('b"'):
        *most, last = _broken_bytes(argument[2:-1], room)
        return [*most, last + ","]
    if argument.startswith('"') and argument.endswith('"'):
        *most, last = broken(json.loads(argument))
        return [*most, last + ","]
    unknown, doubt, known = argument.partition(" is None else ")
    if doubt and unknown.startswith("None if "):
        subject = unknown.removeprefix("None if ")
        otherwise = [f"    else {known}"]
        if len(known) + 10 > room:
            inner = [f"        {term.strip()}" for term in _terms(known)]
            otherwise = ["    else (", *inner, "    )"]
        return ["(", "    None", f"    if {subject} is None", *otherwise, "),"]
    head = "lambda: " if argument.startswith("lambda: ") else ""
    terms = _terms(argument.removeprefix(head))
    if len(terms) == 1:
        return [argument + ","]
    return [head + "(", *("    " + term.strip() for term in terms), "),"]


def _broken_bytes(inside: str, room: int) -> list[str]:
    pieces = [inside]
    while len(pieces[-1]) > room:
        cut = pieces[-1].rfind("\\x", 1, room - 8)
        if cut < 0:
            break
        pieces[-1:] = [pieces[-1][:cut], pieces[-1][cut:]]
    return [f'b"{piece}"' for piece in pieces]


def _terms(condition: str) -> list[str]:
    """The terms of a condition, each with the ``and`` in front of it."""
    terms = [""]
    for part in re.split(r"(?<= )(?=and )", condition):
        # Within a literal there may be the word as well.
        if not terms[-1] or terms[-1].replace('\\"', "").count('"') % 2:
            terms[-1] += part
        else:
            terms.append(part)
    return terms


@dataclass
class Source:
    """The statements of one function in the making; ``lines`` are indented relative to it."""

    lines: list[str] = field(default_factory=list)
    _depth: int = 0

    def add(self, *lines: str) -> None:
        """Append statements at the present depth."""
        self.lines += [" " * (4 * self._depth) + line if line else "" for line in lines]

    def gap(self) -> None:
        """An empty line, unless there is one already."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def comment(self, text: str) -> None:
        """A comment, wrapped."""
        width = WIDTH - 4 * self._depth - 6
        self.add(*("# " + line for line in textwrap.wrap(text, width, break_on_hyphens=False)))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A compound statement; what is added inside of the ``with`` is its body."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def call(self, head: str, arguments: Sequence[str], tail: str = ")") -> None:
        """A call, on one line if it fits: ``head`` ends with the opening bracket."""
        line = head + ", ".join(arguments) + tail
        if len(line) + 4 * self._depth + 4 <= WIDTH and "\n" not in line:
            self.add(line)
            return
        inner = ", ".join(arguments)
        self.add(head)
        if len(inner) + 4 * self._depth + 8 <= WIDTH and "\n" not in inner:
            self.add("    " + inner)
        else:
            for argument in arguments:
                room = WIDTH - 4 * self._depth - 9
                self.add(*("    " + line for line in _in_lines(argument, room)))
        self.add(tail)

    def extend_list(self, name: str, items: Sequence[str]) -> None:
        """``name += [...]`` for items that are Python expressions, in as many lines as it takes."""
        row: list[str] = []
        for item in items:
            if row and len(f"{name} += [{', '.join([*row, item])}]") > WIDTH - 8:
                self.add(f"{name} += [{', '.join(row)}]")
                row = []
            row.append(item)
        if row:
            self.add(f"{name} += [{', '.join(row)}]")
