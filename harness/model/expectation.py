"""What is expected of a scenario: rules, one verb each, and known deviations from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from harness.model.notation import Closed, Duration, Name, Ref, SignalName, When, exactly_one
from harness.model.stimulus import WaitFor


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
        verb = exactly_one(self, MOMENT_VERBS, "a moment")
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
        exactly_one(self, ("code", "signal", "any", "never"), "exit")
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
        exactly_one(self, ("equals", "pid_of", "inode_of", "absent"), "field")
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
        exactly_one(self, ("contains", "lacks", "empty", "lines", "at_least_bytes"), "text")
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
        exactly_one(self, ("numbers", "has_channel", "lacks_channel"), "fds")
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
        exactly_one(self, ("equals", "keys", "contains", "lacks", "absent"), "observed")
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
        exactly_one(self, ("equals", "contains", "lacks", "same_as", "differs_from"), "probe")
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
        "workload-timeout",
        "readiness-failed",
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
        exactly_one(self, EXPECT_VERBS, "an expectation")
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
