"""What a scenario says and what its plan keeps to itself (design law 3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from harness.model.expectation import EXPECT_VERBS
from harness.model.notation import parse_duration
from harness.model.scenario import Scenario

#: Every text of it that says what ought to happen, or what the scenario is about, has this in it.
SECRET = "secret"
MOMENTS = [{"line": "status", "contains": "secret-a"}, {"eof": "secret-b"}]
EXPECTATIONS: list[dict[str, Any]] = [
    {"exit": {"of": "monitor", "code": 237}},
    {"objects": {"on": "status", "count": 238, "none_has": "secret-c", "members": [["secret-d"]]}},
    {"field": {"on": "status", "member": "secret-e", "equals": "secret-f"}},
    {"text": {"on": "stdout", "contains": "secret-g"}},
    {"eof": {"on": "secret-h"}},
    {"order": MOMENTS},
    {"gap": {"from": MOMENTS[0], "to": MOMENTS[1], "at_most": "239ms"}},
    {"ran": "secret-i"},
    {"never_ran": "secret-j"},
    {"survivors": ["secret-k"]},
    {"zombies": ["secret-l"]},
    {"alive": "secret-m"},
    {"locks": {"at": "secret-n", "held": ["write"], "by": "secret-o"}},
    {"fds": {"at": "secret-p", "has_channel": "secret-q"}},
    {"observed": {"path": "secret-r", "equals": {"deep": ["secret-s"]}}},
    {"probe": {"at": "secret-t", "path": "secret-u", "contains": "secret-v"}},
    {"outcome": {"of": "secret-w", "kind": "exited", "stderr_contains": "secret-x"}},
    {"reached": {"marker": "secret-y"}, "name": "secret-z", "clause": "SECRET-1"},
]


def whole(**members: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "id": "area.case",
            "title": "The secret title of this scenario",
            "clauses": ["SECRET-2"],
            "refs": ["https://secret.example"],
            "tags": ["secret-tag"],
            "claim": "refuted",
            "notes": "secret notes",
            "sandbox": {
                "args": ["--unshare-pid"],
                "command": {"shell": "true"},
                "channels": {"status": {"option": "json-status-fd"}},
            },
            "expect": EXPECTATIONS,
            "known": [
                {
                    "rule": "exit",
                    "when": "bwrap <= 0.231.1",
                    "because": "secret reason",
                    "issue": "https://secret.example/1",
                    "fixed_in": "0.232.1",
                    "observed": "secret words",
                    "rate_at_least": 0.236,
                }
            ],
            "repeat": 233,
            "rate": {"at_most": 0.234},
            **members,
        }
    )


def texts(value: object) -> Iterator[str]:
    """Every text, number and key in a value of JSON, as text."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield str(key)
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)
    else:
        yield str(value)


def test_the_plan_carries_no_expectation() -> None:
    assert {next(iter(each)) for each in EXPECTATIONS} == set(EXPECT_VERBS)
    found = list(texts(json.loads(json.dumps(whole().plan()))))
    telling = ("23", SECRET, "refuted", "known", "expect", "title", "claim", "clause", "rate")
    assert [each for each in found if any(word in each.lower() for word in telling)] == []


def test_the_search_for_expectations_would_find_them() -> None:
    found = "\n".join(texts(whole().model_dump(mode="json")))
    for word in (SECRET, "237", "238", "239", "0.231.1", "0.236", "refuted", "expect", "title"):
        assert word in found


def test_the_plan_is_the_same_whatever_is_expected() -> None:
    other = whole(
        expect=[{"exit": {"of": "monitor", "code": 0}}],
        known=[],
        title="Another title altogether",
        clauses=["OTHER-1"],
        tags=[],
        refs=[],
        claim=None,
        notes=None,
        rate=None,
        repeat=1,
    )
    assert whole().plan() == other.plan()


def test_the_plan_has_everything_that_is_to_be_done() -> None:
    plan = whole(
        files={"lock": {}},
        helpers={"keeper": {"lock": "write", "file": "lock"}},
        steps=[{"signal": {"to": "monitor", "send": "TERM"}, "trigger": True}, {"settle": "1s"}],
    ).plan()
    assert json.loads(json.dumps(plan)) == plan
    assert plan["files"] == {"lock": {"content": "", "mode": "0644"}}
    assert plan["helpers"]["keeper"]["lock"] == "write"
    assert list(plan["sandboxes"]) == ["main"]
    assert [(step["verb"], step["trigger"], step["within"]) for step in plan["steps"]] == [
        ("launch", False, 5_000_000_000),
        ("signal", True, 5_000_000_000),
        ("settle", False, 5_000_000_000),
    ]


BOX = {"command": ["true"]}
STEPS: dict[str, tuple[dict[str, Any], list[tuple[str, Any, bool]]]] = {
    "without steps the launch is the trigger": (
        {},
        [("launch", "main", True), ("wait", "main", False)],
    ),
    "sandboxes without a launch step are launched first": (
        {"sandbox": None, "sandboxes": {"a": BOX, "b": BOX}, "steps": [{"launch": "b"}]},
        [("launch", "a", False), ("launch", "b", False)],
    ),
    "a sandbox with a launch step is not launched twice": (
        {"steps": [{"settle": "1s"}, {"launch": "main", "trigger": True}]},
        [("settle", None, False), ("launch", "main", True)],
    ),
    "several without steps are all launched and waited for": (
        {"sandbox": None, "sandboxes": {"a": BOX, "b": BOX}},
        [("launch", "a", True), ("launch", "b", True), ("wait", "a", False), ("wait", "b", False)],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_may_be_left_unsaid_is_in_its_place(name: str) -> None:
    members, steps = STEPS[name]
    assert [
        (step.verb, step.launch or (step.wait.end if step.wait else None), step.trigger)
        for step in whole(**members).all_steps
    ] == steps


def test_rules_are_called_by_their_name_or_by_their_verb_with_a_number() -> None:
    rules = [
        {"exit": {"of": "monitor", "code": 0}},
        {"never_ran": "a"},
        {"exit": {"of": "child", "code": 0}, "name": "the-child"},
        {"exit": {"of": "child", "any": True}},
        {"never_ran": "b"},
    ]
    names = whole(expect=rules, known=[]).rule_names()
    assert names == ["exit", "never-ran", "the-child", "exit-2", "never-ran-2"]


def test_a_stored_scenario_is_read_back_as_it_was() -> None:
    stored = whole().model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
    )
    assert Scenario.model_validate(json.loads(json.dumps(stored))) == whole()


DURATIONS = {
    "500ms": 500_000_000,
    "2s": 2_000_000_000,
    "1min": 60_000_000_000,
    "3us": 3_000,
    "0.5s": 500_000_000,
    "1.5 ms": 1_500_000,
    " 2s ": 2_000_000_000,
    "0s": 0,
    "0.1us": 100,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_is_nanoseconds(text: str) -> None:
    assert parse_duration(text) == DURATIONS[text]


NO_DURATIONS: list[object] = [
    *("", "5", "s", "-1s", "1h", "1 sec", "1s 2ms", "1,5s", "1e3s", ".5s", "nan s", "\u0661s"),
    *(None, 1.5, True, -1, ["1s"]),
]


@pytest.mark.parametrize("value", NO_DURATIONS)
def test_what_is_no_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration with its unit, such as 500ms"):
        parse_duration(value)


def test_a_number_is_nanoseconds_in_a_stored_scenario_and_refused_in_a_file() -> None:
    steps = [{"settle": 250, "trigger": True}]
    assert whole(steps=steps).all_steps[1].settle == 250
    as_written = {**whole().model_dump(by_alias=True, exclude_none=True), "steps": steps}
    with pytest.raises(ValidationError, match="expected a duration with its unit"):
        Scenario.model_validate(as_written, context={"as_written": True})
