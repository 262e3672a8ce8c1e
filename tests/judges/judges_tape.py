"""A tape: timelines written as one-liners, for judges that read nothing else.

Every call adds one event, a millisecond and a wake-up after the one before it; ``together()``
keeps the next event in the wake-up of the last one, ``late()`` says that it was found behind it.
"""

from __future__ import annotations

from typing import Any

from harness.judges.recording import RULES
from harness.judges.rules import Case, Judgement
from harness.model.scenario import Expectation, Scenario
from harness.model.timeline import Event, Kind, Timeline
from harness.model.verdict import Held

YES, NO, UNKNOWN = Held.YES, Held.NO, Held.UNKNOWN
#: One row of a table: what is expected, the tape, whether it holds.
Row = tuple[dict[str, Any], "Tape", Held]


class Tape:
    """One recording in the making; sequence numbers count from 0, the header."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._step = 1
        self._late = False
        self._t_ms = 0.0
        self.add(Kind.RECORDING_OPENED, "observer", format=1, scenario="test.tape")

    def add(self, kind: Kind, lane: str, **data: Any) -> Tape:
        """Add any event."""
        wake = self.events[-1].wake + self._step if self.events else 0
        self._t_ms += self._step
        t_ns = round(self._t_ms * 1e6)
        self.events.append(Event(len(self.events), t_ns, wake, kind, lane, data, self._late))
        self._step, self._late = 1, False
        return self

    def together(self) -> Tape:
        """The next event is of the same wake-up as the last one."""
        self._step = 0
        return self

    def late(self) -> Tape:
        """The next event was found behind the last one, in the same read."""
        self._step, self._late = 0, True
        return self

    def after(self, ms: float) -> Tape:
        """Let time pass."""
        self._t_ms += ms
        return self

    # -- processes

    def started(self, lane: str, pid: int = 100) -> Tape:
        return self.add(Kind.PROCESS_STARTED, lane, pid=pid, ppid=1, comm="x")

    def identified(self, lane: str, pid: int = 100, ppid: int = 1) -> Tape:
        return self.add(Kind.PROCESS_IDENTIFIED, lane, pid=pid, ppid=ppid, comm="x")

    def exited(self, lane: str, pid: int = 100) -> Tape:
        return self.add(Kind.PROCESS_EXITED, lane, pid=pid)

    def status(self, lane: str, **how: Any) -> Tape:
        return self.add(Kind.STATUS_COLLECTED, lane, pid=100, **how)

    def marker(self, name: str) -> Tape:
        return self.add(Kind.MARKER_SEEN, "observer", marker=name)

    def census(self, name: str, *processes: str) -> Tape:
        """Processes written as ``member:STATE`` or ``member:STATE:PID``."""
        found = []
        for text in processes:
            member, state, *pid = text.split(":")
            found.append({"member": member, "state": state, "pid": int(pid[0]) if pid else 100})
        return self.add(Kind.CENSUS_TAKEN, "observer", name=name, processes=found)

    # -- channels

    def line(self, channel: str, text: str) -> Tape:
        return self.add(Kind.LINE_READ, channel, channel=channel, n=1, text=text, fragments=1)

    def object(self, channel: str, **members: Any) -> Tape:
        value = {name.replace("_", "-"): member for name, member in members.items()}
        return self.add(Kind.OBJECT_READ, channel, channel=channel, n=1, value=value, fragments=3)

    def eof(self, channel: str, *, bytes_: int = 0, rest: str = "") -> Tape:
        return self.add(Kind.EOF_READ, channel, channel=channel, bytes=bytes_, rest=rest)

    def truncated(self, channel: str) -> Tape:
        return self.add(Kind.CHANNEL_TRUNCATED, channel, channel=channel, kept_bytes=131072)

    # -- steps

    def step(self, index: int, verb: str) -> Tape:
        return self.add(Kind.STEP_STARTED, "observer", index=index, verb=verb)

    def done(self, index: int, verb: str, *, trigger: bool = False) -> Tape:
        return self.add(Kind.STEP_DONE, "observer", index=index, verb=verb, trigger=trigger)

    def timed_out(self, index: int, verb: str, *, trigger: bool = False) -> Tape:
        more = {"deadline_ns": 5_000_000_000, "trigger": trigger}
        return self.add(Kind.STEP_TIMED_OUT, "observer", index=index, verb=verb, **more)

    def failed(self, index: int, verb: str, reason: str, *, trigger: bool = False) -> Tape:
        more = {"reason": reason, "trigger": trigger}
        return self.add(Kind.STEP_FAILED, "observer", index=index, verb=verb, **more)

    def triggered(self) -> Tape:
        """A launch that is the trigger, as when a scenario has no steps."""
        return self.step(0, "launch").done(0, "launch", trigger=True)

    # -- the end

    def closed(self, *, leaks: tuple[str, ...] = (), complete: bool = True) -> Timeline:
        """The timeline, with its clean-up and its closing line."""
        self.add(Kind.CLEANUP_DONE, "observer", killed=[], reaped=[], leaks=list(leaks))
        count = len(self.events)
        self.add(Kind.RECORDING_CLOSED, "observer", events=count, complete=complete)
        return self.timeline

    @property
    def timeline(self) -> Timeline:
        """What has been written so far."""
        return Timeline(list(self.events))


def tape() -> Tape:
    """A new tape."""
    return Tape()


def scenario(*expect: dict[str, Any], **members: Any) -> Scenario:
    """A scenario with these expectations; steps, helpers and the rest as members."""
    whole: dict[str, Any] = {
        "id": "test.tape",
        "title": "A scenario of these tests",
        "clauses": ["TEST-1"],
        "sandbox": {"command": ["true"]},
        "expect": list(expect) or [{"exit": {"of": "monitor", "code": 0}}],
    }
    return Scenario.model_validate({**whole, **members})


def judge(expect: dict[str, Any], told: Tape, **members: Any) -> Judgement:
    """Hold one expectation against a tape, as ``judge_recording`` does, but let it raise."""
    rule = Expectation.model_validate(expect)
    case = Case(scenario(expect, **members), told.timeline)
    return RULES[rule.verb](getattr(rule, rule.verb), case)
