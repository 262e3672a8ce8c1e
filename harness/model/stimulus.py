"""What is done in a scenario: steps, one verb each, every one with a deadline."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from harness.model.notation import (
    DEFAULT_DEADLINE_NS,
    Closed,
    Duration,
    Name,
    Ref,
    SignalName,
    exactly_one,
)


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
        verb = exactly_one(self, WAIT_VERBS, "wait")
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
        exactly_one(self, ("to", "group_of"), "signal")
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
        exactly_one(self, PROBE_VERBS, "probe")
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
        exactly_one(self, STEP_VERBS, "a step")
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
