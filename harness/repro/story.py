"""What a script is about, worked out before a line of it is written.

A :class:`Story` knows which rules become checks, whom and what these and the steps name, and the
variables of the script that stand for processes and channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.errors import UsageError
from harness.model.contract import Clause
from harness.model.scenario import Channel, Expectation, Moment, Sandbox, Scenario, Step
from harness.repro.seeing import Seeing
from harness.repro.source import Source, identifier

#: Parts of one sandbox; everybody else stands outside.
PARTS = ("launcher", "monitor", "child", "reaper", "command")
#: Options with which bwrap's clone stays as an init process inside (bubblewrap.c, main).
_KEEPS_REAPER = ("--unshare-pid", "--unshare-all", "--lock-file")
#: Options whose fd bwrap or its command reads.
_TO_SANDBOX = {"block-fd", "userns-block-fd", "args", "seccomp", "add-seccomp-fd", "stdin"}
STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}


def refuse(scenario: Scenario, what: str, instead: str = "") -> UsageError:
    """The error for what no script can say; ``what`` names the step, rule or member."""
    instead = instead or "run the scenario itself"
    return UsageError(
        f"no script can be written for {scenario.id}: {what}; "
        f"{instead} (harness run -k {scenario.id})"
    )


@dataclass(frozen=True, slots=True)
class Pipe:
    """One channel and its variables.  ``near`` is bwrap's end, ``far`` ours; empty for none.

    ``lane`` is its name in the scenario; ``number`` the expression of the number that bwrap gets.
    """

    lane: str
    spec: Channel
    near: str
    far: str
    number: str
    is_declared: bool = True

    @property
    def from_sandbox(self) -> bool:
        """Whether the sandbox writes and we read."""
        if self.spec.option == "terminal":
            return True
        if self.spec.direction is not None:
            return self.spec.direction == "from-sandbox"
        return self.spec.option not in _TO_SANDBOX

    @property
    def is_read(self) -> bool:
        """Whether what comes from it is read as it comes."""
        reads = self.spec.read in ("drain", "first-line-then-close")
        return bool(self.far) and self.from_sandbox and reads and self.spec.held_by == "observer"

    @property
    def is_json(self) -> bool:
        """Whether bwrap writes JSON objects to it."""
        return self.spec.option in ("json-status-fd", "info-fd")


@dataclass(frozen=True, slots=True)
class Box:
    """One sandbox, and what its processes are called in the script."""

    name: str
    prefix: str
    spec: Sandbox
    is_told: (
        bool  # whether a process between the script and bwrap starts it, and tells how it ended
    )
    channels: Mapping[str, Pipe] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """What the variables of this sandbox begin with."""
        return identifier(self.prefix)

    @property
    def monitor_pid(self) -> str:
        """The expression of bwrap's own pid."""
        return f"{self.stem}monitor_pid" if self.is_told else f"{self.stem}monitor.pid"

    @property
    def child_pid(self) -> str:
        """The variable of the pid that bwrap cloned."""
        return f"{self.stem}child_pid"

    @property
    def has_reaper(self) -> bool:
        """Whether the child stays as an init, so that the command is a child of it."""
        if "--as-pid-1" in self.spec.args:
            return False
        if self.spec.spec is not None:
            return True  # it comes to --unshare-all, among others
        served = {pipe.spec.option for pipe in self.channels.values()}
        return "sync-fd" in served or any(word in self.spec.args for word in _KEEPS_REAPER)

    def pid(self, part: str) -> str:
        """The expression of the pid of a part of this sandbox."""
        if part == "monitor":
            return self.monitor_pid
        if part in ("child", "reaper") or (part == "command" and not self.has_reaper):
            return self.child_pid
        return f"{self.stem}{part}_pid"


@dataclass
class Story:
    """One scenario on its way to a script."""

    scenario: Scenario
    clauses: Mapping[str, Clause]
    source: Source = field(default_factory=Source)
    boxes: dict[str, Box] = field(default_factory=dict)
    checks: list[tuple[str, Expectation]] = field(default_factory=list)
    resolved: set[str] = field(default_factory=set)  # variables of pids that are known by now
    triggered: bool = False
    is_moment: bool = False  # whether the step at hand is a trigger whose moment a check names
    probes: dict[str, str] = field(default_factory=dict)  # name -> its verb, once it was made

    # -- whom the scenario names -----------------------------------------------------------------

    def box_of(self, lane: str) -> tuple[Box, str] | None:
        """The sandbox and the part of it that a lane names; None for everybody outside."""
        for box in self.boxes.values():
            part = lane[len(box.prefix) :]
            if lane.startswith(box.prefix) and part in PARTS:
                return box, part
        return None

    def channel(self, lane: str, where: str) -> Pipe:
        """The channel that a lane names."""
        for box in self.boxes.values():
            for pipe in box.channels.values():
                if pipe.lane == lane:
                    return pipe
        raise refuse(self.scenario, f"{where} names {lane}, which is no channel of a sandbox")

    def pid(self, lane: str, where: str) -> str:
        """The expression of the pid of a member of the cast."""
        found = self.box_of(lane)
        if found is not None:
            return found[0].pid(found[1])
        if lane == "supervisor":
            return "supervisor_pid"
        if lane in self.scenario.providers:
            return f"{identifier(lane)}_provider.pid"
        raise refuse(self.scenario, f"{where} names {lane}, which is no process of the script")

    def lanes(self) -> Iterator[str]:
        """Every lane of a process that a step or check names."""
        for step in self.scenario.all_steps:
            yield from step_lanes(step)
        for _, rule in self.checks:
            yield from rule_lanes(rule)

    def exits(self) -> set[str]:
        """The lanes whose end is a moment of some check."""
        return {moment.exit for moment in self.moments() if moment.exit is not None}

    def seeing(self) -> Seeing:
        """What the script has to see."""
        moments = list(self.moments())
        pipes = [pipe for box in self.boxes.values() for pipe in box.channels.values()]
        return Seeing(
            channels=any(pipe.is_read for pipe in pipes)
            or any(box.is_told for box in self.boxes.values())
            or bool(self.scenario.providers),
            moments=bool(moments),
            exits=bool(self.exits()),
            markers=any(moment.marker is not None for moment in moments),
            objects=any(moment.object is not None for moment in moments),
            terminal=any(pipe.spec.option == "terminal" for pipe in pipes),
            first_line=any(pipe.spec.read == "first-line-then-close" for pipe in pipes),
        )

    def moments(self) -> Iterator[Moment]:
        """Every moment that a check names."""
        for _, rule in self.checks:
            yield from rule.order or ()
            if rule.gap is not None:
                yield from (rule.gap.from_, rule.gap.to)

    def is_named(self, lane: str) -> bool:
        """Whether a channel is named by a wait, a check or a moment."""
        waits = [step.wait for step in self.scenario.all_steps if step.wait is not None]
        named: set[str | None] = set()
        for wait in waits:
            named |= {wait.line, wait.object, wait.eof}
        for moment in self.moments():
            named |= {moment.line, moment.object, moment.eof}
        for _, rule in self.checks:
            named |= {each.on for each in (rule.text, rule.eof, rule.objects, rule.field) if each}
        for name, spec in self.scenario.named_sandboxes.items():
            if spec.command.observe:  # it says there what it sees
                named.add(f"{name}.stdout" if self.scenario.sandboxes else "stdout")
        return lane in named

    def ends(self, box: Box) -> bool:
        """Whether the end of a sandbox is waited for, with that of all it writes to."""
        return any(s.wait and s.wait.end == box.name for s in self.scenario.all_steps)

    @property
    def names_processes(self) -> bool:
        """Whether a check compares names of processes, or needs the census to have them."""
        return any(
            isinstance(rule.survivors, list) or rule.zombies is not None or rule.alive is not None
            for _, rule in self.checks
        )


def step_lanes(step: Step) -> Iterator[str]:
    """The members of the cast that a step names."""
    wait, probe = step.wait, step.probe
    if wait is not None:
        yield from filter(None, (wait.exit, wait.gone, wait.process))
    if step.signal is not None:
        yield step.signal.to or step.signal.group_of or ""
    if probe is not None:
        yield from filter(None, (probe.fds, probe.namespaces, probe.uid_map, probe.signals))
    yield from filter(None, (step.map_ids, step.end))


def rule_lanes(rule: Expectation) -> Iterator[str]:
    """The members of the cast that a rule names."""
    if rule.exit is not None:
        yield rule.exit.of
    if rule.field is not None and rule.field.pid_of is not None:
        yield rule.field.pid_of
    if rule.locks is not None and rule.locks.by is not None:
        yield rule.locks.by
    if rule.alive is not None:
        yield rule.alive
    for named in (rule.survivors, rule.zombies):
        if isinstance(named, list):
            yield from named
    for moment in (*(rule.order or ()), *((rule.gap.from_, rule.gap.to) if rule.gap else ())):
        if moment.exit is not None:
            yield moment.exit


def needs_supervisor(scenario: Scenario) -> bool:
    """Whether something happens to the supervisor, so that it cannot be the script itself."""
    lanes = [lane for step in scenario.all_steps for lane in step_lanes(step)]
    lanes += [lane for rule in scenario.expect for lane in rule_lanes(rule)]
    groups = any(step.signal and step.signal.group_of for step in scenario.all_steps)
    channels = [c for box in scenario.named_sandboxes.values() for c in box.channels.values()]
    holds = any(
        c.held_by == "supervisor" or "supervisor" in c.copy_kept_by or c.option == "terminal"
        for c in channels
    )
    return "supervisor" in lanes or groups or holds


def outside(story: Story) -> str:
    """The expression of the processes that are part of no sandbox; empty where there are none."""
    pids = sorted(
        each
        for each in story.resolved
        if each.endswith(("supervisor_pid", "launcher_pid"))
        or each.removesuffix("_pid") in map(identifier, story.scenario.helpers)
    )
    return "[" + ", ".join(pids) + "]" if pids else ""
