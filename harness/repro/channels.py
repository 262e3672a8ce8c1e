"""The channels of a scenario as statements: pipes, files, terminals, and who holds which end."""

from __future__ import annotations

from harness.model.scenario import Channel, Sandbox
from harness.repro.source import bytes_literal, identifier, literal
from harness.repro.story import STREAMS, Box, Pipe, Story, refuse

#: The number bwrap is given where a scenario says that nothing is open on it; it gets only the fds
#: that are named.
CLOSED_NUMBER = 250


def lay_out(story: Story, name: str, prefix: str, spec: Sandbox, *, is_told: bool) -> Box:
    """The variables of one sandbox and of its channels; nothing is written yet."""
    channels = {
        each: _lay_out_channel(story, prefix, each, channel)
        for each, channel in spec.channels.items()
    }
    box = Box(name, prefix, spec, is_told, channels)
    served = {channel.option for channel in spec.channels.values()}
    if "terminal" not in served:
        for stream in ("stdout", "stderr"):
            lane = prefix + stream
            if stream not in served and (story.ends(box) or story.is_named(lane)):
                stem = identifier(lane)
                added = Channel.model_validate({"option": stream})
                channels[stream] = Pipe(
                    lane, added, f"{stem}_w", f"{stem}_r", f"{stem}_w", is_declared=False
                )
    return box


def _lay_out_channel(story: Story, prefix: str, name: str, channel: Channel) -> Pipe:
    stem = identifier(prefix + name)
    if channel.same_number_as is not None:
        raise refuse(story.scenario, f"channel {name} shares its number with another")
    if channel.option == "terminal":
        return Pipe(prefix + name, channel, f"{stem}_inner", f"{stem}_outer", "")
    if channel.kind in ("socketpair", "pty"):
        raise refuse(story.scenario, f"channel {name} is a {channel.kind}")
    if channel.kind == "closed":
        return Pipe(prefix + name, channel, "", "", str(CLOSED_NUMBER))
    if channel.kind in ("memfd", "file"):
        near, far = f"{stem}_fd", ""
    else:
        draft = Pipe(prefix + name, channel, f"{stem}_w", f"{stem}_r", "")
        near, far = (draft.near, draft.far) if draft.from_sandbox else (f"{stem}_r", f"{stem}_w")
    number = near if channel.number is None else str(channel.number)
    return Pipe(prefix + name, channel, near, far, number)


def open_channels(story: Story) -> None:
    """Statements that make every channel, before anything is started."""
    source = story.source
    if is_number_told(story):
        source.comment("So that no fd of ours, and none of bwrap's own, comes by a number in use.")
        source.add("for number in range(3, 20):", "    hold_number(number)")
    for box in story.boxes.values():
        for name, pipe in box.channels.items():
            _open(story, box, name, pipe)


def is_number_told(story: Story) -> bool:
    """Whether it matters which numbers bwrap gets: one is asked for, or used twice.

    bwrap closes an fd that it has read, and opens others, under the lowest number that is free:
    one that is used twice must not be such a number.
    """
    for box in story.boxes.values():
        for name, pipe in box.channels.items():
            if pipe.spec.number is not None or box.spec.args.count(f"{{{name}}}") > 1:
                return True
    return False


def _open(story: Story, box: Box, name: str, pipe: Pipe) -> None:
    source, spec = story.source, pipe.spec
    about = _describe(name, spec)
    if spec.kind == "closed":
        return
    if spec.option == "terminal":
        source.add(f"{pipe.far}, {pipe.near} = pty.openpty()  # {about}")
    elif spec.kind == "memfd":
        source.add(f"{pipe.near} = os.memfd_create({literal(name)})  # {about}")
        _carry(story, pipe, spec.content or "")
        source.add(f"os.lseek({pipe.near}, 0, os.SEEK_SET)")
    elif spec.kind == "file":
        mode = "os.O_RDWR" if spec.mode == "read-write" else "os.O_RDONLY"
        path = literal(f".{pipe.lane}")
        with source.block(f'with open({path}, "wb") as file:  # {about}'):
            source.call("file.write(", [bytes_literal(spec.content or "")])
        source.add(f"{pipe.near} = os.open({path}, {mode})")
    else:
        ends = (pipe.far, pipe.near) if pipe.from_sandbox else (pipe.near, pipe.far)
        source.add(f"{ends[0]}, {ends[1]} = os.pipe()  # {about}")
        if spec.content:
            _carry(story, pipe, spec.content)
        if spec.filled:
            source.add(f"fill({pipe.near if pipe.from_sandbox else pipe.far})")
        if pipe.far and spec.read == "closed-before-start":
            source.add(f"os.close({pipe.far})  # its reader is gone before bwrap starts")
    if is_linked(story, pipe, box):
        source.add(f"{link(pipe)} = os.readlink(f{literal('/proc/self/fd/{' + pipe.near + '}')})")


def _carry(story: Story, pipe: Pipe, content: str) -> None:
    end = pipe.far if pipe.far and not pipe.from_sandbox else pipe.near
    story.source.call("os.write(", [end, bytes_literal(content)])


def _describe(name: str, spec: Channel) -> str:
    if spec.option == "terminal":
        return "its terminal"
    if spec.option in STREAMS:
        return f"its {spec.option}"
    return f"--{spec.option}" if spec.option else f"{name}, an fd that no option names"


def link(pipe: Pipe) -> str:
    """The variable of what /proc/PID/fd shows for the channel."""
    return identifier(pipe.lane) + "_link"


def is_linked(story: Story, pipe: Pipe, box: Box) -> bool:
    """Whether some process is looked at for this channel among its fds."""
    for step in story.scenario.all_steps:
        wait = step.wait
        if wait is not None and wait.state == "blocked-on-gate" and wait.process:
            found = story.box_of(wait.process)
            if found is not None and found[0].name == box.name and is_gate(pipe):
                return True
    rules = [rule.fds for _, rule in story.checks if rule.fds is not None]
    return any(pipe.lane in (rule.has_channel, rule.lacks_channel) for rule in rules)


def is_gate(pipe: Pipe) -> bool:
    """Whether bwrap waits on this channel."""
    return pipe.spec.option in ("block-fd", "userns-block-fd") and bool(pipe.near)


def watch_channels(story: Story, box: Box) -> None:
    """Statements that read what comes from the sandbox."""
    source = story.source
    for pipe in box.channels.values():
        if not pipe.is_read:
            continue
        source.add(f"watch_channel({literal(pipe.lane)}, {pipe.far})")
        if pipe.spec.read == "first-line-then-close":
            source.add(f"first_line_only.add({literal(pipe.lane)})")


def near_ends(box: Box) -> list[str]:
    """The variables of bwrap's ends, each once."""
    return list(dict.fromkeys(pipe.near for pipe in box.channels.values() if pipe.near))


def given_away(story: Story, box: Box) -> list[str]:
    """The variables of the fds that are not the script's own once bwrap was started.

    A helper that keeps something is played by the script itself, so that it keeps them.
    """
    gone = []
    for pipe in box.channels.values():
        if pipe.near and not set(pipe.spec.copy_kept_by) & set(story.scenario.helpers):
            gone.append(pipe.near)
        if pipe.far and pipe.spec.held_by == "supervisor":
            gone.append(pipe.far)
    return list(dict.fromkeys(gone))


def own_ends(box: Box) -> list[str]:
    """The variables of the fds that a supervisor of its own holds."""
    held = [p.far for p in box.channels.values() if p.far and p.spec.held_by == "supervisor"]
    return [*near_ends(box), *held]
