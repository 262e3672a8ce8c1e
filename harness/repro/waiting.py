"""Waiting: the condition of each wait as an expression.

Up to the trigger a wait that is not met ends the script (``need``): what follows would show
nothing.  After it the script goes on, since what did not happen is then the very thing that is
judged.
"""

from __future__ import annotations

from harness.model.scenario import Step, WaitFor
from harness.repro.cast import is_program_asked, resolve_child, resolve_command
from harness.repro.channels import is_gate, link
from harness.repro.endings import has_ended
from harness.repro.source import literal, seconds
from harness.repro.story import Box, Story, refuse

_STATES = {"stopped": "T", "zombie": "Z", "sleeping": "S"}


def describe(step: Step) -> str:
    """A step in words."""
    value = step.model_dump(mode="json", by_alias=True, exclude_none=True)[step.verb]
    if step.verb in ("pass", "settle"):
        return f"{step.verb}: {seconds(value)} s"
    return f"{step.verb}: {_compact(value)}"


def _compact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_compact(each)}" for key, each in value.items())
    return literal(value) if isinstance(value, str) and not value.isprintable() else str(value)


def where_is(number: int, step: Step) -> str:
    """Which step it is, for a refusal."""
    return f"step {number} ({step.verb})"


def write_wait(story: Story, step: Step, number: int) -> None:
    """The statement of a wait: one that the rest depends on, or whose outcome is judged."""
    assert step.wait is not None
    source, within = story.source, seconds(step.within)
    for lane in (step.wait.exit, step.wait.gone, step.wait.process):
        if lane is not None:
            resolve(story, lane, within)
    condition = _condition(story, step.wait, where_is(number, step))
    is_judged = any(rule.reached == step.wait for _, rule in story.checks)
    result = f"reached_{number} = " if is_judged else ""
    if story.triggered:
        source.call(f"{result}wait_until(", [f"lambda: {condition}", within])
    else:
        what = literal(f"step {number}, {describe(step)}")
        source.call(f"{result}need(", [f"lambda: {condition}", within, what])


def resolve(story: Story, lane: str, within: str) -> None:
    """Have the variable of this member's pid before it is used."""
    found = story.box_of(lane)
    if found is None:
        return
    box, part = found
    if part in ("child", "reaper") or (part == "command" and not box.has_reaper):
        resolve_child(story, box)
    elif part == "command":
        resolve_command(story, box, within)


def _condition(story: Story, wait: WaitFor, where: str) -> str:
    """The expression that says whether a wait is met."""
    if wait.line is not None or wait.object is not None:
        return _taken(story, wait, where)
    if wait.eof is not None:
        return f"{literal(story.channel(wait.eof, where).lane)} in at_end"
    if wait.exit is not None:
        return has_ended(story, wait.exit)
    if wait.gone is not None:
        return f'state({story.pid(wait.gone, where)}) in "ZX"'
    if wait.end is not None:
        return _has_ended(story, story.boxes[wait.end])
    if wait.marker is not None:
        return f"os.path.exists({literal(wait.marker)})"
    if wait.process is not None:
        return _in_state(story, wait.process, wait.state or "", where)
    if wait.lock is not None:
        held = f"locks_on({literal(wait.lock)})"
        return held if wait.is_ == "held" else f"not {held}"
    raise refuse(story.scenario, f"{where} waits for a supervisor of its own, or for a provider")


def _taken(story: Story, wait: WaitFor, where: str) -> str:
    """A line or object on a channel; waits on one channel go forward, never back."""
    pipe = story.channel(wait.line or wait.object or "", where)
    waits = [step.wait for step in story.scenario.all_steps if step.wait is not None]
    kind = "line" if wait.line is not None else "object"
    is_only = sum(getattr(each, kind) == getattr(wait, kind) for each in waits) == 1
    part = wait.contains if kind == "line" else wait.has
    channel, wanted = literal(pipe.lane), literal(part or "")
    if not is_only:
        return f"take({kind}s, {channel}, {wanted})"
    if part is None:
        return f"{kind}s({channel})"
    return f"any({wanted} in each for each in {kind}s({channel}))"


def _has_ended(story: Story, box: Box) -> str:
    terms = [has_ended(story, box.prefix + "monitor")]
    terms += [
        f"{literal(pipe.lane)} in at_end"
        for pipe in box.channels.values()
        if pipe.is_read and pipe.spec.read == "drain"
    ]
    return " and ".join(terms)


def _in_state(story: Story, lane: str, state: str, where: str) -> str:
    pid = story.pid(lane, where)
    if state == "running-command":
        assert is_program_asked(story)
        return f"exe({pid}) not in (None, program)"
    if state == "blocked-on-gate":
        found = story.box_of(lane)
        gates = [p for p in found[0].channels.values() if is_gate(p)] if found else []
        if not gates:
            raise refuse(story.scenario, f"{where} waits at a gate that no channel is")
        return " or ".join(f"blocked_reading({pid}, {link(gate)})" for gate in gates)
    return f'state({pid}) == "{_STATES[state]}"'
