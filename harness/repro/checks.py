"""The rules of a scenario as checks, one function a verb.

Each gives the same three answers as the harness does (``harness.judges``): it held, it did not, or
what was seen does not decide it.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.model.scenario import Expectation
from harness.repro.channel_checks import (
    eof_check,
    field_check,
    objects_check,
    text_check,
)
from harness.repro.check import check, wanted
from harness.repro.condition import condition_expression
from harness.repro.endings import how
from harness.repro.observing import observed_check
from harness.repro.probe_checks import fds_check, locks_check, probe_check
from harness.repro.source import literal
from harness.repro.story import Story, refuse, rule_lanes
from harness.repro.timing_checks import gap_check, order_check


def write_checks(story: Story) -> None:
    """The statements of every check, at the end of a try."""
    source = story.source
    source.gap()
    source.comment("What was to be so.")
    if story.seeing().looks:
        source.add("look()")
    for name, rule in story.checks:
        _require_found(story, name, rule)
        if rule.when is not None:
            with source.block(f"if {condition_expression(story, rule.when)}:"):
                _CHECKS[rule.verb](story, name, rule)
        else:
            _CHECKS[rule.verb](story, name, rule)


def _require_found(story: Story, name: str, rule: Expectation) -> None:
    """Refuse a rule about a process that the script has no pid of by then."""
    for lane in rule_lanes(rule):
        found = story.box_of(lane)
        if found is None or found[1] not in ("child", "reaper", "command"):
            continue
        box, part = found
        is_census = rule.survivors is not None or rule.zombies is not None or rule.alive is not None
        if box.pid(part) not in story.resolved and not is_census:
            raise refuse(
                story.scenario, f"rule {name} is about {lane}, which no step has waited for"
            )


# --- processes -----------------------------------------------------------------------------------


def _exit(story: Story, name: str, rule: Expectation) -> None:
    assert rule.exit is not None
    what = rule.exit
    told = how(story, what.of)
    ended = f'{told} != "it had not ended"'
    if what.any:
        check(story, name, ended, f"{what.of} ends", told)
    elif what.never:
        check(
            story,
            name,
            f"not {ended}".replace("not ", "", 1).replace("!=", "=="),
            f"{what.of} is still there",
            told,
        )
    else:
        ending = (
            f"it exited {what.code}"
            if what.code is not None
            else f"it was killed by SIG{what.signal}"
        )
        story.source.call("check_exit(", [literal(name), literal(what.of), literal(ending), told])


def _ran(story: Story, name: str, rule: Expectation) -> None:
    seen = f"os.path.exists({literal(rule.ran or '')})"
    story.source.add(f"ran = {seen}")
    told = '"it is there" if ran else "it is not there"'
    check(story, name, "ran", f"the file {rule.ran}, which the command makes", told)


def _never_ran(story: Story, name: str, rule: Expectation) -> None:
    seen = f"os.path.exists({literal(rule.never_ran or '')})"
    story.source.add(f"ran = {seen}")
    told = '"it is there" if ran else "it is not there"'
    check(story, name, "not ran", f"no file {rule.never_ran}, which the command makes", told)


def _survivors(story: Story, name: str, rule: Expectation) -> None:
    assert rule.survivors is not None
    if rule.survivors == "none":
        seen = 'f"alive: {alive_then}"'
        check(story, name, "not alive_then", "nobody is alive", seen)
        return
    names = sorted(rule.survivors)
    listed = wanted(story, names)
    expected = "alive: " + ", ".join(names)
    seen = 'f"alive: {named(alive_then, names)}"'
    check(story, name, f"named(alive_then, names) == {listed}", expected, seen)


def _zombies(story: Story, name: str, rule: Expectation) -> None:
    names = sorted(rule.zombies) if isinstance(rule.zombies, list) else []
    listed = "[" + ", ".join(map(literal, names)) + "]"
    expected = "zombies: " + (", ".join(names) or "none")
    seen = 'f"zombies: {named(dead_then, names)}"'
    check(story, name, f"named(dead_then, names) == {listed}", expected, seen)


def _alive(story: Story, name: str, rule: Expectation) -> None:
    holds = f"{literal(rule.alive or '')} in named(alive_then, names)"
    seen = 'f"alive: {named(alive_then, names)}"'
    check(story, name, holds, f"{rule.alive} is alive", seen)


# --- probes --------------------------------------------------------------------------------------


def _outcome(story: Story, name: str, _rule: Expectation) -> None:
    raise refuse(story.scenario, f"rule {name} is about the reference supervisor's report")


def _reached(story: Story, name: str, rule: Expectation) -> None:
    steps = story.scenario.all_steps
    number = next((n for n, step in enumerate(steps, 1) if step.wait == rule.reached), None)
    if number is None:
        raise refuse(story.scenario, f"rule {name} is about a wait that no step makes")
    met = f"reached_{number}"
    told = '"it was met" if ' + met + ' else "it was not met in time"'
    check(story, name, f"bool({met})", f"the wait of step {number} is met", told)


_CHECKS: dict[str, Callable[[Story, str, Expectation], None]] = {
    "exit": _exit,
    "objects": objects_check,
    "field": field_check,
    "text": text_check,
    "eof": eof_check,
    "order": order_check,
    "gap": gap_check,
    "ran": _ran,
    "never_ran": _never_ran,
    "survivors": _survivors,
    "zombies": _zombies,
    "alive": _alive,
    "locks": locks_check,
    "fds": fds_check,
    "observed": observed_check,
    "probe": probe_check,
    "outcome": _outcome,
    "reached": _reached,
}
