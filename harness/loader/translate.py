"""A node -> a model, and what pydantic says against it -> problems in plain words.

pydantic knows what is wrong; this module knows where it stands in the file and how to say it.
Nothing of pydantic's wording, and no error twice because a value may have several forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.loader.nodes import Node, describe
from harness.loader.problem import Problem, in_words, nearest, suggestion
from harness.loader.shape import (
    NAME_PATTERNS,
    below,
    is_choice,
    literal_words,
    model_of,
    wanted,
    written_members,
)
from harness.loader.source import Source

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong at ``path`` in one document; ``at_key``: its key is wrong, not its value."""

    path: Path
    message: str
    at_key: bool = False


def locate(source: Source, root: Node, fault: Fault) -> Problem:
    """The problem that a fault is, in its file."""
    node = root.at(fault.path)
    if fault.at_key and fault.path:
        node = root.at(fault.path[:-1]).key(fault.path[-1]) or node
    return source.problem(node.line, node.column, fault.message)


def validate(model: type[Model], node: Node) -> tuple[Model | None, list[Fault]]:
    """``node`` as ``model``; or None with everything that is wrong with it."""
    empty = list(_members_without_value(model, node, ()))
    try:
        # strict: pydantic would take "7" for 7 and "yes" for true, and YAML 1.2 does not.
        # by_name: the models know the members from, is, pass and for as from_, is_, ...
        value = model.model_validate(
            node.plain(), strict=True, by_alias=True, by_name=False, context={"as_written": True}
        )
    except ValidationError as error:
        return None, empty + list(_faults(model, node, error, {fault.path for fault in empty}))
    return (None if empty else value), empty


def _members_without_value(annotation: Any, node: Node, path: Path) -> Iterator[Fault]:
    """Members that are named but left empty: never meant, whatever the model would make of it."""
    model = model_of(annotation)
    if isinstance(node.value, dict):
        for name, (_, value) in node.value.items():
            if value.value is None and model is not None and name in written_members(model):
                what = wanted(below(model, name))
                yield Fault((*path, name), f"{name} has no value; expected {what}", at_key=True)
            else:
                yield from _members_without_value(below(annotation, name), value, (*path, name))
    elif isinstance(node.value, list):
        for index, item in enumerate(node.value):
            yield from _members_without_value(below(annotation, index), item, (*path, index))


def _faults(
    model: type[BaseModel], root: Node, error: ValidationError, said: set[Path]
) -> Iterator[Fault]:
    """pydantic's errors as faults, without those that follow from another one."""
    details = error.errors(include_url=False)
    explained = said | set(_meant_members(model, root, details))
    incomplete = {path[:-1] for path in said}
    several_forms: set[Path] = set()
    places = [_place(model, root, detail["loc"]) for detail in details]
    for detail, (path, of_a_form) in zip(details, places, strict=True):
        if path in said or (
            detail["type"] == "missing" and (*path, detail["loc"][-1]) in explained
        ):
            continue
        if detail["type"] == "value_error" and path in incomplete:
            continue  # it counts the members that have a value, and one of them has lost its own
        if of_a_form:
            form_is_right = any(p[: len(path)] == path != p for p, _ in places)
            if path not in several_forms and not form_is_right:
                several_forms.add(path)
                what = wanted(reduce(below, path, model))
                yield Fault(path, f"expected {what}, got {describe(root.at(path).value)}")
            continue
        yield _fault(model, root, path, detail)


def _meant_members(
    model: type[BaseModel], root: Node, details: list[ErrorDetails]
) -> Iterator[Path]:
    """The members that unknown ones were probably meant as: they are not missing as well."""
    for detail in details:
        if detail["type"] == "extra_forbidden":
            path, _ = _place(model, root, detail["loc"])
            for name in nearest(str(path[-1]), _siblings(model, path))[:1]:
                yield (*path[:-1], name)


def _siblings(model: type[BaseModel], path: Path) -> list[str]:
    """The names that are allowed where the last part of ``path`` stands."""
    around = model_of(reduce(below, path[:-1], model))
    return [] if around is None else list(written_members(around))


def _place(model: type[BaseModel], root: Node, loc: tuple[int | str, ...]) -> tuple[Path, bool]:
    """Where ``loc`` leads in the document, and whether the error is about one form of a choice.

    ``loc`` also names forms of a union (``list[...]``), ``[key]`` after a key, and members that are
    not in the document; none of these is a part of the path.
    """
    path: list[str | int] = []
    annotation: Any = model
    node = root
    of_a_form = False
    for name in loc:
        if is_choice(annotation) and isinstance(name, str):
            of_a_form = True
            continue
        child = node.child(name)
        if child is None:
            continue
        # An item: the list form was meant, and what is wrong is not the form.
        of_a_form = of_a_form and not isinstance(name, int)
        path.append(name)
        annotation = below(annotation, name)
        node = child
    return tuple(path), of_a_form


def _fault(model: type[BaseModel], root: Node, path: Path, detail: ErrorDetails) -> Fault:
    """One error of pydantic in plain words."""
    kind, loc, context = detail["type"], detail["loc"], detail.get("ctx", {})
    annotation = reduce(below, path, model)
    value = root.at(path).value
    got = describe(value)
    if loc[-1:] == ("[key]",):
        return Fault(path, _wrong_key(str(path[-1]), context), at_key=True)
    match kind:
        case "extra_forbidden":
            name = str(path[-1])
            known = suggestion(name, _siblings(model, path))
            return Fault(path, f'there is no member "{name}" here; {known}', at_key=True)
        case "missing":
            return Fault(
                path, f"{loc[-1]} is missing here; expected {_missing(annotation, loc[-1])}"
            )
        case "value_error":
            return Fault(path, str(context["error"]))
        case "literal_error":
            words = literal_words(annotation)
            near = nearest(value, words) if isinstance(value, str) else []
            hint = f"did you mean {in_words(near)}?" if near else f"expected {in_words(words)}"
            return Fault(path, f"{got} is not allowed here; {hint}")
        case "string_pattern_mismatch":
            return Fault(path, f"expected {_pattern(context)}, got {got}")
        case _:
            what = _measure(kind, context) or wanted(annotation)
            unquoted = kind == "string_type" and isinstance(value, (bool, int, float))
            got = str(context["actual_length"]) if kind == "too_short" else got
            return Fault(path, f"expected {what}, got {got}{'; quote it' if unquoted else ''}")


def _wrong_key(name: str, context: dict[str, Any]) -> str:
    """What is said about a key of a free mapping that is not of the right form."""
    if "pattern" in context:
        return f'"{name}" is not a name; expected {_pattern(context)}'
    known = [word.strip("'") for word in re.split(r", | or ", context["expected"])]
    return f'"{name}" is not allowed here; {suggestion(name, known)}'


def _pattern(context: dict[str, Any]) -> str:
    pattern = context["pattern"]
    return NAME_PATTERNS.get(pattern, f"text that matches {pattern}")


def _missing(annotation: Any, name: str | int) -> str:
    return wanted(below(annotation, name))


def _measure(kind: str, context: dict[str, Any]) -> str:
    """The bound that a value is on the wrong side of, in plain words; empty for other errors."""
    match kind:
        case "string_too_short":
            return f"at least {_counted(context['min_length'], 'character')}"
        case "too_short":
            what = "mapping" if context["field_type"] == "Dictionary" else "list"
            return f"a {what} with at least {_counted(context['min_length'], 'entry')}"
        case "greater_than_equal":
            return f"at least {context['ge']:.10g}"
        case "less_than_equal":
            return f"at most {context['le']:.10g}"
        case "greater_than":
            return f"more than {context['gt']:g}"
        case "less_than":
            return f"less than {context['lt']:g}"
        case _:
            return ""


def _counted(number: int, noun: str) -> str:
    plural = "entries" if noun == "entry" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
