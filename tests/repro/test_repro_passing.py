"""Scripts of scenarios that pass find nothing; a few of them, in which everything occurs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from repro_place import by_id, check_needs, run_script, script_of

from harness.model.scenario import Scenario

PASSING = {
    each.scenario.id: each.scenario
    for each in by_id().values()
    if not each.scenario.known and each.scenario.supervisor.kind == "scripted"
}


def features(scenario: Scenario) -> Iterator[str]:
    """What a scenario has in it: its area, and each kind of step, wait, rule, channel, process."""
    yield f"area {scenario.area}"
    yield f"user {scenario.user}"
    for step in scenario.all_steps:
        yield f"step {step.verb}"
        for what in (step.wait, step.probe, step.signal):
            if what is not None:
                given = what.model_dump(exclude_none=True)
                yield f"{step.verb} {next(iter(given))} {given.get('state', '')}"
    for rule in scenario.expect:
        given = getattr(rule, rule.verb)
        yield f"rule {rule.verb} {sorted(given.model_fields_set) if hasattr(given, 'on') else ''}"
        yield f"rule {rule.verb}"
    for box in scenario.named_sandboxes.values():
        yield from (f"signal {how}" for how in box.signals.values())
        yield f"sandbox {box.base} {box.launched_by} {box.session} {bool(box.env)}"
        yield f"command {bool(box.command.observe)} {bool(box.spec)}"
        for channel in box.channels.values():
            yield f"channel {channel.option}"
            yield f"channel {channel.kind} {channel.read} {channel.filled} {channel.mode}"
            yield f"channel {bool(channel.number)} {channel.held_by} {bool(channel.copy_kept_by)}"
    for helper in scenario.helpers.values():
        yield f"helper {helper.lock} {helper.api} {helper.listen}"
    yield from ("provider" for _ in scenario.providers)


def cover() -> list[str]:
    """Some scenarios in which everything that occurs in any occurs."""
    left = {name: set(features(scenario)) for name, scenario in PASSING.items()}
    missing = set().union(*left.values())
    chosen = []
    while missing:
        best = max(left, key=lambda name: len(left[name] & missing))
        chosen.append(best)
        missing -= left.pop(best)
    return sorted(chosen)


@pytest.mark.parametrize("scenario_id", cover())
def test_a_script_of_what_holds_finds_nothing(
    scenario_id: str, one_bwrap: str, tmp_path: Path
) -> None:
    check_needs(scenario_id)
    done = run_script(script_of(scenario_id), tmp_path, one_bwrap)
    assert done.code == 0, done
    assert done.out.count(": as expected\n") == len(PASSING[scenario_id].expect)
