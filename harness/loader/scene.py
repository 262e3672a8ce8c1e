"""The names that one scenario declares, and every place where it uses one.

The checks in ``names``, ``timing`` and ``vacuity`` ask a :class:`Scene` instead of walking through
the models, so that what counts as a use of a name is written down once, in ``ROLES``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel

from harness.loader.translate import Path
from harness.model import scenario as grammar
from harness.model.scenario import Channel, Sandbox, Scenario


class Role(enum.Enum):
    """What a name that stands somewhere must be the name of; the value is for messages."""

    PROCESS = "process"
    COUNTED = "counted"  # a process as a census calls it
    SUPERVISOR = "reference supervisor"
    LAUNCHER = "launcher"
    CHANNEL = "channel"
    READ_CHANNEL = "channel that is read"
    WRITTEN_CHANNEL = "channel that is written to"
    TERMINAL = "terminal"
    SANDBOX = "sandbox"
    HELPER = "helper"
    PROVIDER = "provider"
    STARTED = "helper or provider"
    FILE = "file"
    MARKER = "marker"


CHANNEL_ROLES = (Role.CHANNEL, Role.READ_CHANNEL, Role.WRITTEN_CHANNEL, Role.TERMINAL)

#: Which member of which model names what.
ROLES: Mapping[type[BaseModel], Mapping[str, Role]] = {
    grammar.WaitFor: {
        "line": Role.READ_CHANNEL,
        "object": Role.READ_CHANNEL,
        "eof": Role.READ_CHANNEL,
        "exit": Role.PROCESS,
        "gone": Role.PROCESS,
        "process": Role.PROCESS,
        "end": Role.SANDBOX,
        "marker": Role.MARKER,
        "ready": Role.STARTED,
        "lock": Role.FILE,
        "report": Role.SUPERVISOR,
    },
    grammar.WriteData: {"to": Role.WRITTEN_CHANNEL},
    grammar.SendSignal: {"to": Role.PROCESS, "group_of": Role.PROCESS},
    grammar.Probe: {
        "locks": Role.FILE,
        "fds": Role.PROCESS,
        "namespaces": Role.PROCESS,
        "uid_map": Role.PROCESS,
        "signals": Role.PROCESS,
        "connect": Role.HELPER,
        "from_": Role.PROCESS,
    },
    grammar.TypeText: {"on": Role.TERMINAL},
    grammar.Resize: {"on": Role.TERMINAL},
    grammar.Step: {
        "launch": Role.SANDBOX,
        "close": Role.CHANNEL,
        "end": Role.LAUNCHER,
        "start": Role.STARTED,
        "stop": Role.STARTED,
        "map_ids": Role.PROCESS,
    },
    grammar.Moment: {
        "line": Role.READ_CHANNEL,
        "object": Role.READ_CHANNEL,
        "eof": Role.READ_CHANNEL,
        "exit": Role.PROCESS,
        "marker": Role.MARKER,
        "lost": Role.PROVIDER,
    },
    grammar.ExpectExit: {"of": Role.PROCESS},
    grammar.ExpectObjects: {"on": Role.READ_CHANNEL},
    grammar.ExpectField: {"on": Role.READ_CHANNEL, "pid_of": Role.PROCESS},
    grammar.ExpectText: {"on": Role.READ_CHANNEL},
    grammar.ExpectEof: {"on": Role.READ_CHANNEL},
    grammar.ExpectLocks: {"by": Role.PROCESS},
    grammar.ExpectFds: {"has_channel": Role.CHANNEL, "lacks_channel": Role.CHANNEL},
    grammar.ExpectObserved: {"of": Role.SANDBOX},
    grammar.ExpectOutcome: {"of": Role.SUPERVISOR},
    grammar.Expectation: {
        "ran": Role.MARKER,
        "never_ran": Role.MARKER,
        "survivors": Role.COUNTED,
        "zombies": Role.COUNTED,
        "alive": Role.COUNTED,
    },
    grammar.Provider: {"for_": Role.SANDBOX},
}

TO_SANDBOX_OPTIONS = {"block-fd", "userns-block-fd", "args", "seccomp", "add-seccomp-fd", "stdin"}
PARTS = ("monitor", "child", "reaper", "command")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name where it is used: in which member (``path``), as what, and in which model."""

    path: Path
    name: str
    role: Role
    owner: BaseModel

    @property
    def step(self) -> int | None:
        """The index of the step that it stands in, or None."""
        return self.path[1] if self.path[0] == "steps" and isinstance(self.path[1], int) else None


@dataclass(frozen=True)
class Scene:
    """One scenario, with its names."""

    scenario: Scenario

    @cached_property
    def boxes(self) -> dict[str, Sandbox]:
        """The sandboxes by name."""
        return self.scenario.named_sandboxes

    @property
    def several(self) -> bool:
        """Whether names are prefixed with their sandbox."""
        return self.scenario.sandboxes is not None

    @property
    def reference(self) -> bool:
        """Whether the reference supervisor supervises."""
        return self.scenario.supervisor.kind == "reference"

    def prefix(self, box: str) -> str:
        """What stands before the names of ``box``: ``left.``, or nothing for a single one."""
        return f"{box}." if self.several else ""

    def box_path(self, box: str) -> Path:
        """Where ``box`` stands in the file."""
        return ("sandboxes", box) if self.several else ("sandbox",)

    @cached_property
    def supervisors(self) -> tuple[str, ...]:
        """``supervisor``; one for each of several sandboxes that the reference one supervises."""
        if self.reference:
            return tuple(f"{self.prefix(box)}supervisor" for box in self.boxes)
        return ("supervisor",)

    @cached_property
    def launchers(self) -> tuple[str, ...]:
        """The launchers: there is one where bwrap is started from a thread or another process."""
        return tuple(
            f"{self.prefix(box)}launcher"
            for box, sandbox in self.boxes.items()
            if sandbox.launched_by != "supervisor"
        )

    @cached_property
    def processes(self) -> tuple[str, ...]:
        """Every member of the cast that a step or an expectation may name."""
        parts = tuple(self.prefix(box) + part for box in self.boxes for part in PARTS)
        beside = (*self.scenario.helpers, *self.scenario.providers)
        return (*self.supervisors, *self.launchers, *parts, *beside)

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """What a census can call a process: a member, or ``descendant`` for any other below one.

        ``guard`` is the process with which the reference supervisor survives its own death.
        """
        guards = [f"{self.prefix(box)}guard" for box in self.boxes] if self.reference else []
        return (*self.processes, *guards, "descendant")

    @cached_property
    def channels(self) -> dict[str, Channel]:
        """Every channel, with the stdout and stderr that a sandbox has without declaring them."""
        return {
            self.prefix(box) + name: channel
            for box, sandbox in self.boxes.items()
            for name, channel in channels_of(sandbox).items()
        }

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """Every use of a name."""
        return tuple(_mentions(self.scenario, ()))

    def used_as(self, *roles: Role) -> Iterator[Mention]:
        """The uses of a name in one of ``roles``."""
        return (each for each in self.mentions if each.role in roles)

    def box_of(self, name: str) -> str | None:
        """The sandbox that a process or channel belongs to, or None (a helper, the supervisor)."""
        if self.several:
            box = name.partition(".")[0]
            return box if "." in name and box in self.boxes else None
        beside = (*self.scenario.helpers, *self.scenario.providers, "supervisor")
        return None if name in beside else next(iter(self.boxes))


def channels_of(sandbox: Sandbox) -> dict[str, Channel]:
    """The channels of one sandbox by name; stdout and stderr too where nothing serves them."""
    served = {channel.option for channel in sandbox.channels.values()}
    found = dict(sandbox.channels)
    if "terminal" not in served:
        if "stdout" not in served:
            found.setdefault("stdout", Channel(option="stdout"))
        if "stderr" not in served:
            found.setdefault("stderr", Channel(option="stderr"))
    return found


def data_goes_in(channel: Channel) -> bool:
    """Whether the far end can be written to."""
    both_ways = channel.kind in ("socketpair", "pty") or channel.option == "terminal"
    return both_ways or not _from_sandbox(channel)


def data_comes_out(channel: Channel) -> bool:
    """Whether there is a far end at which the observer reads what the sandbox writes."""
    if channel.option == "terminal":
        return True
    return _from_sandbox(channel) and channel.kind in ("pipe", "socketpair", "pty")


def _from_sandbox(channel: Channel) -> bool:
    if channel.direction is not None:
        return channel.direction == "from-sandbox"
    return channel.option not in TO_SANDBOX_OPTIONS


def _mentions(model: BaseModel, path: Path) -> Iterator[Mention]:
    roles = ROLES.get(type(model), {})
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        here = (*path, field.alias or name)
        if isinstance(value, str) and name in roles and value != "none":
            yield Mention(here, value, roles[name], model)
        elif isinstance(value, list) and name in roles:
            for index, item in enumerate(value):
                yield Mention((*here, index), item, roles[name], model)
        else:
            yield from _mentions_below(value, here)


def _mentions_below(value: object, path: Path) -> Iterator[Mention]:
    if isinstance(value, BaseModel):
        yield from _mentions(value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _mentions_below(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _mentions_below(item, (*path, key))
