"""How processes end: the expressions that say so, and the moments that a check needs."""

from __future__ import annotations

from harness.repro.source import literal
from harness.repro.story import Story, needs_supervisor


def told_channel(lane: str) -> str:
    """The literal of the channel on which a process's parent tells its pid and how it ended."""
    return literal(f"told by the parent of {lane}")


def watch_exit(story: Story, lane: str, pid: str) -> None:
    """Have the moment noted at which a process ends, where a check needs it."""
    if lane in story.exits():
        story.source.add(f"watch_exit({literal(lane)}, {pid})")


def has_ended(story: Story, lane: str) -> str:
    """The expression that says whether a process has ended, as far as its status goes."""
    return f'{how(story, lane)} != "it had not ended"'


def how(story: Story, lane: str) -> str:
    """The expression of how a process ended, in words."""
    found = story.box_of(lane)
    pid = story.pid(lane, "what became of it")
    is_told = found is not None and found[1] == "monitor" and found[0].is_told
    is_layered = found is not None and found[1] == "launcher" and needs_supervisor(story.scenario)
    if is_told or is_layered:
        return f"how_told({told_channel(lane)}, {pid})"
    if found is not None and found[1] in ("child", "reaper", "command"):
        return f"how_any_ended({pid})"
    return f"how_it_ended({pid})"
