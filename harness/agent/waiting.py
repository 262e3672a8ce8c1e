"""What a step waits for: each condition of the grammar as a question that can be asked again.

Most are answered by what the loop has read; some only by a look at /proc, and the caller is told
which, because a loop that waits for an fd need not look.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from harness.agent import locks, procfs
from harness.agent.cast import Member
from harness.agent.channels import Channel
from harness.agent.recorder import Recording, StepFailed
from harness.model.vocabulary import Kind

#: How many walks in a row must find nobody before a settle believes it: more than the processes of
#: a scenario's sandboxes.  One takes 0.03 ms (measured).
EMPTY_WALKS = 30
#: The states of a process that end it as far as a scenario is concerned.
DEAD = "ZX"


class StepTimedOut(Exception):
    """The deadline of a step passed."""


def channel_of(recording: Recording, lane: str) -> Channel:
    """The channel of that lane; StepFailed when there is none."""
    try:
        return recording.channels[lane]
    except KeyError:
        raise StepFailed(f"there is no channel {lane}") from None


def member(recording: Recording, lane: str, within_ns: int) -> Member:
    """The member of the cast named ``lane``, looked for until the deadline."""

    def found() -> bool:
        if lane in recording.cast.members:
            return True
        pid = recording.cast.find_pid(lane)
        return pid is not None and recording.identify(lane, pid) is not None

    if not found() and not recording.pump(found, within_ns, looks=True):
        raise StepTimedOut
    return recording.cast.members[lane]


def condition(recording: Recording, what: dict[str, Any]) -> tuple[Callable[[], bool], bool]:
    """What to ask, and whether asking means looking at /proc."""
    if "line" in what:
        return lambda: _take_line(channel_of(recording, what["line"]), what.get("contains")), False
    if "object" in what:
        return lambda: _take_object(channel_of(recording, what["object"]), what.get("has")), False
    if "eof" in what:
        return lambda: channel_of(recording, what["eof"]).at_eof, False
    if "exit" in what:
        return lambda: _has_exited(recording, what["exit"]), True
    if "gone" in what:
        return lambda: _is_gone(recording, what["gone"]), True
    if "end" in what:
        return lambda: _has_ended(recording, what["end"]), False
    if "marker" in what:
        return lambda: what["marker"] in recording.markers, False
    if "process" in what:
        return lambda: _in_state(recording, what["process"], what["state"]), True
    if "ready" in what:
        return lambda: _is_ready(recording, what["ready"]), False
    if "lock" in what:
        path = os.path.join(recording.scratch, what["lock"])
        return lambda: bool(held(path)) == (what["is"] == "held"), True
    if "report" in what:
        return lambda: what["report"] in recording.reports, False
    return lambda: what["said"] in recording.said, False


def _take_line(channel: Channel, contains: str | None) -> bool:
    """Whether a line not yet waited for fits; waits on one channel go forward, never back."""
    for index in range(channel.seen_lines, len(channel.lines)):
        if contains is None or contains in channel.lines[index]:
            channel.seen_lines = index + 1
            return True
    return False


def _take_object(channel: Channel, has: str | None) -> bool:
    for index in range(channel.seen_objects, len(channel.objects)):
        if has is None or has in channel.objects[index]:
            channel.seen_objects = index + 1
            return True
    return False


def _has_exited(recording: Recording, lane: str) -> bool:
    """Exited, and its status known as far as anybody will tell it."""
    known = recording.cast.members.get(lane)
    return known is not None and known.exited and _is_told(recording, lane, known)


def are_statuses_told(recording: Recording) -> bool:
    """Whether nobody has still to say how something ended that is known to have ended.

    Before that, whether a recording says so would be a matter of chance.
    """
    return all(
        not known.exited or _is_told(recording, lane, known)
        for lane, known in recording.cast.members.items()
    )


def _is_told(recording: Recording, lane: str, known: Member) -> bool:
    """Whether how it ended is known, or nobody will tell.

    A supervisor waits for what it started and says the status a moment later, unless it is stopped
    or dead; what bwrap itself waits for (the child, without a reaper) it never tells.
    """
    if known.status is not None:
        return True
    if lane.rpartition(".")[2] not in ("monitor", "launcher") and lane not in recording.providers:
        return True
    tellers = (*recording.supervisors, *recording.launchers())
    return all(
        recording.cast.members[name].exited or state_of(recording.cast.members[name]) in "T" + DEAD
        for name in tellers
        if name in recording.cast.members
    )


def _is_gone(recording: Recording, lane: str) -> bool:
    known = recording.cast.members.get(lane)
    if known is not None:
        return known.exited or not known.is_there
    return recording.cast.find_pid(lane) is None


def _has_ended(recording: Recording, sandbox: str) -> bool:
    monitor = recording.cast.members.get(recording.prefixes[sandbox] + "monitor")
    # A bwrap that ends at once is told to have ended before its pidfd was looked at: the exit is
    # an event of its own, and without it no rule could name that moment.
    if monitor is None or monitor.status is None or not monitor.exited:
        return False
    group = recording.groups[sandbox].values()
    return not any(channel.is_read and not channel.at_eof for channel in group)


def _is_ready(recording: Recording, name: str) -> bool:
    if name in recording.failed:
        raise StepFailed(f"{name} did not become ready: {recording.failed[name]}")
    return name in recording.ready


def state_of(known: Member) -> str:
    process = procfs.read_process(known.pid)
    return process.state if process is not None and process.starttime == known.starttime else "X"


def _in_state(recording: Recording, lane: str, state: str) -> bool:
    pid = recording.cast.find_pid(lane)
    if pid is None:
        return False
    if state == "blocked-on-gate":
        reached = _is_blocked_on_gate(recording, lane, pid)
    elif state == "running-command":
        reached = recording.cast.runs_command(lane)
    else:
        process = procfs.read_process(pid)
        letters = {"stopped": "T", "zombie": "Z", "sleeping": "S"}[state]
        reached = process is not None and process.state in letters
    if reached:
        if lane not in recording.cast.members and recording.identify(lane, pid) is None:
            return False
        recording.journal.write(Kind.STATE_REACHED, lane, pid=pid, state=state)
    return reached


def _is_blocked_on_gate(recording: Recording, lane: str, pid: int) -> bool:
    sandbox = recording.cast.sandbox_of(lane)
    gates = {
        channel.target
        for channel in recording.groups.get(str(sandbox), {}).values()
        if channel.option in ("block-fd", "userns-block-fd")
    }
    if not gates:  # the reference supervisor's own gate: the only pipe the child sleeps on
        gates = set((procfs.fds(pid) or {}).values())
    blocked = procfs.blocked_reading(pid, gates)
    if blocked is None:
        raise StepFailed(
            f"what {lane} waits for cannot be read from /proc/{pid}/syscall here: "
            "run as root, or as the same user without Yama (kernel.yama.ptrace_scope)"
        )
    return blocked


def is_anybody_left(recording: Recording) -> bool:
    """Whether any process is alive below the recorder, apart from those outside of sandboxes.

    One walk that finds nobody proves nothing: a process whose parent dies during the walk is handed
    up to a list that was read already (measured: 3 in 60 with a supervisor that is killed, on a
    busy machine).  Each such walk takes an exit of its own, though, so more walks than there can be
    processes are proof.
    """
    outside = {
        known.pid for lane, known in recording.cast.members.items() if _is_outside(recording, lane)
    }
    for _ in range(EMPTY_WALKS):
        for process in recording.descendants():
            if process.state not in DEAD and process.pid not in outside:
                return True
    return False


def _is_outside(recording: Recording, lane: str) -> bool:
    part = lane.rpartition(".")[2]
    return part in ("supervisor", "launcher") or lane in recording.plan.get("helpers", {})


def held(path: str) -> list[locks.Lock]:
    """The locks that somebody has on a file, without those that are waited for."""
    return [lock for lock in locks.locks_on(path) if not lock.waiting]
