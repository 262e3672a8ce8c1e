"""YAML text -> nodes that know where they stand.

Composed here from ruamel's parse events rather than by its constructors: nothing but text, numbers,
booleans, null, lists and mappings can come out (no tag is ever obeyed), aliases are counted while
they are expanded, and depth is bounded before Python's own stack is.  The pure *safe* scanner is
used because the round-trip one leaves markers in folded text; positions are the same.

Scalars follow the YAML 1.2 core schema: ``on`` and ``yes`` are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from harness.loader.problem import Problem
from harness.loader.source import Source

#: The grammar nests nine deep; everything else is a mistake or an attack.
DEEPEST = 40
#: Nodes of one file after its aliases are expanded; 512 KB without aliases stays below.
MOST_NODES = 200_000

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False}
_BOOLEANS["FALSE"] = False
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_INFINITE = (float("inf"), float("-inf"))  # what 1e999 becomes

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """One value with the position of its first character; ``line`` and ``column`` count from 0.

    ``value`` is a scalar, a list of nodes, or a mapping from key to (key node, value node).
    """

    line: int
    column: int
    value: Scalar | list[Node] | dict[str, tuple[Node, Node]]
    size: int = 1  # nodes in it, itself counted: what an alias to it costs

    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.value, dict):
            return {key: value.plain() for key, (_, value) in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def child(self, name: str | int) -> Node | None:
        """The item or member called ``name``, or None."""
        if isinstance(self.value, dict) and name in self.value:
            return self.value[str(name)][1]
        if isinstance(self.value, list) and isinstance(name, int) and name < len(self.value):
            return self.value[name]
        return None

    def key(self, name: str | int) -> Node | None:
        """The node of the key ``name`` itself, or None."""
        if isinstance(self.value, dict) and name in self.value:
            return self.value[str(name)][0]
        return None

    def at(self, path: tuple[str | int, ...]) -> Node:
        """The node at ``path``, or the deepest one on the way to it."""
        node = self
        for name in path:
            below = node.child(name)
            if below is None:
                return node
            node = below
        return node


_TAGGED = (ScalarEvent, SequenceStartEvent, MappingStartEvent)


class _Refused(Exception):
    """Reading the file stops here."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def read_documents(source: Source) -> tuple[list[Node], list[Problem]]:
    """The documents of a file, as far as it can be read, and what is wrong with its YAML."""
    composer = _Composer(source)
    documents: list[Node] = []
    try:
        documents.extend(composer.documents())
    except _Refused as fault:
        composer.problems.append(source.problem(fault.line, fault.column, fault.message))
    except MarkedYAMLError as fault:
        composer.problems.append(_syntax_problem(source, fault))
    except YAMLError as fault:
        composer.problems.append(_forbidden_character(source, fault))
    except (ValueError, OverflowError, AssertionError, IndexError, TypeError, AttributeError):
        # ruamel lets these out on some broken input ("\UFFFFFFFF" in double quotes, for one).
        line, column = composer.line, composer.column
        message = "cannot be read as YAML from here on; expected valid YAML 1.2"
        composer.problems.append(source.problem(line, column, message))
    return documents, composer.problems


class _Composer:
    """Builds the nodes of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.line = self.column = 0  # of the last event
        self._events: Iterator[Event] = iter(())
        self._anchors: dict[str, Node | None] = {}
        self._count = 0

    def documents(self) -> Iterator[Node]:
        """The documents, in order; `_Refused` or ruamel's own errors where reading must stop."""
        self._events = YAML(typ="safe", pure=True).parse(self.source.text)
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if event.version is not None and tuple(event.version) != (1, 2):
                    raise _Refused(0, 0, "asks for another YAML version; expected YAML 1.2")
                self._anchors = {}
            elif isinstance(event, NodeEvent):
                yield self._node(event, 0)

    def _next(self) -> Event:
        event = next(self._events)
        self.line, self.column = event.start_mark.line, event.start_mark.column
        return event

    def _node(self, event: Event, depth: int) -> Node:
        line, column = event.start_mark.line, event.start_mark.column
        if depth > DEEPEST:
            raise _Refused(line, column, f"is nested more than {DEEPEST} deep")
        if isinstance(event, AliasEvent):
            node = self._alias(event)
        elif not isinstance(event, _TAGGED):
            raise _Refused(line, column, "cannot be read as YAML; expected a value")
        else:
            self._refuse_tag(event)
            if event.anchor:
                self._anchors[event.anchor] = None  # known, but not whole: no alias inside itself
            if isinstance(event, ScalarEvent):
                node = Node(line, column, self._scalar(event))
            elif isinstance(event, SequenceStartEvent):
                node = self._sequence(event, depth)
            else:
                node = self._mapping(event, depth)
            if event.anchor:
                self._anchors[event.anchor] = node
        self._count += 1 if not isinstance(event, AliasEvent) else node.size
        if self._count > MOST_NODES:
            message = f"aliases make more than {MOST_NODES} values of this file; expected fewer"
            raise _Refused(line, column, message)
        return node

    def _alias(self, event: AliasEvent) -> Node:
        line, column = event.start_mark.line, event.start_mark.column
        if event.anchor not in self._anchors:
            raise _Refused(line, column, f"alias *{event.anchor} stands for nothing before it")
        target = self._anchors[event.anchor]
        if target is None:
            raise _Refused(line, column, f"alias *{event.anchor} is inside what it stands for")
        return Node(line, column, target.value, target.size)

    def _refuse_tag(self, event: ScalarEvent | SequenceStartEvent | MappingStartEvent) -> None:
        # ``tag`` is None unless one is written; a lone ! only says that the value is text.
        if event.tag is not None and event.tag != "!":
            line, column = event.start_mark.line, event.start_mark.column
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            message = f"tag {tag} is not allowed; expected plain YAML without tags"
            self.problems.append(self.source.problem(line, column, message))

    def _sequence(self, start: Event, depth: int) -> Node:
        items = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        size = 1 + sum(item.size for item in items)
        return Node(start.start_mark.line, start.start_mark.column, items, size)

    def _mapping(self, start: Event, depth: int) -> Node:
        members: dict[str, tuple[Node, Node]] = {}
        size = 1
        while not isinstance(event := self._next(), MappingEndEvent):
            plain_merge = isinstance(event, ScalarEvent) and event.value == "<<" and not event.style
            key = self._node(event, depth + 1)
            value = self._node(self._next(), depth + 1)
            size += key.size + value.size
            if plain_merge:
                self._say(key, "<< is not part of YAML 1.2; expected the members themselves")
            elif not isinstance(key.value, str):
                self._say(key, f"a key must be text, not {describe(key.value)}; quote it")
            elif key.value in members:
                first = members[key.value][0]
                where = f"line {first.line + 1}, column {first.column + 1}"
                self._say(key, f'"{key.value}" is given twice; the first is in {where}')
            else:
                members[key.value] = (key, value)
        return Node(start.start_mark.line, start.start_mark.column, members, size)

    def _say(self, node: Node, message: str) -> None:
        self.problems.append(self.source.problem(node.line, node.column, message))

    def _scalar(self, event: ScalarEvent) -> Scalar:
        text: str = event.value
        if event.style:
            return text
        value = plain_scalar(text)
        if value in _INFINITE or _NOT_FINITE.fullmatch(text):
            line, column = event.start_mark.line, event.start_mark.column
            message = f"{text} is not a number that can be compared; expected a finite one"
            self.problems.append(self.source.problem(line, column, message))
            return text
        return value


def plain_scalar(text: str) -> Scalar:
    """What unquoted ``text`` means in the core schema of YAML 1.2 (chapter 10.3)."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def describe(value: object) -> str:
    """A value in plain words, for "got ..."."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}" if abs(value) < 1e18 else "a huge number"
        case str():
            return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}..."'
        case list():
            return "a list"
        case _:
            return "a mapping"


def _syntax_problem(source: Source, fault: MarkedYAMLError) -> Problem:
    mark = fault.problem_mark or fault.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    text = source.lines[line] if line < len(source.lines) else ""
    if text[column : column + 1] == "\t":
        return source.problem(line, column, "a tab cannot indent YAML; expected spaces")
    said = " ".join(str(fault.problem or "it ends too early").split())
    while_doing = f" ({' '.join(str(fault.context).split())})" if fault.context else ""
    return source.problem(line, column, f"cannot be read as YAML: {said}{while_doing}")


def _forbidden_character(source: Source, fault: YAMLError) -> Problem:
    position = int(getattr(fault, "position", 0) or 0)
    before = source.text[:position]
    line = before.count("\n")
    column = position - (before.rfind("\n") + 1)
    code = ord(source.text[position]) if position < len(source.text) else 0
    message = f"the character U+{code:04X} is not allowed in YAML; expected text"
    return source.problem(line, column, message)
