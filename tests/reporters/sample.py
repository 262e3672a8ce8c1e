"""A whole run with every status, two subjects that differ, a race, and hostile text.

The timelines are small and complete: what each of them shows is in the name of its function.
"""

from __future__ import annotations

from typing import Any

from harness.model.timeline import Event, Kind, Timeline
from harness.model.verdict import (
    Deviation,
    Finding,
    Held,
    Interval,
    Rate,
    Result,
    RunRecord,
    Status,
    Subject,
)

OLD, NEW = "image:debian-bookworm", "bundled"

#: Everything that acts on a terminal, in XML, in HTML, in Markdown or on the direction of text.
HOSTILE = (
    "<script>alert(1)</script> \x1b[31mred\x1b[0m \x00 \x9b2J \ud800 ]]> & \"q\" 'a' ]]&gt; "
    "\u202eRTL\u202c שלום 🦀 | `x` **b** [l](javascript:alert(1)) @root #1 %0A::error::x\r\nnext"
)


class Tape:
    """Writes a timeline: ``at`` moves the clock and begins a new wake-up, ``say`` adds an event."""

    def __init__(self, scenario: str, *, repeat: int = 0) -> None:
        self.events: list[Event] = []
        self._t_ns = 0
        self._wake = 0
        bwrap = {"path": "/usr/bin/bwrap", "version": "0.11.0", "sha256": "ab" * 32}
        self.say(
            Kind.RECORDING_OPENED,
            "observer",
            format=1,
            scenario=scenario,
            repeat=repeat,
            bwrap=bwrap,
            kernel="6.18.0",
            uid=0,
        )

    def at(self, ms: float) -> Tape:
        self._t_ns = round(ms * 1e6)
        self._wake += 1
        return self

    def say(self, kind: Kind, lane: str, **data: Any) -> Tape:
        seq = len(self.events)
        self.events.append(Event(seq, self._t_ns + 7_000 * seq, self._wake, kind, lane, data))
        return self

    def step(self, index: int, verb: str) -> Tape:
        return self.say(Kind.STEP_STARTED, "observer", index=index, verb=verb)

    def done(self, index: int, verb: str, *, trigger: bool = False) -> Tape:
        return self.say(Kind.STEP_DONE, "observer", index=index, verb=verb, trigger=trigger)

    def closed(self, *, killed: tuple[int, ...] = ()) -> Timeline:
        self.say(Kind.CLEANUP_DONE, "observer", killed=list(killed), reaped=len(killed), leaks=[])
        count = len(self.events)
        self.say(Kind.RECORDING_CLOSED, "observer", events=count, complete=True)
        return Timeline(self.events)


def _started(tape: Tape) -> Tape:
    tape.at(0.4).say(Kind.PROCESS_STARTED, "supervisor", pid=4100, ppid=4000)
    tape.at(1.1).say(
        Kind.PROCESS_STARTED, "monitor", pid=4101, ppid=4100, argv=["bwrap", "--unshare-pid"]
    )
    value = {"child-pid": 4102, "mnt-namespace": 4026533401, "pid-namespace": 4026533402}
    tape.at(7.9).say(Kind.OBJECT_READ, "observer", channel="status", n=1, value=value, fragments=4)
    return tape.say(Kind.PROCESS_IDENTIFIED, "reaper", pid=4102, ppid=4101, comm="bwrap")


def gate_held_and_monitor_killed() -> Timeline:
    """The waiting child survives the death of bwrap and is left to the clean-up."""
    tape = _started(Tape("block-fd.monitor-killed-while-gate-held").at(0.1).step(0, "wait"))
    tape.at(8.6).done(0, "wait").step(1, "wait")
    tape.at(9.4).say(Kind.STATE_REACHED, "reaper", state="blocked-on-gate").done(1, "wait")
    tape.at(9.9).step(2, "signal").say(Kind.SIGNAL_SENT, "monitor", signal="KILL", pid=4101)
    tape.done(2, "signal", trigger=True).step(3, "settle")
    tape.at(10.8).say(Kind.PROCESS_EXITED, "monitor", pid=4101)
    tape.say(Kind.EOF_READ, "observer", channel="status", bytes=97, rest="")
    tape.at(11.2).say(Kind.STATUS_COLLECTED, "monitor", pid=4101, signal="KILL")
    tape.at(510.3).done(3, "settle").step(4, "probe")
    processes = [{"pid": 4102, "ppid": 4000, "member": "reaper", "state": "S", "comm": "bwrap"}]
    tape.at(511.0).say(Kind.CENSUS_TAKEN, "observer", name="survivors", processes=processes)
    tape.done(4, "probe")
    tape.at(514.0).say(Kind.PROCESS_EXITED, "supervisor", pid=4100)
    tape.say(Kind.STATUS_COLLECTED, "supervisor", pid=4100, code=0)
    return tape.at(516.5).closed(killed=(4102,))


def exit_seven_reported_everywhere() -> Timeline:
    """The quiet case: two status objects, an EOF, exit status 7, in one wake-up at the end."""
    tape = _started(Tape("json-status.order").at(0.1).step(0, "wait"))
    tape.at(8.9).say(Kind.PROCESS_IDENTIFIED, "command", pid=4103, ppid=4102, comm="sh")
    tape.say(Kind.MARKER_SEEN, "command", marker="started")
    tape.at(14.2).say(
        Kind.OBJECT_READ, "observer", channel="status", n=2, value={"exit-code": 7}, fragments=2
    )
    tape.at(14.9).say(Kind.PROCESS_EXITED, "monitor", pid=4101)
    tape.say(Kind.EOF_READ, "observer", channel="status", bytes=121, rest="")
    tape.say(Kind.EOF_READ, "observer", channel="sync", bytes=0, rest="")
    tape.say(Kind.PROCESS_EXITED, "reaper", pid=4102).say(Kind.PROCESS_EXITED, "command", pid=4103)
    tape.at(15.3).say(Kind.STATUS_COLLECTED, "monitor", pid=4101, code=7).done(
        0, "wait", trigger=True
    )
    tape.at(16.0).say(Kind.PROCESS_EXITED, "supervisor", pid=4100)
    tape.say(Kind.STATUS_COLLECTED, "supervisor", pid=4100, code=0)
    return tape.at(16.4).closed()


def provider_killed_mid_workload() -> Timeline:
    """slirp4netns is killed; its liveness pipe ends; the supervisor ends the sandbox."""
    tape = Tape("network.provider-lost").at(0.1).step(0, "start")
    _started(tape)
    tape.at(8.8).say(Kind.PROCESS_STARTED, "slirp", pid=4110, ppid=4100, argv=["slirp4netns", "-c"])
    tape.at(31.0).say(Kind.PROVIDER_READY, "slirp").done(0, "start").step(1, "write")
    tape.say(Kind.DATA_WRITTEN, "observer", channel="gate", bytes=1, by="supervisor")
    tape.at(31.4).done(1, "write").step(2, "probe")
    tape.at(33.0).say(Kind.PROCESS_IDENTIFIED, "command", pid=4103, ppid=4102, comm="curl")
    tape.at(38.5).say(Kind.CONNECTION_PROBED, "command", name="before", reached=True)
    tape.done(2, "probe").step(3, "signal")
    tape.say(Kind.SIGNAL_SENT, "slirp", signal="KILL", pid=4110).done(3, "signal", trigger=True)
    tape.at(38.9).say(Kind.PROVIDER_LOST, "slirp").say(Kind.PROCESS_EXITED, "slirp", pid=4110)
    tape.say(Kind.STATUS_COLLECTED, "slirp", pid=4110, signal="KILL")
    tape.at(39.2).say(
        Kind.CONNECTION_PROBED, "command", name="after", reached=False, errno="ENETUN"
    )
    tape.at(39.6).say(
        Kind.SIGNAL_SENT, "monitor", signal="TERM", pid=4101, by="supervisor", group=False
    )
    tape.at(40.9).say(Kind.PROCESS_EXITED, "monitor", pid=4101)
    tape.say(Kind.STATUS_COLLECTED, "monitor", pid=4101, signal="TERM")
    tape.say(Kind.PROCESS_EXITED, "reaper", pid=4102).say(Kind.PROCESS_EXITED, "command", pid=4103)
    tape.at(41.1).say(Kind.EOF_READ, "observer", channel="status", bytes=97, rest="")
    tape.at(41.8).say(
        Kind.SUPERVISOR_REPORTED, "supervisor", outcome={"kind": "provider-lost", "name": "slirp"}
    )
    tape.at(42.6).say(Kind.PROCESS_EXITED, "supervisor", pid=4100)
    tape.say(Kind.STATUS_COLLECTED, "supervisor", pid=4100, code=1)
    return tape.at(43.0).closed()


def supervisor_killed_in_a_race() -> Timeline:
    """One repeat of the race in which the command was left running, seen by nobody."""
    tape = _started(Tape("die-with-parent.race", repeat=3).at(0.1).step(0, "signal"))
    tape.at(8.0).say(Kind.SIGNAL_SENT, "supervisor", signal="KILL", pid=4100)
    tape.done(0, "signal", trigger=True).step(1, "settle")
    tape.at(8.3).say(Kind.PROCESS_EXITED, "supervisor", pid=4100)
    tape.say(Kind.STATUS_COLLECTED, "supervisor", pid=4100, signal="KILL")
    tape.at(8.5).say(Kind.PROCESS_EXITED, "monitor", pid=4101)
    tape.say(Kind.STATUS_COLLECTED, "monitor", pid=4101, signal="KILL")
    tape.at(9.6).say(Kind.PROCESS_IDENTIFIED, "command", pid=4103, ppid=4102, comm="sleep")
    tape.say(Kind.MARKER_SEEN, "command", marker="mark")
    tape.at(1010.0).done(1, "settle")
    tape.at(1012.0).say(Kind.STEP_TIMED_OUT, "observer", index=2, verb="wait", deadline_ns=10**9)
    return tape.at(1014.0).closed(killed=(4102, 4103))


def two_sandboxes_on_one_lock() -> Timeline:
    """A reader and a second reader: both start; the lock outlives the first monitor."""
    tape = Tape("lock-file.two-readers").at(0.2)
    tape.say(Kind.PROCESS_STARTED, "supervisor", pid=4100, ppid=4000)
    tape.at(1).say(Kind.HELPER_READY, "holder", port=0)
    tape.at(1.4).say(Kind.PROCESS_STARTED, "left.monitor", pid=4201, ppid=4100)
    tape.at(2.4).say(Kind.PROCESS_STARTED, "right.monitor", pid=4301, ppid=4100)
    tape.at(9).say(Kind.PROCESS_IDENTIFIED, "left.reaper", pid=4202, ppid=4201)
    tape.say(Kind.PROCESS_IDENTIFIED, "right.reaper", pid=4302, ppid=4301)
    locks = [{"api": "fcntl", "type": "read", "pid": 4202, "member": "left.reaper"}]
    tape.at(11).say(Kind.LOCKS_PROBED, "observer", name="held", file="lock", locks=locks)
    tape.at(12).say(Kind.SIGNAL_SENT, "left.monitor", signal="KILL", pid=4201)
    tape.at(12.4).say(Kind.PROCESS_EXITED, "left.monitor", pid=4201)
    tape.say(Kind.STATUS_COLLECTED, "left.monitor", pid=4201, signal="KILL")
    return tape.at(3200).closed(killed=(4202, 4301, 4302))


CONTRACT = {
    "STATUS-1": {
        "sentence": "The first status line is an object with child-pid, before the command starts",
        "source": "bwrap(1), --json-status-fd",
    },
    "STATUS-2": {
        "sentence": "The last status line is an object with the exit code of the command",
        "source": "bwrap(1), --json-status-fd",
    },
    "BLOCK-2": {
        "sentence": "The command does not start before something can be read from --block-fd",
        "source": "bwrap(1), --block-fd",
    },
    "DWP-3": {
        "sentence": "Nothing of the sandbox outlives bwrap when --die-with-parent is given",
        "source": "bwrap(1), --die-with-parent; https://github.com/containers/bubblewrap/issues/753",
    },
    "SIG-1": {
        "sentence": "A supervisor may ignore SIGCHLD when it spawns bwrap",
        "source": "sigaction(2)",
    },
    "NET-1": {
        "sentence": "Losing the network provider ends the run, and the report names it",
        "source": "reference supervisor",
    },
    "LOCK-4": {"sentence": "A lock ends with the sandbox, not with bwrap", "source": "bwrap(1)"},
    "INFO-9": {"sentence": "The info object says which namespaces exist", "source": "bwrap(1)"},
}

SUBJECTS = (
    Subject(
        spec=NEW,
        version="0.11.0",
        path="/opt/venv/bin/bwrap",
        sha256="3f8a" * 16,
        kernel="6.18.0-amd64",
        uid=0,
        facts={"userns": True},
    ),
    Subject(
        spec=OLD,
        version="0.8.0",
        path="/usr/bin/bwrap",
        sha256="91cd" * 16,
        kernel="6.18.0-amd64",
        uid=1000,
        image_digest="sha256:" + "77" * 32,
        facts={"userns": True, "docker": "27.1"},
    ),
)

_ISSUE = "https://github.com/containers/bubblewrap/issues/753"
_SURVIVORS = Finding(
    rule="survivors",
    held=Held.NO,
    expected="no process left at the settle point",
    observed="reaper (pid 4102) in state S, waiting for the gate",
    clause="DWP-3",
    events=(11, 19),
)
_KILLED = Finding("exit: monitor", Held.YES, "SIGKILL", "SIGKILL", "DWP-3", (16,))
_NEVER_RAN = Finding("never_ran", Held.YES, "command never ran", "no trace of it", "BLOCK-2")
_STATUS_OK = (
    Finding("lines", Held.YES, "child-pid, then exit-code", "both", "STATUS-1", (4, 8)),
    Finding("exit-code", Held.YES, "7", "7", "STATUS-2", (8, 14)),
)


def _case(name: str, subject: str, status: Status, **members: Any) -> Result:
    family = name.split(".")[0]
    return Result(
        id=name,
        subject=subject,
        status=status,
        file=f"scenarios/{family}.yaml",
        line=len(name),
        timeline=f"timelines/{name}.{len(subject)}.jsonl",
        rerun=f"harness run scenarios/{family}.yaml -k {name} --subject {subject} --seed 7",
        **members,
    )


def _results() -> tuple[Result, ...]:
    gate: dict[str, Any] = {
        "title": "Killing bwrap while the gate is held leaves nothing with --die-with-parent",
        "tags": ("block-fd", "die-with-parent"),
        "clauses": ("DWP-3", "BLOCK-2"),
        "refs": (_ISSUE, "bwrap(1), --block-fd", "javascript:alert(1)"),
        "duration_s": 0.5165,
        "findings": (_SURVIVORS, _KILLED, _NEVER_RAN),
    }
    deviation = Deviation(
        rule="survivors",
        because="the death signal is set only after the gate opens",
        issue=_ISSUE,
        when="bwrap < 0.9",
        fixed_in=None,
        file="scenarios/block-fd.yaml",
        line=31,
    )
    race: dict[str, Any] = {
        "title": "Killing the supervisor while it holds the gate never leaves the command running",
        "tags": ("die-with-parent", "race"),
        "clauses": ("DWP-3",),
        "refs": (_ISSUE,),
        "repeats": 200,
    }
    order: dict[str, Any] = {
        "title": "Status lines arrive in order, then EOF, then bwrap exits with the same code",
        "tags": ("json-status-fd",),
        "clauses": ("STATUS-1", "STATUS-2"),
        "duration_s": 0.0164,
        "findings": _STATUS_OK,
    }
    orphan = Finding(
        "survivors", Held.NO, "none", "command (pid 4103) sleeping", "DWP-3", (14, 15), repeat=3
    )
    return (
        _case("json-status.order", NEW, Status.PASS, **order),
        _case("json-status.order", OLD, Status.PASS, **order),
        _case("block-fd.monitor-killed-while-gate-held", NEW, Status.FAIL, **gate),
        _case(
            "block-fd.monitor-killed-while-gate-held",
            OLD,
            Status.KNOWN,
            deviations=(deviation,),
            **gate,
        ),
        _case(
            "die-with-parent.race",
            NEW,
            Status.FAIL,
            duration_s=203.4,
            findings=(orphan,),
            rates=(Rate("survivors", Interval(94, 200, 0.4021, 0.5391), "0 %"),),
            shown_repeat=3,
            message="survivors: 94 of 200 repeats left the command running, allowed 0 %",
            **race,
        ),
        _case(
            "die-with-parent.race",
            OLD,
            Status.PASS,
            duration_s=199.0,
            findings=(Finding("survivors", Held.YES, "none", "none", "DWP-3", (12,)),),
            rates=(Rate("survivors", Interval(0, 200, 0.0, 0.0188), "at most 2 %"),),
            **race,
        ),
        _case(
            "sigchld.ignored",
            NEW,
            Status.UNEXPECTED_PASS,
            title="bwrap exits although its supervisor ignores SIGCHLD",
            tags=("signals",),
            clauses=("SIG-1",),
            duration_s=0.021,
            findings=(Finding("exit: monitor", Held.YES, "7", "7", "SIG-1"),),
            deviations=(
                Deviation(
                    "exit: monitor",
                    "bwrap waits for a child that the kernel reaps for it",
                    "https://github.com/containers/bubblewrap/issues/700",
                    "bwrap < 0.12",
                    "0.12.0",
                    "scenarios/sigchld.yaml",
                    22,
                ),
            ),
        ),
        _case(
            "sigchld.ignored",
            OLD,
            Status.INCONCLUSIVE,
            title="bwrap exits although its supervisor ignores SIGCHLD",
            tags=("signals",),
            clauses=("SIG-1",),
            duration_s=5.0,
            message="the trigger is not in the recording: step 2 (signal) never happened",
            findings=(
                Finding("exit: monitor", Held.UNKNOWN, "7", "no trigger, so no answer", "SIG-1"),
            ),
        ),
        _case(
            "network.provider-lost",
            NEW,
            Status.PASS,
            title="Killing the run's own slirp4netns ends the run and names the provider",
            tags=("network", "provider"),
            clauses=("NET-1",),
            duration_s=0.043,
            findings=(
                Finding(
                    "outcome",
                    Held.YES,
                    "provider-lost slirp",
                    "provider-lost slirp",
                    "NET-1",
                    (35,),
                ),
                Finding("order", Held.YES, "EOF before TERM", "EOF before TERM", "NET-1", (22, 27)),
            ),
        ),
        _case(
            "network.provider-lost",
            OLD,
            Status.SKIP,
            title="Killing the run's own slirp4netns ends the run and names the provider",
            tags=("network", "provider"),
            clauses=("NET-1",),
            reason="slirp4netns is not in the image",
            remedy="apt-get install slirp4netns in containers/debian-bookworm, then rebuild",
        ),
        _case(
            "lock-file.two-readers",
            NEW,
            Status.PASS,
            title="Two sandboxes may hold the same lock file",
            tags=("lock-file",),
            clauses=("LOCK-4",),
            duration_s=3.2,
            findings=(Finding("locks", Held.YES, "fcntl read", "fcntl read", "LOCK-4", (7,)),),
        ),
        _case(
            "lock-file.two-readers",
            OLD,
            Status.ERROR,
            title="Two sandboxes may hold the same lock file",
            tags=("lock-file",),
            clauses=("LOCK-4",),
            duration_s=0.9,
            message="the recorder went away before it closed the recording",
            reason="container lost: exit status 137",
            remedy="look for the out-of-memory killer in the kernel log",
        ),
        _case(
            "hostile.text",
            NEW,
            Status.FAIL,
            title=HOSTILE,
            tags=("hostile", HOSTILE),
            clauses=("STATUS-2", HOSTILE),
            refs=("https://example.org/?a=1&b=2", "http://x/\"onclick='alert(1)", HOSTILE),
            duration_s=0.001,
            message=HOSTILE,
            findings=(
                Finding(HOSTILE, Held.NO, HOSTILE, HOSTILE + "A" * 1_000_000, HOSTILE, (1,)),
            ),
        ),
    )


def hostile_timeline() -> Timeline:
    """Events whose members are missing, of the wrong type, or attack the reader."""
    tape = Tape(HOSTILE).at(1)
    for kind in Kind:
        if kind not in (Kind.RECORDING_OPENED, Kind.RECORDING_CLOSED):
            tape.say(kind, "monitor")
    tape.at(2).say(Kind.LINE_READ, HOSTILE, channel=HOSTILE, n="x", text=HOSTILE * 100)
    tape.say(Kind.SIGNAL_SENT, "nobody", signal=HOSTILE, pid=HOSTILE)
    tape.say(Kind.CENSUS_TAKEN, "observer", name=1, processes=[1, {"pid": HOSTILE}])
    tape.say(Kind.LOCKS_PROBED, "observer", locks=["x", {}]).say(Kind.STEP_STARTED, "x", index=None)
    return Timeline(tape.events)


RUN = RunRecord(
    run_id="20260101-120000-7f3a",
    harness_version="0.1.0",
    started_at="2026-01-01T12:00:00Z",
    hostname="builder-3",
    command="harness run scenarios/ --subject bundled --subject image:debian-bookworm",
    seed=7,
    duration_s=412.6,
    complete=True,
    subjects=SUBJECTS,
    results=_results(),
    hidden={"--exclude-tag slow": 3, "-k": 0},
    contract=CONTRACT,
)

TIMELINES: dict[tuple[str, str], Timeline] = {
    ("json-status.order", NEW): exit_seven_reported_everywhere(),
    ("json-status.order", OLD): exit_seven_reported_everywhere(),
    ("block-fd.monitor-killed-while-gate-held", NEW): gate_held_and_monitor_killed(),
    ("block-fd.monitor-killed-while-gate-held", OLD): gate_held_and_monitor_killed(),
    ("die-with-parent.race", NEW): supervisor_killed_in_a_race(),
    ("network.provider-lost", NEW): provider_killed_mid_workload(),
    ("lock-file.two-readers", NEW): two_sandboxes_on_one_lock(),
    ("hostile.text", NEW): hostile_timeline(),
}
