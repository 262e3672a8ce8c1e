"""Whether every name that a scenario uses is the name of something that it declares.

Each check is a function from a :class:`Scene` to the faults that it finds; ``CHECKS`` lists them.
Read next: ``links`` (probes, markers, rules: names with more to them than being declared).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from harness.loader.problem import suggestion
from harness.loader.scene import (
    CHANNEL_ROLES,
    TO_SANDBOX_OPTIONS,
    Mention,
    Role,
    Scene,
    channels_of,
    data_comes_out,
    data_goes_in,
)
from harness.loader.translate import Fault, Path
from harness.model.scenario import Channel, Sandbox, Scenario

#: Names that mean something by themselves.
RESERVED = (
    "observer", "supervisor", "launcher", "monitor", "child", "reaper", "command", "scratch",
)  # fmt: skip
#: bwrap takes one fd for each of these (the last one given wins), and there is one of each stream.
SINGLE_USE = (
    "json-status-fd", "info-fd", "sync-fd", "block-fd", "userns-block-fd", "stdin", "stdout",
    "stderr", "terminal",
)  # fmt: skip
STREAMS = ("stdin", "stdout", "stderr")
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


def check_sandboxes(scenario: Scenario) -> Iterator[Fault]:
    """There is one ``sandbox``, or several ``sandboxes``, and not both."""
    if scenario.sandbox is None and scenario.sandboxes is None:
        yield Fault((), "there is no sandbox; expected sandbox, or sandboxes for several")
    if scenario.sandbox is not None and scenario.sandboxes is not None:
        yield Fault(("sandboxes",), "expected sandbox or sandboxes, not both", at_key=True)


def check_taken_names(scene: Scene) -> Iterator[Fault]:
    """Sandboxes, helpers and providers have names of their own, and no name has two meanings."""
    scenario = scene.scenario
    declared: list[tuple[Path, str]] = []
    if scene.several:
        declared += [(("sandboxes", name), name) for name in scene.boxes]
    declared += [(("helpers", name), name) for name in scenario.helpers]
    declared += [(("providers", name), name) for name in scenario.providers]
    taken: dict[str, str] = dict.fromkeys(RESERVED, "means something else already")
    for path, name in declared:
        if name in taken:
            yield Fault(path, f'"{name}" {taken[name]}; expected another name', at_key=True)
        taken.setdefault(name, f"is the name of one of the {path[0]} already")
    for box, sandbox in scene.boxes.items():
        for name, channel in sandbox.channels.items():
            path = (*scene.box_path(box), "channels", name)
            if name in RESERVED:
                yield Fault(path, f'"{name}" {taken[name]}; expected another name', at_key=True)
            elif name in STREAMS and channel.option != name:
                message = f'"{name}" is what the standard stream is called; expected another name'
                yield Fault(path, message, at_key=True)


def check_processes(scene: Scene) -> Iterator[Fault]:
    """Every process that is named is in the cast of this scenario."""
    known: dict[Role, Sequence[str]] = {
        Role.PROCESS: scene.processes,
        Role.COUNTED: scene.counted,
        Role.SUPERVISOR: scene.supervisors,
        Role.LAUNCHER: scene.launchers,
        Role.HELPER: tuple(scene.scenario.helpers),
        Role.PROVIDER: tuple(scene.scenario.providers),
        Role.STARTED: (*scene.scenario.helpers, *scene.scenario.providers),
    }
    for mention in scene.used_as(*known):
        if mention.name not in known[mention.role]:
            yield _no_such_process(mention, known[mention.role])


def _no_such_process(mention: Mention, known: Sequence[str]) -> Fault:
    if mention.name.rpartition(".")[2] == "launcher":
        message = "there is no launcher here; expected launched_by: thread or process"
        return Fault(mention.path, message)
    what = mention.role.value
    return Fault(mention.path, f'there is no {what} "{mention.name}"; {_hint(mention.name, known)}')


def _hint(name: str, known: Sequence[str]) -> str:
    """What to write instead; with several sandboxes, the same part of each of them first."""
    prefixed = [each for each in known if "." in each and each.rpartition(".")[2] == name]
    if prefixed:
        return f"there are several sandboxes: expected {' or '.join(prefixed)}"
    return suggestion(name, known)


def check_channels(scene: Scene) -> Iterator[Fault]:
    """Every channel that is named exists, and can be used in the way it is used."""
    for mention in scene.used_as(*CHANNEL_ROLES):
        channel = scene.channels.get(mention.name)
        if channel is None:
            known = tuple(scene.channels)
            message = f'there is no channel "{mention.name}"; {_hint(mention.name, known)}'
            yield Fault(mention.path, message)
        elif message := _misused(mention.role, channel):
            yield Fault(mention.path, f"{mention.name} {message}")


def _misused(role: Role, channel: Channel) -> str:
    if role is Role.READ_CHANNEL and channel.kind == "closed":
        return "is a closed number; nothing can be read from it"
    if role is Role.READ_CHANNEL and not data_comes_out(channel):
        return "carries data into the sandbox; expected a channel that comes out of it"
    if role is Role.WRITTEN_CHANNEL and not data_goes_in(channel):
        return "carries data out of the sandbox; expected a channel that goes into it"
    if role is Role.TERMINAL and channel.kind != "pty" and channel.option != "terminal":
        return f"is no terminal but a {channel.kind}; expected a channel with kind: pty"
    return ""


def check_sandbox_names(scene: Scene) -> Iterator[Fault]:
    """Every sandbox that is named exists; a single one is called main."""
    for mention in scene.used_as(Role.SANDBOX):
        if mention.name not in scene.boxes:
            hint = suggestion(mention.name, scene.boxes)
            yield Fault(mention.path, f'there is no sandbox "{mention.name}"; {hint}')


def check_channel_ends(scene: Scene) -> Iterator[Fault]:
    """``held_by``, ``copy_kept_by`` and ``same_number_as`` name something that exists."""
    helpers = tuple(scene.scenario.helpers)
    for box, sandbox in scene.boxes.items():
        for name, channel in sandbox.channels.items():
            path = (*scene.box_path(box), "channels", name)
            holders = ("observer", "supervisor", *helpers)
            if channel.held_by not in holders:
                message = f'nobody is called "{channel.held_by}"'
                hint = suggestion(channel.held_by, holders)
                yield Fault((*path, "held_by"), f"{message}; {hint}")
            keepers = ("supervisor", *helpers)
            for index, keeper in enumerate(channel.copy_kept_by):
                if keeper not in keepers:
                    message = f'nobody is called "{keeper}"; {suggestion(keeper, keepers)}'
                    yield Fault((*path, "copy_kept_by", index), message)
            if channel.same_number_as == name:
                message = "a channel shares its number with itself; expected another channel"
                yield Fault((*path, "same_number_as"), message)


def check_options(scene: Scene) -> Iterator[Fault]:
    """No option or stream is served twice, and no channel contradicts its option."""
    for box, sandbox in scene.boxes.items():
        path = scene.box_path(box)
        served: dict[str, str] = {}
        for name, channel in sandbox.channels.items():
            here = (*path, "channels", name)
            yield from _option_twice(here, name, channel, served)
            yield from _contradictions(here, channel)
        yield from _numbers_twice(path, sandbox)
        for index, argument in enumerate(sandbox.args):
            option = argument.removeprefix("--")
            if argument.startswith("--") and option in served:
                message = f"{argument} is given here and by channel {served[option]}"
                yield Fault((*path, "args", index), f"{message}; expected it once")


def _option_twice(
    path: Path, name: str, channel: Channel, served: dict[str, str]
) -> Iterator[Fault]:
    option = channel.option
    if option is None or option not in SINGLE_USE:
        return
    rivals: list[str] = [option]
    if option in STREAMS:
        rivals.append("terminal")
    elif option == "terminal":
        rivals.extend(STREAMS)
    other = next((served[each] for each in rivals if each in served), None)
    if other is not None:
        message = f"{option} is served by channel {other} already; expected one channel for it"
        yield Fault((*path, "option"), message)
    served.setdefault(option, name)


def _contradictions(path: Path, channel: Channel) -> Iterator[Fault]:
    option, direction = channel.option, channel.direction
    if option is not None and direction is not None and option != "terminal":
        right = "to-sandbox" if option in TO_SANDBOX_OPTIONS else "from-sandbox"
        if direction != right:
            yield Fault((*path, "direction"), f"{option} goes {right}; expected that or nothing")
    if option == "terminal" and channel.kind != "pty" and "kind" in channel.model_fields_set:
        yield Fault((*path, "kind"), f"a terminal is no {channel.kind}; expected kind: pty")
    if "mode" in channel.model_fields_set and channel.kind != "file":
        yield Fault((*path, "mode"), f"mode is for kind: file, not for a {channel.kind}", True)


def _numbers_twice(path: Path, sandbox: Sandbox) -> Iterator[Fault]:
    taken: dict[int, str] = {}
    for name, channel in sandbox.channels.items():
        if channel.number is None:
            continue
        if channel.number in taken:
            message = f"number {channel.number} is that of channel {taken[channel.number]}"
            hint = f"expected another one, or same_number_as: {taken[channel.number]}"
            yield Fault((*path, "channels", name, "number"), f"{message}; {hint}")
        taken.setdefault(channel.number, name)


def check_spec(scene: Scene) -> Iterator[Fault]:
    """``spec`` says everything that ``base`` would; both together contradict each other."""
    for box, sandbox in scene.boxes.items():
        if sandbox.spec is not None and "base" in sandbox.model_fields_set:
            path = (*scene.box_path(box), "base")
            yield Fault(path, "base does not go with spec; expected one of them", at_key=True)


def check_files(scene: Scene) -> Iterator[Fault]:
    """Files stay inside the scratch directory, and the ones that are locked are declared."""
    files = scene.scenario.files
    for name in files:
        if _leads_out(name):
            message = f'"{name}" leads out of the scratch directory; expected a relative path'
            yield Fault(("files", name), message, at_key=True)
    for mention in scene.used_as(Role.FILE):
        if mention.name not in files:
            yield Fault(mention.path, _no_file(mention.name, scene))
    for name, helper in scene.scenario.helpers.items():
        path: Path = ("helpers", name, "file")
        if helper.lock is not None and helper.file is not None and helper.file not in files:
            yield Fault(path, _no_file(helper.file, scene))
        elif helper.file is not None and _leads_out(helper.file):
            message = f'"{helper.file}" leads out of the scratch directory'
            yield Fault(path, f"{message}; expected a relative path")


def _no_file(name: str, scene: Scene) -> str:
    files = scene.scenario.files
    hint = suggestion(name, files) if files else "expected it under files"
    return f'there is no file "{name}"; {hint}'


def _leads_out(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or not path.parts


def check_placeholders(scene: Scene) -> Iterator[Fault]:
    """``{name}`` in the arguments of a sandbox is ``{scratch}`` or one of its channels."""
    for box, sandbox in scene.boxes.items():
        known = ["scratch", *channels_of(sandbox)]
        for index, argument in enumerate(sandbox.args):
            for name in _PLACEHOLDER.findall(argument):
                if name not in known:
                    path = (*scene.box_path(box), "args", index)
                    hint = suggestion(name, known)
                    yield Fault(path, f"{{{name}}} stands for nothing; {hint}")


CHECKS = (
    check_taken_names,
    check_processes,
    check_channels,
    check_sandbox_names,
    check_channel_ends,
    check_options,
    check_spec,
    check_files,
    check_placeholders,
)
