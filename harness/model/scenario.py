"""What a scenario may say: the grammar of the files in ``scenarios/``, as closed models.

The JSON Schema that editors use is generated from these classes (``harness schema``), the loader
reports every violation with its position, and ``Scenario.plan`` strips the expectations before the
recorder sees anything.  Learn the language from ``scenarios/README.md``; this file is its
reference.  Everything is data: nothing here knows how a step is carried out
(``harness.agent.recorder``) or judged (``harness.judges``).

A *process* in a scenario is named by its part in the cast: ``supervisor``, ``launcher``,
``monitor`` (the bwrap process that the supervisor started), ``child`` (the process that bwrap
cloned, whose pid bwrap calls child-pid), ``reaper`` (the child, when it stays as bwrap's init),
``command``, or the name of a helper or provider.  With several sandboxes each part is prefixed
with the sandbox: ``left.monitor``.  Channels are named in the same way.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from harness.model.condition import Condition, parse_condition

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min)")
_UNIT_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}

#: A wait without ``within`` gives up after this long.  Ordinary waits end in milliseconds (7 to
#: 8 ms for a whole launch, measured); this is the patience of a loaded machine, not an expectation.
DEFAULT_DEADLINE_NS = 5_000_000_000


def parse_duration(value: Any) -> int:
    """``500ms`` -> nanoseconds.  ValueError for anything without a unit, or negative."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value  # already nanoseconds: a stored scenario
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration with its unit, such as 500ms, 2s or 1min")
    return round(float(match[1]) * _UNIT_NS[match[2]])


def _duration(value: Any, info: ValidationInfo) -> int:
    # A number is nanoseconds in a stored scenario; in a file it is a duration without its unit.
    written = info.context is not None and info.context.get("as_written", False)
    return parse_duration(str(value) if written else value)


Duration = Annotated[
    int,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(us|ms|s|min)$"}),
]
When = Annotated[
    Condition,
    BeforeValidator(lambda v: v if isinstance(v, Condition) else parse_condition(v)),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {"type": "string", "examples": ["bwrap <= 0.13.1", "uid != 0 and kernel >= 6.1"]}
    ),
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
#: A member of the cast or a channel, with its sandbox in front when there are several.
Ref = Annotated[str, Field(pattern=r"^([a-z][a-z0-9-]*\.)?[a-z][a-z0-9-]*$")]
SignalName = Literal[
    "HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "PIPE", "ALRM", "CHLD", "CONT", "STOP",
    "TSTP", "TTIN", "TTOU", "WINCH", "SEGV", "ABRT",
]  # fmt: skip


class Closed(BaseModel):
    """A mapping that refuses unknown members."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _exactly_one(model: BaseModel, verbs: tuple[str, ...], what: str) -> str:
    given = [verb for verb in verbs if getattr(model, verb) is not None]
    if len(given) != 1:
        named = ", ".join(verb.rstrip("_") for verb in (given or verbs))
        raise ValueError(f"{what} takes exactly one of: {named}")
    return given[0]


# --- what runs -----------------------------------------------------------------------------------


class Spec(Closed):
    """A small sandbox specification, turned into bwrap arguments by the reference supervisor."""

    read_only: list[str] = Field([], description="Paths bound read-only at their own path.")
    read_write: list[str] = Field([], description="Paths bound read-write at their own path.")
    environment: list[str] = Field(
        [], description="Names of environment variables to carry into the cleared environment."
    )
    network: Literal["none", "host", "provider"] = Field("none", description="Network access.")
    control_socket: str | None = Field(
        None, description="A socket whose directory is bound read-write at its own path."
    )


class Command(Closed):
    """What the sandbox runs: exactly one of argv, shell and observe."""

    argv: list[str] | None = Field(None, min_length=1, description="Program and arguments.")
    shell: str | None = Field(
        None, description="Text for sh -c. $SCRATCH is the scenario's own directory."
    )
    observe: Literal[True] | None = Field(
        None, description="Report from inside: fds, signals, namespaces, environment, mounts."
    )
    then: str | None = Field(None, description="Shell text to go on with after observing.")

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        return {"argv": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one_form(self) -> Command:
        _exactly_one(self, ("argv", "shell", "observe"), "a command")
        if self.then is not None and not self.observe:
            raise ValueError("then goes with observe")
        return self


ChannelOption = Literal[
    "json-status-fd", "info-fd", "sync-fd", "block-fd", "userns-block-fd", "args", "seccomp",
    "add-seccomp-fd", "stdin", "stdout", "stderr", "terminal",
]  # fmt: skip


class Channel(Closed):
    """One fd that the supervisor passes to bwrap, and what happens at its far end."""

    option: ChannelOption | None = Field(
        None,
        description="The bwrap option (or standard stream) that it serves; none: a stray fd, "
        "whose number may be used in args as {name}.",
    )
    kind: Literal["pipe", "file", "memfd", "socketpair", "pty", "closed"] = Field(
        "pipe", description="What the fd is; closed: a number on which nothing is open."
    )
    direction: Literal["from-sandbox", "to-sandbox"] | None = Field(
        None, description="Which way data goes; known for every option, needed for a stray fd."
    )
    number: int | None = Field(None, ge=0, le=250, description="The fd number bwrap gets.")
    same_number_as: Name | None = Field(
        None, description="Share the fd and its number with another channel."
    )
    held_by: Name = Field(
        "observer", description="Who holds the far end: observer, supervisor, or a helper."
    )
    copy_kept_by: list[Name] = Field(
        [], description="Who keeps a stray copy of bwrap's own end: supervisor, or helpers."
    )
    read: Literal["drain", "never", "first-line-then-close", "closed-before-start"] = Field(
        "drain", description="How the observer reads what the sandbox writes."
    )
    content: str | None = Field(
        None, description="What it carries at start: text, or 'full' bytes with filled."
    )
    filled: bool = Field(False, description="Filled to the brim before bwrap starts.")
    mode: Literal["read-only", "read-write"] = Field("read-only", description="For a file.")


class Sandbox(Closed):
    """One launch of bwrap."""

    base: Literal["host", "none"] = Field(
        "host", description="host: --dev-bind / / comes first; none: nothing is added."
    )
    args: list[str] = Field(
        [], description="Raw bwrap arguments. {scratch} and {channel} are replaced."
    )
    spec: Spec | None = Field(None, description="A small specification; excludes base.")
    command: Command = Field(description="What runs inside.")
    channels: dict[Name, Channel] = Field({}, description="The fds that are passed.")
    launched_by: Literal["supervisor", "thread", "process"] = Field(
        "supervisor",
        description="From the supervisor's main thread, from a thread of it, or from a process "
        "between the two; the latter two are the cast member launcher.",
    )
    signals: dict[SignalName, Literal["ignore", "default", "block"]] = Field(
        {}, description="Signal dispositions and masks that bwrap inherits."
    )
    session: Literal["inherit", "own-group", "own-session"] = Field(
        "inherit", description="Whether bwrap gets a process group or session of its own."
    )
    env: dict[str, str] = Field({}, description="Environment variables for bwrap.")

    @model_validator(mode="after")
    def _spec_excludes_base(self) -> Sandbox:
        for name, channel in self.channels.items():
            if channel.same_number_as is not None and channel.same_number_as not in self.channels:
                raise ValueError(f"channel {name} shares its number with an unknown channel")
            if (
                channel.option is None
                and channel.direction is None
                and channel.kind
                in (
                    "pipe",
                    "socketpair",
                )
            ):
                raise ValueError(f"channel {name} serves no option, so it needs a direction")
        return self


class Helper(Closed):
    """A process beside the sandbox: holds a lock, listens, or just keeps what a channel says."""

    lock: Literal["read", "write"] | None = Field(None, description="Hold a lock of this type.")
    file: str | None = Field(None, description="The file to lock, relative to the scratch.")
    api: Literal["fcntl", "flock", "ofd"] = Field("fcntl", description="Which kind of lock.")
    listen: Literal["tcp", "unix"] | None = Field(
        None,
        description="Serve the word hello: on the host's loopback (tcp; the port is "
        "$NAME_PORT) or on the socket named by file (unix).",
    )
    started: Literal["at-once", "by-step"] = Field(
        "at-once", description="Before the sandboxes, or by a start step."
    )

    @model_validator(mode="after")
    def _whole(self) -> Helper:
        if self.lock is not None and self.file is None:
            raise ValueError("a lock needs a file")
        if self.lock is not None and self.listen is not None:
            raise ValueError("a helper either locks or listens")
        if self.listen == "unix" and self.file is None:
            raise ValueError("a unix listener needs a file")
        return self


class Provider(Closed):
    """A network provider for one sandbox, started by the run and known by its own pid."""

    kind: Literal["slirp4netns"] = Field("slirp4netns", description="The program.")
    for_: Name = Field("main", alias="for", description="The sandbox it serves.")
    program: str | None = Field(None, description="Another path for the program.")
    options: list[str] = Field([], description="Extra arguments.")


class Supervisor(Closed):
    """Who supervises.

    ``scripted`` does what the steps say and nothing else; ``reference`` runs
    ``harness.supervise`` for each sandbox and reports its outcome.
    """

    kind: Literal["scripted", "reference"] = Field("scripted", description="Which supervisor.")
    gate_deadline: Duration = Field(
        5_000_000_000, description="reference: how long the gate may stay closed."
    )
    ready_when: Name | None = Field(
        None,
        description="reference: the channel whose first byte says that the supervisor may open "
        "the gate (declared in the sandbox with direction to-sandbox and no option).",
    )


class FileSpec(Closed):
    """A file in the scratch directory, made before anything starts."""

    content: str = Field("", description="Its text.")
    mode: Annotated[str, Field(pattern=r"^[0-7]{3,4}$")] = Field("0644", description="Octal.")


class Needs(Closed):
    """What must be there; otherwise the scenario is skipped with reason and remedy."""

    tools: list[str] = Field([], description="Programs on PATH.")
    devices: list[str] = Field([], description="Device nodes that the user can open.")
    bwrap: When | None = Field(None, description="A condition on the version: bwrap >= 0.5.0.")
    user: Literal["non-root", "root"] | None = Field(None, description="The supervisor's user.")
    facts: list[str] = Field([], description="Names of facts of harness doctor that must hold.")


# --- what is done --------------------------------------------------------------------------------


class WaitFor(Closed):
    """Something to wait for: exactly one of its verbs."""

    line: Ref | None = Field(None, description="A whole line on this channel.")
    object: Ref | None = Field(None, description="A whole JSON object on this channel.")
    has: str | None = Field(None, description="The member the object must have.")
    contains: str | None = Field(None, description="Text that the line must contain.")
    eof: Ref | None = Field(None, description="End of file on this channel.")
    exit: Ref | None = Field(None, description="This process has exited.")
    gone: Ref | None = Field(None, description="This process is no longer there, or a zombie.")
    end: Name | None = Field(
        None, description="This sandbox: monitor exited and every drained channel at its end."
    )
    marker: str | None = Field(None, description="This file exists in the scratch directory.")
    process: Ref | None = Field(None, description="This process is in the given state.")
    state: Literal["blocked-on-gate", "running-command", "stopped", "zombie", "sleeping"] | None = (
        Field(None, description="The state to wait for.")
    )
    ready: Name | None = Field(None, description="This provider or helper is ready.")
    lock: str | None = Field(None, description="This file (in the scratch) is ...")
    is_: Literal["held", "free"] | None = Field(None, alias="is", description="... held or free.")
    report: Ref | None = Field(
        None, description="The reference supervisor has reported (name it: supervisor)."
    )
    said: str | None = Field(None, description="The reference supervisor said this event.")

    @model_validator(mode="after")
    def _one(self) -> WaitFor:
        verb = _exactly_one(self, WAIT_VERBS, "wait")
        for member, verbs in WAIT_MEMBERS.items():
            if getattr(self, member) is not None and verb not in verbs:
                raise ValueError(f"{member.rstrip('_')} does not go with {verb}")
        if verb == "process" and self.state is None:
            raise ValueError("process needs a state")
        if verb == "lock" and self.is_ is None:
            raise ValueError("lock needs is: held or is: free")
        return self


WAIT_VERBS = (
    "line", "object", "eof", "exit", "gone", "end", "marker", "process", "ready", "lock",
    "report", "said",
)  # fmt: skip
WAIT_MEMBERS = {
    "has": ("object",),
    "contains": ("line",),
    "state": ("process",),
    "is_": ("lock",),
}


class WriteData(Closed):
    """Write text to the far end of a channel."""

    to: Ref = Field(description="The channel.")
    text: str = Field(description="What to write.", min_length=1)


class SendSignal(Closed):
    """Send a signal to a member of the cast, or to its whole process group."""

    to: Ref | None = Field(None, description="The process.")
    group_of: Ref | None = Field(None, description="The process whose group gets it.")
    send: SignalName = Field(description="The signal, without SIG.")

    @model_validator(mode="after")
    def _one(self) -> SendSignal:
        _exactly_one(self, ("to", "group_of"), "signal")
        return self


class Probe(Closed):
    """Look at something now and write it into the timeline under ``name``."""

    locks: str | None = Field(None, description="Locks on this file in the scratch.")
    fds: Ref | None = Field(None, description="The fds of this process.")
    namespaces: Ref | None = Field(None, description="The namespaces of this process.")
    uid_map: Ref | None = Field(None, description="The uid and gid maps of this process.")
    signals: Ref | None = Field(None, description="Signal masks and dispositions.")
    census: Literal[True] | None = Field(None, description="Every process there is.")
    connect: Name | None = Field(None, description="Connect to this helper ...")
    from_: Ref | None = Field(
        None, alias="from", description="... from the network namespace of this process."
    )
    name: Name | None = Field(None, description="Its name; default: what is probed.")

    @model_validator(mode="after")
    def _one(self) -> Probe:
        _exactly_one(self, PROBE_VERBS, "probe")
        return self


PROBE_VERBS = ("locks", "fds", "namespaces", "uid_map", "signals", "census", "connect")


class TypeText(Closed):
    """Type at a terminal."""

    on: Ref = Field(description="The channel (a pty).")
    text: str = Field(description="What to type; \\x03 is ^C.")


class Resize(Closed):
    """Change the size of a terminal."""

    on: Ref = Field(description="The channel (a pty).")
    rows: int = Field(ge=1, le=1000, description="Rows.")
    columns: int = Field(ge=1, le=1000, description="Columns.")


class Step(Closed):
    """One thing that is done: exactly one verb, and a deadline."""

    launch: Name | None = Field(None, description="Start this sandbox now.")
    wait: WaitFor | None = Field(None, description="Wait until something happened.")
    write: WriteData | None = Field(None, description="Write to a channel.")
    close: Ref | None = Field(None, description="Close the far end of this channel.")
    signal: SendSignal | None = Field(None, description="Send a signal.")
    end: Ref | None = Field(None, description="End this launcher: the thread or process returns.")
    start: Name | None = Field(None, description="Start this helper or provider.")
    stop: Name | None = Field(None, description="Stop this helper or provider, in good order.")
    map_ids: Ref | None = Field(
        None, description="Write the uid and gid maps of this process, as its supervisor would."
    )
    probe: Probe | None = Field(None, description="Look at something.")
    pass_: Duration | None = Field(None, alias="pass", description="Let time pass.")
    settle: Duration | None = Field(
        None, description="Until no sandbox process is left, or at most this long; then a census."
    )
    type: TypeText | None = Field(None, description="Type at a terminal.")
    resize: Resize | None = Field(None, description="Resize a terminal.")
    trigger: bool = Field(False, description="This is the stimulus whose effect is judged.")
    within: Duration = Field(DEFAULT_DEADLINE_NS, description="The deadline of this step.")

    @model_validator(mode="after")
    def _one(self) -> Step:
        _exactly_one(self, STEP_VERBS, "a step")
        if self.within == 0:
            raise ValueError("a deadline of 0 can never be met")
        if self.within > 600_000_000_000:
            raise ValueError("a deadline above 10min is refused: nothing in a sandbox takes that")
        return self

    @property
    def verb(self) -> str:
        """The one verb that is given, as it is written in YAML."""
        return next(v for v in STEP_VERBS if getattr(self, v) is not None).rstrip("_")


STEP_VERBS = (
    "launch", "wait", "write", "close", "signal", "end", "start", "stop", "map_ids", "probe",
    "pass_", "settle", "type", "resize",
)  # fmt: skip


# --- what is expected ----------------------------------------------------------------------------


class Moment(Closed):
    """An event of the timeline, as named in expectations: exactly one verb."""

    line: Ref | None = Field(None, description="The first line on this channel ...")
    object: Ref | None = Field(None, description="The first JSON object on this channel ...")
    has: str | None = Field(None, description="... that has this member.")
    contains: str | None = Field(None, description="... that contains this text.")
    eof: Ref | None = Field(None, description="End of file on this channel.")
    exit: Ref | None = Field(None, description="The exit of this process.")
    marker: str | None = Field(None, description="This file appeared in the scratch directory.")
    said: str | None = Field(None, description="The reference supervisor said this.")
    lost: Name | None = Field(None, description="This provider is gone.")
    trigger: Literal[True] | None = Field(None, description="The trigger step was done.")

    @model_validator(mode="after")
    def _one(self) -> Moment:
        verb = _exactly_one(self, MOMENT_VERBS, "a moment")
        if self.has is not None and verb != "object":
            raise ValueError("has goes with object")
        if self.contains is not None and verb != "line":
            raise ValueError("contains goes with line")
        return self


MOMENT_VERBS = ("line", "object", "eof", "exit", "marker", "said", "lost", "trigger")


class ExpectExit(Closed):
    """How a process ended: a code, or a signal; never one integer for both."""

    of: Ref = Field(description="The process.")
    code: int | None = Field(None, ge=0, le=255, description="Exit status.")
    signal: SignalName | None = Field(None, description="Killed by this signal.")
    any: Literal[True] | None = Field(None, description="Ended, in whatever way.")
    never: Literal[True] | None = Field(None, description="Had not ended when the steps had.")

    @model_validator(mode="after")
    def _one(self) -> ExpectExit:
        _exactly_one(self, ("code", "signal", "any", "never"), "exit")
        return self


class ExpectObjects(Closed):
    """The JSON objects of a channel."""

    on: Ref = Field(description="The channel.")
    count: int | None = Field(None, ge=0, description="Exactly this many.")
    members: list[list[str]] | None = Field(
        None, description="For each object in order: members it must have."
    )
    none_has: str | None = Field(None, description="No object has this member.")
    some_has: str | None = Field(None, description="At least one object has this member.")
    fragments_joined: Literal[True] | None = Field(
        None, description="Every object was whole when its fragments were joined."
    )


class ExpectField(Closed):
    """One member of one JSON object."""

    on: Ref = Field(description="The channel.")
    member: str = Field(description="Its name; the first object that has it.")
    equals: int | str | bool | None = Field(None, description="This value.")
    pid_of: Ref | None = Field(None, description="The pid of this process, as the observer sees.")
    inode_of: str | None = Field(
        None, description="A namespace of a probe, an observation: observed.pid, NAME.net."
    )
    absent: Literal[True] | None = Field(None, description="No object has it.")

    @model_validator(mode="after")
    def _one(self) -> ExpectField:
        _exactly_one(self, ("equals", "pid_of", "inode_of", "absent"), "field")
        return self


class ExpectText(Closed):
    """Text on a channel.  Never used on bwrap's own error wording."""

    on: Ref = Field(description="The channel.")
    contains: str | None = Field(None, description="Some line contains this.")
    lacks: str | None = Field(None, description="No line contains this.")
    empty: bool | None = Field(None, description="Nothing at all (true), or something (false).")
    lines: list[str] | None = Field(None, description="Exactly these lines.")
    at_least_bytes: int | None = Field(None, ge=1, description="At least so many bytes in all.")

    @model_validator(mode="after")
    def _one(self) -> ExpectText:
        _exactly_one(self, ("contains", "lacks", "empty", "lines", "at_least_bytes"), "text")
        return self


class ExpectEof(Closed):
    """End of file on a channel."""

    on: Ref = Field(description="The channel.")
    seen: bool = Field(True, description="Whether it came before the steps were over.")


class ExpectGap(Closed):
    """The time between two moments, as the observer saw them."""

    from_: Moment = Field(alias="from", description="Where it starts.")
    to: Moment = Field(description="Where it ends.")
    at_most: Duration | None = Field(None, description="Upper bound.")
    at_least: Duration | None = Field(None, description="Lower bound.")

    @model_validator(mode="after")
    def _bounded(self) -> ExpectGap:
        if self.at_most is None and self.at_least is None:
            raise ValueError("gap needs at_most or at_least, or it can never fail")
        return self


class ExpectLocks(Closed):
    """What a lock probe saw."""

    at: Name = Field(description="The name of the probe.")
    held: list[Literal["read", "write"]] = Field(description="Types of the locks, sorted.")
    by: Ref | None = Field(None, description="All of them are held by this process.")


class ExpectFds(Closed):
    """Which fds a process had at a probe."""

    at: Name = Field(description="The name of the probe.")
    numbers: list[int] | None = Field(None, description="Exactly these numbers.")
    has_channel: Ref | None = Field(None, description="One of them is this channel.")
    lacks_channel: Ref | None = Field(None, description="None of them is this channel.")

    @model_validator(mode="after")
    def _one(self) -> ExpectFds:
        _exactly_one(self, ("numbers", "has_channel", "lacks_channel"), "fds")
        return self


class ExpectObserved(Closed):
    """What the observe payload saw: a dotted path into its report."""

    path: str = Field(description="Dotted path: environment.HOME, fds, signals.ignored, pid.")
    equals: Any = Field(None, description="Exactly this value.")
    keys: list[str] | None = Field(None, description="A mapping with exactly these keys.")
    contains: Any = Field(None, description="A list (or keys) with this item.")
    lacks: Any = Field(None, description="A list (or keys) without this item.")
    absent: Literal[True] | None = Field(None, description="There is no such member.")
    of: Name | None = Field(None, description="The sandbox, when there are several.")

    @model_validator(mode="after")
    def _one(self) -> ExpectObserved:
        _exactly_one(self, ("equals", "keys", "contains", "lacks", "absent"), "observed")
        return self


class ExpectProbe(Closed):
    """A value that a namespaces, uid_map, signals or connect probe saw."""

    at: Name = Field(description="The name of the probe.")
    path: str = Field(description="Dotted path into it: ignored, uid_map, namespaces.net, reached.")
    equals: Any = Field(None, description="Exactly this value.")
    contains: Any = Field(None, description="A list with this item.")
    lacks: Any = Field(None, description="A list without this item.")
    same_as: Name | None = Field(None, description="The same value as in this other probe.")
    differs_from: Name | None = Field(None, description="Another value than in this probe.")

    @model_validator(mode="after")
    def _one(self) -> ExpectProbe:
        _exactly_one(self, ("equals", "contains", "lacks", "same_as", "differs_from"), "probe")
        return self


class ExpectOutcome(Closed):
    """What the reference supervisor reported."""

    of: Ref = Field("supervisor", description="Which supervisor, when there are several.")
    kind: Literal[
        "exited",
        "signalled",
        "setup-failed",
        "provider-lost",
        "gate-timeout",
        "cancelled",
        "refused",
    ] = Field(description="The outcome; refused: it did not start anything.")
    error: Literal["SpecConflict", "LaunchRefused", "ProgramMissing"] | None = Field(
        None, description="For refused: which error of harness.supervise."
    )
    stderr_contains: str | None = Field(
        None, description="Text in the tail of the provider's stderr."
    )
    code: int | None = Field(None, description="Exit code, for exited.")
    phase: Literal["start", "before-gate", "workload"] | None = Field(
        None, description="When the provider was lost."
    )
    provider_signal: SignalName | None = Field(None, description="What the provider died of.")
    provider_code: int | None = Field(None, description="The provider's exit status.")


class Expectation(Closed):
    """One rule: exactly one verb; which clause it tests, and when it applies."""

    exit: ExpectExit | None = Field(None, description="How a process ended.")
    objects: ExpectObjects | None = Field(None, description="JSON objects on a channel.")
    field: ExpectField | None = Field(None, description="One member of one object.")
    text: ExpectText | None = Field(None, description="Text on a channel.")
    eof: ExpectEof | None = Field(None, description="End of file.")
    order: list[Moment] | None = Field(None, min_length=2, description="Moments, in this order.")
    gap: ExpectGap | None = Field(None, description="The time between two moments.")
    ran: str | None = Field(None, description="This marker file appeared.")
    never_ran: str | None = Field(None, description="This marker file never appeared.")
    survivors: list[Ref] | Literal["none"] | None = Field(
        None, description="Cast members alive in the last census of a settle (or none at all)."
    )
    zombies: list[Ref] | Literal["none"] | None = Field(
        None, description="Cast members that were zombies in that census."
    )
    alive: Ref | None = Field(None, description="This process was alive in that census.")
    locks: ExpectLocks | None = Field(None, description="What a lock probe saw.")
    fds: ExpectFds | None = Field(None, description="What an fd probe saw.")
    observed: ExpectObserved | None = Field(None, description="What was seen from inside.")
    probe: ExpectProbe | None = Field(None, description="What another probe saw.")
    outcome: ExpectOutcome | None = Field(None, description="The reference supervisor's report.")
    reached: WaitFor | None = Field(
        None, description="A wait step with exactly this text was met within its deadline."
    )
    name: Name | None = Field(None, description="Its name; default: the verb, numbered.")
    clause: str | None = Field(None, description="The clause of the contract that it tests.")
    when: When | None = Field(None, description="It applies only under this condition.")

    @model_validator(mode="after")
    def _one(self) -> Expectation:
        _exactly_one(self, EXPECT_VERBS, "an expectation")
        return self

    @property
    def verb(self) -> str:
        """The one verb that is given."""
        return next(v for v in EXPECT_VERBS if getattr(self, v) is not None)


EXPECT_VERBS = (
    "exit", "objects", "field", "text", "eof", "order", "gap", "ran", "never_ran", "survivors",
    "zombies", "alive", "locks", "fds", "observed", "probe", "outcome", "reached",
)  # fmt: skip


class Known(Closed):
    """A known deviation: which rule fails, where, and why.  Strict in every direction."""

    rule: Name = Field(description="The expectation that fails.")
    when: When = Field(description="The condition under which it fails.")
    because: str = Field(min_length=8, description="Why.")
    issue: str = Field(pattern=r"^https?://", description="Where it is discussed.")
    fixed_in: str | None = Field(None, description="The first version without it.")
    observed: str | None = Field(None, description="What is seen instead, word for word.")
    rate_at_least: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="A race: it fails in some repeats only; the smallest share ever measured. "
        "A share that is certainly smaller is a surprise.",
    )


class RateBound(Closed):
    """How often a repeated scenario may fail."""

    at_most: float = Field(ge=0, lt=1, description="The greatest share of repeats that may fail.")


class Scenario(Closed):
    """One scenario."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+$")] = (
        Field(description="area.what-happens; unique.")
    )
    title: str = Field(min_length=8, description="A sentence that is true when it passes.")
    clauses: list[str] = Field(min_length=1, description="Clauses of contract.yaml it is about.")
    refs: list[str] = Field([], description="Addresses and sections where this comes from.")
    tags: list[Name] = Field([], description="For -t.")
    claim: Literal["upheld", "refuted"] | None = Field(
        None, description="For a claim of a how-to: what passing says about the claim."
    )
    notes: str | None = Field(None, description="What a reader should know, for explain.")
    needs: Needs = Field(Needs.model_construct(), description="What must be there.")
    user: Literal["default", "root"] = Field(
        "default", description="Whom the supervisor runs as; default: unprivileged."
    )
    supervisor: Supervisor = Field(
        Supervisor.model_construct(), description="Who supervises, and how."
    )
    files: dict[str, FileSpec] = Field({}, description="Files in the scratch directory.")
    sandbox: Sandbox | None = Field(None, description="The one sandbox, called main.")
    sandboxes: dict[Name, Sandbox] | None = Field(
        None, min_length=2, description="Several, by name."
    )
    helpers: dict[Name, Helper] = Field({}, description="Processes beside the sandboxes.")
    providers: dict[Name, Provider] = Field({}, description="Network providers.")
    steps: list[Step] | None = Field(
        None, min_length=1, description="What is done, in order; default: launch, wait for end."
    )
    expect: list[Expectation] = Field(min_length=1, description="What must be true.")
    known: list[Known] = Field([], description="Known deviations.")
    repeat: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="Record it so often.")
    rate: RateBound | None = Field(None, description="For a race: how often it may fail.")

    @property
    def named_sandboxes(self) -> dict[str, Sandbox]:
        """The sandboxes by name; a single one is called ``main``."""
        return self.sandboxes if self.sandboxes is not None else {"main": self.sandbox}  # type: ignore[dict-item]

    @property
    def area(self) -> str:
        """What stands before the first dot of the id."""
        return self.id.partition(".")[0]

    @property
    def all_steps(self) -> list[Step]:
        """The steps, with what may be left unsaid in its place.

        Sandboxes without a launch step of their own are launched first, in order; without any
        steps, each is also waited for and its launch is the trigger.
        """
        given = self.steps or []
        launched = {step.launch for step in given if step.launch}
        first = [
            Step(launch=name, trigger=self.steps is None)
            for name in self.named_sandboxes
            if name not in launched
        ]
        last = [] if self.steps else [Step(wait=WaitFor(end=n)) for n in self.named_sandboxes]
        return [*first, *given, *last]

    def rule_names(self) -> list[str]:
        """The name of each expectation: its own, or its verb, numbered from the second on."""
        names: list[str] = []
        seen: dict[str, int] = {}
        for rule in self.expect:
            base = rule.name or rule.verb.replace("_", "-")
            seen[base] = seen.get(base, 0) + 1
            names.append(base if seen[base] == 1 else f"{base}-{seen[base]}")
        return names

    def plan(self) -> dict[str, Any]:
        """What the recorder is told: everything but what ought to happen (design law 3)."""
        whole = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=NOT_PLANNED)
        whole["sandboxes"] = {
            name: box.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, box in self.named_sandboxes.items()
        }
        whole["steps"] = [
            {**step.model_dump(mode="json", by_alias=True, exclude_none=True), "verb": step.verb}
            for step in self.all_steps
        ]
        return whole


#: Members of a scenario that the recorder never sees.
NOT_PLANNED = {
    "title", "clauses", "refs", "tags", "claim", "notes", "expect", "known", "rate", "repeat",
    "sandbox", "sandboxes", "steps",
}  # fmt: skip
