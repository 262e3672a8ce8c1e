"""Finding the processes of a sandbox by their family: bwrap's child, and the command below it."""

from __future__ import annotations

from harness.repro.endings import watch_exit
from harness.repro.story import Box, Story


def resolve_named(story: Story, box: Box) -> None:
    """Find the process that bwrap cloned, where anything is said about it or those below it."""
    named = {
        found[1]
        for lane in story.lanes()
        if (found := story.box_of(lane)) is not None and found[0].name == box.name
    }
    if not named & {"child", "reaper", "command"} and not story.names_processes:
        return
    if any(p.spec.option == "args" and p.spec.kind == "pipe" for p in box.channels.values()):
        return  # bwrap may be held before it clones anything
    resolve_child(story, box)


def resolve_child(story: Story, box: Box) -> None:
    """The statement that finds bwrap's child, once."""
    source = story.source
    if box.child_pid in story.resolved:
        return
    story.resolved.add(box.child_pid)
    source.add(
        f"{box.child_pid} = need(lambda: children_of({box.monitor_pid}), 5, "
        '"bwrap clones its child")[0]'
    )
    if is_program_asked(story) and "program" not in story.resolved:
        story.resolved.add("program")
        source.add(f"program = exe({box.monitor_pid})")
    for part in ("child", "reaper", "command"):
        if box.pid(part) == box.child_pid:
            watch_exit(story, box.prefix + part, box.child_pid)


def is_program_asked(story: Story) -> bool:
    """Whether it matters which program a process executes."""
    waits = [step.wait for step in story.scenario.all_steps if step.wait is not None]
    return story.names_processes or any(wait.state == "running-command" for wait in waits)


def resolve_command(story: Story, box: Box, within: str) -> None:
    """The statement that finds the command below bwrap's init, once."""
    source = story.source
    resolve_child(story, box)
    variable = box.pid("command")
    if variable in story.resolved:
        return
    story.resolved.add(variable)
    source.add(
        f"{variable} = need(lambda: children_of({box.child_pid}), {within}, "
        '"the command is forked")[0]'
    )
    watch_exit(story, box.prefix + "command", variable)
