"""The grammar as JSON Schema draft-07, for editors.

Generated from the models, then brought from pydantic's dialect (2020-12) to the one that
yaml-language-server and its kin implement.  It says what one document can say about itself; what
needs names to be resolved is the loader's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.loader.timing import in_units
from harness.model.scenario import (
    EXPECT_VERBS,
    MOMENT_VERBS,
    PROBE_VERBS,
    STEP_VERBS,
    WAIT_VERBS,
    Scenario,
)

DIALECT = "http://json-schema.org/draft-07/schema#"

#: Models that take exactly one of these members.  The models check it in code, where a generator
#: cannot see it; a test compares each entry with what its model does.
EXACTLY_ONE: Mapping[str, tuple[str, ...]] = {
    "Scenario": ("sandbox", "sandboxes"),
    "Command": ("argv", "shell", "observe"),
    "Step": STEP_VERBS,
    "WaitFor": WAIT_VERBS,
    "SendSignal": ("to", "group_of"),
    "Probe": PROBE_VERBS,
    "Moment": MOMENT_VERBS,
    "Expectation": EXPECT_VERBS,
    "ExpectExit": ("code", "signal", "any", "never"),
    "ExpectField": ("equals", "pid_of", "inode_of", "absent"),
    "ExpectText": ("contains", "lacks", "empty", "lines", "at_least_bytes"),
    "ExpectFds": ("numbers", "has_channel", "lacks_channel"),
    "ExpectObserved": ("equals", "keys", "contains", "lacks", "absent"),
    "ExpectProbe": ("equals", "contains", "lacks", "same_as", "differs_from"),
}

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of one document of a scenario file: a scenario, or a list of them."""
    whole = Scenario.model_json_schema(ref_template="#/definitions/{model}", by_alias=True)
    definitions: dict[str, Schema] = whole.pop("$defs")
    definitions["Scenario"] = whole
    for name, definition in definitions.items():
        _rewrite(definition)
        if name in EXACTLY_ONE:
            members = [verb.rstrip("_") for verb in EXACTLY_ONE[name]]
            definition["oneOf"] = [{"required": [member]} for member in members]
    definitions["Command"] = _or_arguments(definitions["Command"])
    scenario = {"$ref": "#/definitions/Scenario"}
    return {
        "$schema": DIALECT,
        "title": "harness scenarios",
        "description": "One scenario, or a list of scenarios, about supervising bwrap.",
        "anyOf": [scenario, {"type": "array", "items": scenario, "minItems": 1}],
        "definitions": dict(sorted(definitions.items())),
    }


def _or_arguments(command: Schema) -> Schema:
    """A command may be written as the list of its arguments."""
    arguments = command["properties"]["argv"]
    listed = {"type": "array", "items": arguments["items"], "minItems": 1}
    return {"description": command["description"], "anyOf": [listed, command]}


def _rewrite(schema: Schema) -> None:
    """Bring one schema and everything below it to draft-07, in place."""
    for below in list(_subschemas(schema)):
        _rewrite(below)
    schema.pop("title", None)
    schema.pop("discriminator", None)
    _without_null(schema)
    _default_as_written(schema)
    if "patternProperties" in schema:
        # pydantic leaves names that do not match the pattern to be anything.
        schema["additionalProperties"] = False
    if "$ref" in schema and len(schema) > 1:
        # In draft-07 everything beside $ref is ignored.
        schema["allOf"] = [{"$ref": schema.pop("$ref")}]


def _subschemas(schema: Schema) -> Iterator[Schema]:
    for key in ("properties", "patternProperties"):
        yield from schema.get(key, {}).values()
    for key in ("anyOf", "allOf", "oneOf"):
        yield from schema.get(key, ())
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), dict):
            yield schema[key]


def _without_null(schema: Schema) -> None:
    """An optional member is left out, never null: the loader refuses members without a value."""
    forms = [form for form in schema.get("anyOf", ()) if form != {"type": "null"}]
    if "anyOf" in schema and len(forms) == 1:
        del schema["anyOf"]
        for key, value in forms[0].items():
            schema.setdefault(key, value)
    elif "anyOf" in schema:
        schema["anyOf"] = forms
    if schema.get("default", ...) is None:
        del schema["default"]


def _default_as_written(schema: Schema) -> None:
    """Durations are nanoseconds inside and text outside; a mapping as default says little."""
    default = schema.get("default")
    if isinstance(default, dict):
        del schema["default"]
    elif isinstance(default, int) and schema.get("type") == "string":
        schema["default"] = in_units(default)
