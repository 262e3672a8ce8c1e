"""The JSON Schema is valid draft-07, describes everything, and agrees with the loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from loader_writing import GOOD, TWO_BOXES
from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from test_loader_form import CASES as FORM_CASES
from test_loader_names import CASES as NAME_CASES
from test_loader_names import GOOD_VARIANTS
from test_loader_timing import CASES as TIMING_CASES

from harness.loader import json_schema
from harness.loader.nodes import read_documents
from harness.loader.schema import EXACTLY_ONE
from harness.loader.source import Source
from harness.loader.translate import validate
from harness.model import scenario as grammar
from harness.model.scenario import Scenario

SCHEMA = json_schema()
VALIDATOR = Draft7Validator(SCHEMA)


def everywhere(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping in the schema with its path; names of properties are not keywords."""
    if isinstance(schema, dict):
        yield path, schema
        for key, below in schema.items():
            yield from everywhere(below, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, below in enumerate(schema):
            yield from everywhere(below, f"{path}/{index}")


def plain(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def form_is_right(text: str) -> bool:
    """Whether the loader takes the form of a document (names in it are another matter)."""
    documents, problems = read_documents(Source("one.yaml", text, tuple(text.split("\n"))))
    assert problems == []
    return validate(Scenario, documents[0])[1] == []


def test_it_is_valid_draft_07_and_plain_json() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_nothing_of_a_later_draft_is_in_it() -> None:
    for path, schema in everywhere(SCHEMA):
        if path.endswith(("/properties", "/patternProperties", "/definitions")):
            continue
        assert not schema.keys() & {"$defs", "prefixItems", "dependentRequired"}, path
        if "$ref" in schema:
            assert list(schema) == ["$ref"], path  # draft-07 ignores everything beside it
            assert schema["$ref"].startswith("#/definitions/"), path


def test_every_property_has_a_description_and_no_generated_title() -> None:
    count = 0
    for path, schema in everywhere(SCHEMA["definitions"]):
        if path.endswith("/properties"):
            for name, below in schema.items():
                count += 1
                assert below.get("description"), f"{path}/{name}"
                assert "title" not in below, f"{path}/{name}"
    assert count > 100


def test_every_mapping_is_closed() -> None:
    for path, schema in everywhere(SCHEMA["definitions"]):
        if schema.get("type") == "object" and "properties" in schema:
            assert schema["additionalProperties"] is False, path
        if "patternProperties" in schema:
            assert schema["additionalProperties"] is False, path


def test_durations_are_text_with_a_unit_and_so_are_their_defaults() -> None:
    within = SCHEMA["definitions"]["Step"]["properties"]["within"]
    assert within == {
        "type": "string",
        "pattern": r"^\d+(\.\d+)?\s*(us|ms|s|min)$",
        "default": "5s",
        "description": "The deadline of this step.",
    }


GOOD_SAMPLES = {"one sandbox": GOOD, "two sandboxes": TWO_BOXES, **GOOD_VARIANTS}
#: Wrong in form, and the schema cannot say so: a condition is read by code.
BEYOND_SCHEMA = {"a condition that cannot be read"}


@pytest.mark.parametrize("text", GOOD_SAMPLES.values(), ids=GOOD_SAMPLES.keys())
def test_what_the_loader_takes_is_valid_against_the_schema(text: str) -> None:
    document = plain(text)
    assert form_is_right(text)
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    assert VALIDATOR.is_valid([document, document])


@pytest.mark.parametrize("name", FORM_CASES)
def test_what_has_a_wrong_form_is_invalid_against_the_schema(name: str) -> None:
    text, _ = FORM_CASES[name]
    assert not form_is_right(text)
    assert VALIDATOR.is_valid(plain(text)) is (name in BEYOND_SCHEMA)


@pytest.mark.parametrize("name", [*NAME_CASES, *TIMING_CASES])
def test_what_only_names_the_wrong_things_has_a_right_form_for_both(name: str) -> None:
    text, _ = {**NAME_CASES, **TIMING_CASES}[name]
    if name != "no sandbox at all":  # the schema sees this one, the models do not
        assert form_is_right(text)
        assert VALIDATOR.is_valid(plain(text))


@pytest.mark.parametrize("name", [name for name in EXACTLY_ONE if name != "Scenario"])
@pytest.mark.parametrize("given", [0, 2])
def test_exactly_one_in_the_schema_is_exactly_one_in_the_model(name: str, given: int) -> None:
    model: type[BaseModel] = getattr(grammar, name)
    members: dict[str, Any] = dict.fromkeys(model.model_fields)
    members |= dict.fromkeys(EXACTLY_ONE[name][:given], "x")
    made = model.model_construct(None, **members)
    validators = model.__pydantic_decorators__.model_validators.values()
    (check,) = [each.func for each in validators if each.info.mode == "after"]
    with pytest.raises(ValueError, match="takes exactly one of"):
        check(made)


def test_the_schema_knows_every_model_that_takes_exactly_one() -> None:
    folder = Path(grammar.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert source.count("exactly_one(self") == len(EXACTLY_ONE) - 1  # Scenario: in the loader


def test_an_empty_list_of_scenarios_is_refused_by_both() -> None:
    assert not VALIDATOR.is_valid([])


def test_models_still_refuse_what_pydantic_would_convert() -> None:
    with pytest.raises(ValidationError):
        Scenario.model_validate({**plain(GOOD), "repeat": "3"}, strict=True)
