"""What runs in a scenario: sandboxes with their channels, helpers, providers, the supervisor."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.model.notation import Closed, Duration, Name, SignalName, When, exactly_one


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
        exactly_one(self, ("argv", "shell", "observe"), "a command")
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
