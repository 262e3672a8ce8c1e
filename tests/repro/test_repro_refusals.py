"""What no script can say is refused, and the refusal names the step or rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from repro_place import by_id, script_of

from harness.errors import UsageError

BASE = "pid-1.init-reaps-orphans"


def sandbox(**members: Any) -> Callable[[dict[str, Any]], None]:
    """A scenario whose sandbox has these members."""

    def change(said: dict[str, Any]) -> None:
        said["sandbox"].update(members)

    return change


def step(position: int, **verb: Any) -> Callable[[dict[str, Any]], None]:
    """A scenario with one more step."""

    def change(said: dict[str, Any]) -> None:
        said["steps"].insert(position, verb)

    return change


def rule(**verb: Any) -> Callable[[dict[str, Any]], None]:
    """A scenario with this rule alone."""

    def change(said: dict[str, Any]) -> None:
        said["expect"] = [verb]

    return change


def whole(**members: Any) -> Callable[[dict[str, Any]], None]:
    """A scenario with other members of its own."""
    return lambda said: said.update(members)


REFUSED: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (whole(supervisor={"kind": "reference"}), "the reference supervisor"),
    (whole(needs={"facts": ["wait-channels"]}), "it needs wait-channels"),
    (sandbox(signals={"INT": "default"}), "a signal is set to its default"),
    (sandbox(channels={"a": {"kind": "socketpair", "direction": "to-sandbox"}}), "socketpair"),
    (
        sandbox(channels={"a": {"option": "stdout"}, "b": {"same_number_as": "a", "kind": "file"}}),
        "channel b shares its number",
    ),
    (
        step(2, write={"to": "stdout", "text": "x"}),
        "step 4 (write): stdout is not ours to write to",
    ),
    (step(2, write={"to": "nowhere", "text": "x"}), "step 4 (write) names nowhere"),
    (step(2, wait={"said": "gate-opened"}), "step 4 (wait) waits for a supervisor"),
    (step(2, probe={"connect": "x", "from": "command"}), "step 4 (probe) connects"),
    (step(2, signal={"to": "nobody", "send": "TERM"}), "step 4 (signal) names nobody"),
    (
        step(2, wait={"process": "child", "state": "blocked-on-gate"}),
        "step 4 (wait) waits at a gate that no channel is",
    ),
    (rule(order=[{"said": "gate-opened"}, {"trigger": True}]), "rule order names a moment"),
    (rule(outcome={"kind": "exited"}), "rule outcome is about the reference supervisor"),
    (rule(text={"on": "release", "empty": True}), "rule text is about release, which nobody reads"),
    (
        rule(locks={"at": "nothing", "held": []}),
        "rule locks is about nothing, a probe that no step",
    ),
    (
        rule(observed={"path": "pid", "equals": 1}, name="seen"),
        "rule seen asks what no command of main says",
    ),
    (
        whole(
            sandbox={"command": {"observe": True}},
            steps=[{"wait": {"end": "main"}, "trigger": True}],
            expect=[{"observed": {"path": "mounts", "equals": 1}}],
        ),
        "a rule asks what mounts is from inside",
    ),
    (
        rule(ran="x", when="doctor.cgroup == true"),
        "the condition doctor.cgroup == true asks harness doctor",
    ),
    (rule(reached={"marker": "no-such"}), "rule reached is about a wait that no step makes"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_a_refusal_says_what_it_is_about(
    change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        script_of(BASE, change)
    assert reason in str(refusal.value)
    assert f"harness run -k {BASE}" in str(refusal.value)


def test_a_rule_about_a_process_that_was_not_found_is_refused() -> None:
    def change(said: dict[str, Any]) -> None:
        said["steps"] = [{"launch": "main", "trigger": True}, {"wait": {"exit": "monitor"}}]
        said["expect"] = [{"exit": {"of": "command", "any": True}}]

    with pytest.raises(UsageError, match="rule exit is about command, which no step has waited"):
        script_of(BASE, change)


def test_only_scenarios_of_the_reference_supervisor_have_no_script() -> None:
    refused = []
    for scenario_id in by_id():
        try:
            script_of(scenario_id)
        except UsageError:
            refused.append(scenario_id)
    reference = {i for i, each in by_id().items() if each.scenario.supervisor.kind == "reference"}
    assert set(refused) == reference
