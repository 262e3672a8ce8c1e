"""Every kind of check is seen to find what is not so: a false expectation gives exit status 1."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repro_place import by_id, check_needs, run_script, script_of

from harness.repro.check_snippets import BEFORE
from harness.repro.source import literal

Rule = dict[str, Any]


def other(**members: Any) -> Callable[[Rule], Rule]:
    """A rule with other members than it has; None takes one away."""

    def change(given: Rule) -> Rule:
        changed = {**given, **members}
        return {key: value for key, value in changed.items() if value is not None}

    return change


#: Verb and member of a rule, and what makes it false where it is true.
FALSE: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("exit", "code", other(code=77)),
    ("exit", "signal", other(signal="USR2")),
    ("exit", "code", other(code=None, never=True)),
    ("exit", "never", other(never=None, any=True)),
    ("objects", "count", other(count=7)),
    ("objects", "members", other(members=[["no-such-member"]])),
    ("objects", "none_has", other(none_has="child-pid")),
    ("objects", "some_has", other(some_has="no-such-member")),
    ("field", "equals", other(equals=77)),
    ("field", "pid_of", other(pid_of="monitor")),
    ("field", "absent", other(member="child-pid")),
    ("field", "inode_of", lambda given: {**given, "member": "child-pid"}),
    ("text", "contains", other(contains="no such words")),
    ("text", "lacks", other(lacks="")),
    ("text", "empty", lambda given: {**given, "empty": not given["empty"]}),
    ("text", "lines", other(lines=["no such line"])),
    ("text", "contains", other(contains=None, at_least_bytes=10**9)),
    ("eof", "on", lambda given: {**given, "seen": not given.get("seen", True)}),
    ("order", "", lambda given: given[::-1]),
    ("gap", "at_most", other(at_most=None, at_least="1min")),
    ("gap", "at_least", other(at_least="1min")),
    ("ran", "", lambda _: "no-such-file"),
    ("survivors", "none", lambda _: ["monitor"]),
    ("survivors", "list", lambda _: "none"),
    ("zombies", "", lambda _: ["monitor"]),
    ("alive", "", lambda _: "command"),
    ("locks", "held", other(held=["read", "read", "read"])),
    ("locks", "by", other(by="monitor")),
    ("fds", "numbers", other(numbers=[0, 1, 2, 3, 4, 5])),
    ("fds", "has_channel", lambda g: {"at": g["at"], "lacks_channel": g["has_channel"]}),
    ("fds", "lacks_channel", lambda g: {"at": g["at"], "has_channel": g["lacks_channel"]}),
    ("observed", "equals", other(equals="nothing like it")),
    ("observed", "keys", other(keys=["NO_SUCH"])),
    ("observed", "absent", other(path="environment.PATH")),
    ("probe", "equals", other(equals=["nothing like it"])),
    ("probe", "contains", other(contains="SEGV")),
    ("probe", "lacks", other(lacks="USR1")),
    ("probe", "same_as", lambda g: {**other(same_as=None)(g), "differs_from": g["same_as"]}),
    (
        "probe",
        "differs_from",
        lambda g: {
            **other(differs_from=None)(g),
            "same_as": g["differs_from"],
        },
    ),
]


def has(value: Any, member: str) -> bool:
    """Whether a rule is of this form."""
    if member in ("none", "list"):
        return bool((member == "none") == (value == "none"))
    return member == "" or member in dict(value)


def find(verb: str, member: str) -> tuple[str, int]:
    """A scenario that holds, the same every time, and has such a rule; and which one it is."""
    for scenario_id, each in by_id().items():
        scenario = each.scenario
        if scenario.known or scenario.supervisor.kind == "reference" or scenario.providers:
            continue
        said = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for number, rule in enumerate(said["expect"]):
            if rule.get(verb) is not None and has(rule[verb], member):
                return scenario_id, number
    raise AssertionError(f"no scenario has a rule {verb} with {member}")


@pytest.mark.parametrize(("verb", "member", "falsify"), FALSE)
def test_a_check_that_does_not_hold_is_a_deviation(
    verb: str, member: str, falsify: Callable[[Any], Any], one_bwrap: str, tmp_path: Path
) -> None:
    scenario_id, number = find(verb, member)
    check_needs(scenario_id)

    def change(said: dict[str, Any]) -> None:
        rule = said["expect"][number]
        rule[verb] = falsify(rule[verb])
        rule["name"] = "this-one"

    done = run_script(script_of(scenario_id, change), tmp_path, one_bwrap)
    assert done.code == 1, f"{scenario_id}: {done}"
    assert re.findall(r"^(\S+): DEVIATION$", done.out, re.MULTILINE) == ["this-one"], done


def test_a_file_that_must_not_appear_and_does_is_a_deviation(
    one_bwrap: str, tmp_path: Path
) -> None:
    def change(said: dict[str, Any]) -> None:
        said["expect"] = [{"never_ran": "ran"}]

    scenario_id = next(
        each.scenario.id
        for each in by_id().values()
        if any(rule.ran == "ran" for rule in each.scenario.expect)
        and not each.scenario.known
        and each.scenario.supervisor.kind == "scripted"
    )
    done = run_script(script_of(scenario_id, change), tmp_path, one_bwrap)
    assert done.code == 1, done


def test_a_wait_that_is_not_met_is_a_deviation(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        wait = {"marker": "no-such-file"}
        del said["sandboxes"]
        said["sandbox"] = {"command": ["true"]}
        said["steps"] = [{"launch": "main", "trigger": True}, {"wait": wait, "within": "200ms"}]
        said["expect"] = [{"reached": wait}]

    done = run_script(script_of("exit-status.codes-pass-through", change), tmp_path, one_bwrap)
    assert done.code == 1, done


def test_an_object_that_is_not_whole_is_a_deviation(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        del said["sandboxes"]
        said["sandbox"] = {"command": {"shell": "printf '{}'"}}
        said["expect"] = [{"objects": {"on": "stdout", "fragments_joined": True}}]

    done = run_script(script_of("exit-status.codes-pass-through", change), tmp_path, one_bwrap)
    assert done.code == 1, done


def test_what_came_in_one_wake_up_has_no_order() -> None:
    script: dict[str, Any] = {"events": []}
    exec(BEFORE, script)

    class Event:
        def __init__(self, wake_up: int, kind: str, name: str, late: bool = False) -> None:
            self.wake_up, self.kind, self.name, self.late = wake_up, kind, name, late
            script["events"].append(self)

    line, end, later, exited = (
        Event(1, "line", "status"),
        Event(1, "eof", "status"),
        Event(1, "line", "stdout", late=True),
        Event(2, "exit", "monitor"),
    )
    before = script["before"]
    assert before(line, end) is True  # one pipe
    assert before(end, line) is False
    assert before(line, later) is None  # two pipes, one wake-up
    assert before(line, exited) is True
    assert before(exited, line) is False
    assert before(later, exited) is None  # it may have come while the first line was read


@pytest.mark.parametrize("text", ['a "quoted" word', "back\\slash", "two\nlines\t\x00\x1b", "ü"])
def test_a_literal_is_the_text(text: str) -> None:
    assert eval(literal(text)) == text
