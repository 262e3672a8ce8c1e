"""How values are written in scenario files: names, durations, conditions, closed mappings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from harness.model.condition import Condition, parse_condition

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min)")
_UNIT_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}

#: A wait without ``within`` gives up after this long.  Ordinary waits end in milliseconds (7 to
#: 8 ms for a whole launch, measured); this is the patience of a loaded machine, not an expectation.
DEFAULT_DEADLINE_NS = 5_000_000_000


def parse_duration(value: Any) -> int:
    """``500ms`` -> nanoseconds.  ValueError for anything without a unit, or negative."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value  # already nanoseconds: a stored scenario
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration with its unit, such as 500ms, 2s or 1min")
    return round(float(match[1]) * _UNIT_NS[match[2]])


def _duration(value: Any, info: ValidationInfo) -> int:
    # A number is nanoseconds in a stored scenario; in a file it is a duration without its unit.
    written = info.context is not None and info.context.get("as_written", False)
    return parse_duration(str(value) if written else value)


Duration = Annotated[
    int,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(us|ms|s|min)$"}),
]
When = Annotated[
    Condition,
    BeforeValidator(lambda v: v if isinstance(v, Condition) else parse_condition(v)),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {"type": "string", "examples": ["bwrap <= 0.13.1", "uid != 0 and kernel >= 6.1"]}
    ),
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
#: A member of the cast or a channel, with its sandbox in front when there are several.
Ref = Annotated[str, Field(pattern=r"^([a-z][a-z0-9-]*\.)?[a-z][a-z0-9-]*$")]
SignalName = Literal[
    "HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "PIPE", "ALRM", "CHLD", "CONT", "STOP",
    "TSTP", "TTIN", "TTOU", "WINCH", "SEGV", "ABRT",
]  # fmt: skip


class Closed(BaseModel):
    """A mapping that refuses unknown members."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def exactly_one(model: BaseModel, verbs: tuple[str, ...], what: str) -> str:
    given = [verb for verb in verbs if getattr(model, verb) is not None]
    if len(given) != 1:
        named = ", ".join(verb.rstrip("_") for verb in (given or verbs))
        raise ValueError(f"{what} takes exactly one of: {named}")
    return given[0]
