"""What a scenario may say: the grammar of the files in ``scenarios/``, as closed models.

The JSON Schema that editors use is generated from these classes (``harness schema``), the loader
reports every violation with its position, and ``Scenario.plan`` strips the expectations before the
recorder sees anything.  Learn the language from ``scenarios/README.md``; this file is its
reference, with ``launching`` (what runs), ``stimulus`` (steps), ``expectation`` (rules) and
``notation`` (how values are written) behind it.  Everything is data: nothing here knows how a
step is carried out (``harness.agent.recorder``) or judged (``harness.judges``).

A *process* in a scenario is named by its part in the cast: ``supervisor``, ``launcher``,
``monitor`` (the bwrap process that the supervisor started), ``child`` (the process that bwrap
cloned, whose pid bwrap calls child-pid), ``reaper`` (the child, when it stays as bwrap's init),
``command``, or the name of a helper or provider.  With several sandboxes each part is prefixed
with the sandbox: ``left.monitor``.  Channels are named in the same way.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from harness.model.expectation import (
    EXPECT_VERBS,
    MOMENT_VERBS,
    Expectation,
    ExpectEof,
    ExpectExit,
    ExpectFds,
    ExpectField,
    ExpectGap,
    ExpectLocks,
    ExpectObjects,
    ExpectObserved,
    ExpectOutcome,
    ExpectProbe,
    ExpectText,
    Known,
    Moment,
    RateBound,
)
from harness.model.launching import (
    Channel,
    ChannelOption,
    Command,
    FileSpec,
    Helper,
    Needs,
    Provider,
    Sandbox,
    Spec,
    Supervisor,
)
from harness.model.notation import (
    Closed,
    Duration,
    Name,
    Ref,
    When,
    parse_duration,
)
from harness.model.stimulus import (
    PROBE_VERBS,
    STEP_VERBS,
    WAIT_VERBS,
    Probe,
    Resize,
    SendSignal,
    Step,
    TypeText,
    WaitFor,
    WriteData,
)

__all__ = [
    "EXPECT_VERBS",
    "MOMENT_VERBS",
    "NOT_PLANNED",
    "PROBE_VERBS",
    "STEP_VERBS",
    "WAIT_VERBS",
    "Channel",
    "ChannelOption",
    "Closed",
    "Command",
    "Duration",
    "ExpectEof",
    "ExpectExit",
    "ExpectFds",
    "ExpectField",
    "ExpectGap",
    "ExpectLocks",
    "ExpectObjects",
    "ExpectObserved",
    "ExpectOutcome",
    "ExpectProbe",
    "ExpectText",
    "Expectation",
    "FileSpec",
    "Helper",
    "Known",
    "Moment",
    "Name",
    "Needs",
    "Probe",
    "Provider",
    "RateBound",
    "Ref",
    "Resize",
    "Sandbox",
    "Scenario",
    "SendSignal",
    "Spec",
    "Step",
    "Supervisor",
    "TypeText",
    "WaitFor",
    "When",
    "WriteData",
    "parse_duration",
]


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
