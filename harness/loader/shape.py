"""What the models of the grammar look like from outside: which members a mapping may have.

Used to say what was expected where something was found that does not fit.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.model.condition import Condition
from harness.model.scenario import Duration, Moment

#: What the patterns of the grammar mean, for people.
NAME_PATTERNS: Mapping[str, str] = {
    r"^[a-z][a-z0-9-]*$": "lower-case letters, digits and dashes, a letter first",
    r"^([a-z][a-z0-9-]*\.)?[a-z][a-z0-9-]*$": "the name of a process or channel, such as monitor "
    "or left.monitor",
    r"^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+$": "area.what-happens, such as "
    "block-fd.eof-opens-the-gate",
    r"^[0-7]{3,4}$": "an octal mode in quotes, such as '0644'",
    r"^[A-Z][A-Z0-9]*(-[A-Z][A-Z0-9]*)*-[0-9]+$": "a clause id such as STATUS-1",
    r"^https?://": "an address that starts with https://",
}


def written_members(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The members of ``model`` under the names that they have in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def bare(annotation: Any) -> Any:
    """``annotation`` without its metadata, and without ``None`` where it is optional."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
            continue
        if origin in (Union, types.UnionType):
            given = [arg for arg in get_args(annotation) if arg is not type(None)]
            if len(given) == 1:
                annotation = given[0]
                continue
        return annotation


def is_choice(annotation: Any) -> bool:
    """Whether it is a union of several forms, for which pydantic says one error a form."""
    return get_origin(bare(annotation)) in (Union, types.UnionType)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a value with this annotation is read as, if it is a mapping with members."""
    found = bare(annotation)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def below(annotation: Any, name: str | int) -> Any:
    """The annotation of the member or item ``name``; ``Any`` when nothing is known about it."""
    found = bare(annotation)
    model = model_of(found)
    if model is not None:
        field = written_members(model).get(str(name))
        return Any if field is None else field.rebuild_annotation()
    origin, arguments = get_origin(found), get_args(found)
    if origin is list and isinstance(name, int):
        return arguments[0]
    if origin is dict:
        return arguments[1]
    if is_choice(found):
        forms = [form for form in arguments if get_origin(bare(form)) is list]
        return below(forms[0], name) if forms and isinstance(name, int) else Any
    return Any


def wanted(annotation: Any) -> str:
    """What a value must be, in plain words."""
    if _is_duration(annotation):
        return "a duration such as 500ms, 2s or 1min"
    found = bare(annotation)
    model = model_of(found)
    if model is not None:
        members = ", ".join(written_members(model))
        listed = "a list of arguments, or " if model.__name__ == "Command" else ""
        return f"{listed}a mapping with {members}"
    origin, arguments = get_origin(found), get_args(found)
    if origin is Literal:
        return " or ".join(literal_words(found))
    if origin is list:
        return (
            "a list"
            if arguments[0] is Any
            else f"a list of {_PLURALS.get(bare(arguments[0]), 'mappings')}"
        )
    if origin is dict:
        return "a mapping from names to values"
    if is_choice(found):
        return ", or ".join(wanted(form) for form in arguments if form is not type(None))
    return _SCALARS.get(found, "another value")


def _is_duration(annotation: Any) -> bool:
    """Whether a whole number is written as a duration: known only from its validator."""
    if get_origin(annotation) is Annotated:
        return get_args(Duration)[1] in get_args(annotation)[1:] or _is_duration(
            get_args(annotation)[0]
        )
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_is_duration, get_args(annotation)))
    return False


def literal_words(annotation: Any) -> list[str]:
    """The values of a ``Literal`` as they are written in YAML."""
    values = get_args(bare(annotation))
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in values]


_SCALARS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Condition: 'a condition such as "bwrap <= 0.13.1"',
}
_PLURALS: Mapping[Any, str] = {str: "text", int: "whole numbers", Moment: "moments"}
