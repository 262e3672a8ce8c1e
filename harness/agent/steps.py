"""Carrying out the steps of a plan: one function per verb.

A step that cannot be done, or whose deadline passes, is written into the timeline.  Before the
trigger that ends the recording (what follows would judge nothing); after it the steps go on,
because what did not happen is then the very thing that is judged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from typing import Any, Callable

from harness.agent import kernel, locks, procfs
from harness.agent.cast import Member
from harness.agent.channels import Channel
from harness.agent.recorder import Recording, StepFailed
from harness.model.vocabulary import Kind

#: How long another process may take to answer what it answers at once: the patience of a loaded
#: machine, as for any wait without a deadline of its own.
ANSWER_NS = 5_000_000_000
#: How many walks in a row must find nobody before a settle believes it: more than the processes of
#: a scenario's sandboxes.  One takes 0.03 ms (measured).
EMPTY_WALKS = 30
#: The states of a process that end it as far as a scenario is concerned.
_DEAD = "ZX"


class StepTimedOut(Exception):
    """The deadline of a step passed."""


def run_steps(recording: Recording) -> None:
    """Carry out all steps in order; a last census is taken when no step took one."""
    triggered = False
    for index, step in enumerate(recording.plan["steps"]):
        verb, is_trigger = step["verb"], step.get("trigger", False)
        common = {"index": index, "verb": verb, "trigger": is_trigger}
        recording.journal.write(Kind.STEP_STARTED, "observer", index=index, verb=verb)
        try:
            STEPS[verb](recording, step)
        except StepTimedOut:
            recording.journal.write(
                Kind.STEP_TIMED_OUT, "observer", deadline_ns=step["within"], **common
            )
        except (StepFailed, OSError) as fault:
            recording.journal.write(Kind.STEP_FAILED, "observer", reason=str(fault), **common)
        else:
            recording.journal.write(Kind.STEP_DONE, "observer", **common)
            triggered = triggered or is_trigger
            continue
        if not triggered:
            break
    recording.take_census("end")


# --- names ---------------------------------------------------------------------------------------


def _channel(recording: Recording, lane: str) -> Channel:
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


# --- verbs ---------------------------------------------------------------------------------------


def _launch(recording: Recording, step: dict[str, Any]) -> None:
    name = step["launch"]
    prefix = recording.prefixes[name]
    lane = prefix + "monitor"
    if recording.plan["supervisor"]["kind"] == "reference":
        say_start = recording.supervisors[prefix + "supervisor"]
        say_start.send(b'{"do": "launch"}')
    else:
        message = {"do": "launch", "sandbox": name, "prefix": prefix}
        recording.order("supervisor", message, step["within"])
    # A launch that the reference supervisor refuses is done as well: its report is all there is.
    reporter = prefix + "supervisor"
    begun = lambda: lane in recording.cast.members or reporter in recording.reports  # noqa: E731
    if not recording.pump(begun, step["within"]):
        raise StepTimedOut


def _write(recording: Recording, step: dict[str, Any]) -> None:
    what = step["write"]
    channel = _channel(recording, what["to"])
    if channel.held_by == "supervisor":
        recording.look()
        message = {"do": "write", "channel": channel.lane, "text": what["text"]}
        recording.order("supervisor", message, step["within"])
    elif channel.held_by != "observer":
        raise StepFailed(f"{channel.lane} is held by {channel.held_by}, which writes nothing")
    else:
        _write_whole(recording, channel, what["text"].encode(), step["within"])
    recording.act(
        Kind.DATA_WRITTEN,
        channel.lane,
        channel=channel.lane,
        bytes=len(what["text"].encode()),
        by=channel.held_by,
    )


def _write_whole(recording: Recording, channel: Channel, data: bytes, within_ns: int) -> None:
    """Write all of ``data`` as its reader makes room; a full pipe must never stop the loop."""
    left = data

    def done() -> bool:
        nonlocal left
        with contextlib.suppress(BlockingIOError):
            while left:
                left = left[os.write(channel.far_fd, left) :]
        return not left

    recording.look()
    try:
        os.set_blocking(channel.far_fd, False)
        if not done() and not recording.pump(done, within_ns, looks=True):
            recording.act(Kind.WRITE_FAILED, channel.lane, channel=channel.lane, errno="EAGAIN")
            raise StepTimedOut
    except OSError as fault:
        name = errno.errorcode.get(fault.errno or 0, str(fault.errno))
        recording.act(Kind.WRITE_FAILED, channel.lane, channel=channel.lane, errno=name)
        raise


def _close(recording: Recording, step: dict[str, Any]) -> None:
    channel = _channel(recording, step["close"])
    recording.look()
    if channel.held_by == "supervisor":
        recording.order("supervisor", {"do": "close", "channel": channel.lane}, step["within"])
    else:
        if channel.far_fd < 0:
            raise StepFailed(f"the far end of {channel.lane} is not open here")
        recording.unwatch(channel.far_fd)
        channel.close_far()
    recording.act(Kind.CHANNEL_CLOSED, channel.lane, channel=channel.lane, by=channel.held_by)


def _signal(recording: Recording, step: dict[str, Any]) -> None:
    what = step["signal"]
    lane = what.get("to") or what["group_of"]
    number = getattr(signal, "SIG" + what["send"])
    receiver = member(recording, lane, step["within"])
    group = "group_of" in what
    recording.look()
    try:
        if group:
            pgrp = os.getpgid(receiver.pid)
            if pgrp == os.getpgid(0):
                raise StepFailed(f"the group of {lane} is the recorder's own")
            os.killpg(pgrp, number)
        else:
            kernel.pidfd_send_signal(receiver.pidfd, number)
    except OSError as fault:
        recording.act(Kind.SIGNAL_FAILED, lane, signal=what["send"], reason=fault.strerror)
        raise StepFailed(f"{lane} cannot be signalled: {fault.strerror}") from fault
    recording.act(Kind.SIGNAL_SENT, lane, signal=what["send"], pid=receiver.pid, group=group)
    if what["send"] == "STOP":
        # A signal is only queued; the stop is a fact once /proc shows it.
        stopped = lambda: _state_of(receiver) in "T" + _DEAD  # noqa: E731
        if not recording.pump(stopped, step["within"], looks=True):
            raise StepTimedOut


def _end(recording: Recording, step: dict[str, Any]) -> None:
    lane = step["end"]
    sandbox = recording.cast.sandbox_of(lane)
    how = recording.plan["sandboxes"][sandbox].get("launched_by", "supervisor")
    message = {"do": "end-launcher", "lane": lane}
    recording.look()
    recording.order("supervisor", message, step["within"])
    recording.act(Kind.LAUNCHER_ENDED, lane, how=how)


def _start(recording: Recording, step: dict[str, Any]) -> None:
    name = step["start"]
    if name in recording.plan.get("helpers", {}):
        recording.start_bystander(name)
    else:
        served = recording.plan["providers"][name]["for"]
        child = member(recording, recording.prefixes[served] + "child", step["within"])
        message = {"do": "start-provider", "name": name, "child_pid": child.pid}
        recording.order("supervisor", message, step["within"])
    if not recording.pump(lambda: recording.is_decided(name), step["within"]):
        raise StepTimedOut
    if name in recording.failed:
        raise StepFailed(f"{name} did not become ready: {recording.failed[name]}")


def _stop(recording: Recording, step: dict[str, Any]) -> None:
    name = step["stop"]
    if name in recording.plan.get("helpers", {}):
        helper = member(recording, name, step["within"])
        recording.look()
        kernel.pidfd_send_signal(helper.pidfd, signal.SIGKILL)
        recording.act(Kind.HELPER_STOPPED, name)
        if not recording.pump(lambda: helper.exited, step["within"]):
            raise StepTimedOut
        # Its fds are closed and its locks gone once the kernel has made a zombie of it.
        return
    recording.look()
    recording.act(Kind.PROVIDER_STOPPED, name)
    recording.order("supervisor", {"do": "stop-provider", "name": name}, step["within"])


def _map_ids(recording: Recording, step: dict[str, Any]) -> None:
    target = member(recording, step["map_ids"], step["within"])
    uid, gid = recording.plan["uid"], recording.plan["gid"]
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/{target.pid}/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _pass(recording: Recording, step: dict[str, Any]) -> None:
    recording.pump(lambda: False, step["pass"])


def _settle(recording: Recording, step: dict[str, Any]) -> None:
    recording.pump(lambda: not _is_anybody_left(recording), step["settle"], looks=True)
    # What ended during the last look is read before the census, so that both say the same.
    recording.wake_up(0)
    recording.take_census("settle")


def _is_anybody_left(recording: Recording) -> bool:
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
        for process in procfs.descendants_by_children(os.getpid()):
            if process.state not in _DEAD and process.pid not in outside:
                return True
    return False


def _is_outside(recording: Recording, lane: str) -> bool:
    part = lane.rpartition(".")[2]
    return part in ("supervisor", "launcher") or lane in recording.plan.get("helpers", {})


def _type(recording: Recording, step: dict[str, Any]) -> None:
    what = step["type"]
    channel = _channel(recording, what["on"])
    _write_whole(recording, channel, what["text"].encode(), step["within"])
    size = len(what["text"].encode())
    recording.act(Kind.DATA_WRITTEN, channel.lane, channel=channel.lane, bytes=size, by="observer")


def _resize(recording: Recording, step: dict[str, Any]) -> None:
    what = step["resize"]
    recording.look()
    _channel(recording, what["on"]).resize(what["rows"], what["columns"])
    recording.act(Kind.DATA_WRITTEN, what["on"], channel=what["on"], bytes=0, by="observer")


# --- waiting -------------------------------------------------------------------------------------


def _wait(recording: Recording, step: dict[str, Any]) -> None:
    condition, looks = _condition(recording, step["wait"])
    if not recording.pump(condition, step["within"], looks=looks):
        raise StepTimedOut


def _condition(recording: Recording, what: dict[str, Any]) -> tuple[Callable[[], bool], bool]:
    """What to ask, and whether asking means looking at /proc."""
    if "line" in what:
        return lambda: _take_line(_channel(recording, what["line"]), what.get("contains")), False
    if "object" in what:
        return lambda: _take_object(_channel(recording, what["object"]), what.get("has")), False
    if "eof" in what:
        return lambda: _channel(recording, what["eof"]).at_eof, False
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
        return lambda: bool(_held(path)) == (what["is"] == "held"), True
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
    """Exited, and its status known as far as anybody will tell it.

    A supervisor waits for what it started and says the status a moment later; what bwrap itself
    waits for (the child, without a reaper) it never tells.
    """
    known = recording.cast.members.get(lane)
    if known is None or not known.exited:
        return False
    told_by = [
        recording.cast.members[name]
        for name in (*recording.supervisors, *recording.launchers())
        if name in recording.cast.members
    ]
    is_told = lane.rpartition(".")[2] in ("monitor", "launcher") or lane in recording.providers
    return known.status is not None or not is_told or all(teller.exited for teller in told_by)


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


def _state_of(known: Member) -> str:
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


def _held(path: str) -> list[locks.Lock]:
    return [lock for lock in locks.locks_on(path) if not lock.waiting]


# --- probing -------------------------------------------------------------------------------------


def _probe(recording: Recording, step: dict[str, Any]) -> None:
    what = step["probe"]
    verb = next(key for key in PROBES if key in what)
    name = what.get("name") or verb.replace("_", "-")
    if verb == "census":
        recording.take_census(name)
    elif verb == "locks":
        _probe_locks(recording, name, what["locks"])
    elif verb == "connect":
        _probe_connection(recording, name, what, step["within"])
    else:
        target = member(recording, what[verb], step["within"])
        # A process that runs is on its way: the loader has a library open, a shell the file that it
        # redirects to.  What it has is what it has while it waits.
        if verb == "fds" and not recording.pump(
            lambda: _state_of(target) not in "RD", step["within"], looks=True
        ):
            raise StepTimedOut
        PROBES[verb](recording, name, target)


def _probe_locks(recording: Recording, name: str, file: str) -> None:
    by_pid = {p["pid"]: p["member"] for p in recording.cast.census(os.getpid())}
    found = [
        {
            "api": lock.api,
            "type": lock.kind,
            "pid": lock.pid,
            "member": by_pid.get(lock.pid or 0, "unknown"),
        }
        for lock in _held(os.path.join(recording.scratch, file))
    ]
    recording.journal.write(Kind.LOCKS_PROBED, "observer", name=name, file=file, locks=found)


def _probe_fds(recording: Recording, name: str, target: Member) -> None:
    found = procfs.fds(target.pid)
    by_target = {c.target: c.lane for c in recording.channels.values() if c.target}
    recording.journal.write(
        Kind.FDS_PROBED,
        target.lane,
        name=name,
        fds=None if found is None else {str(number): link for number, link in found.items()},
        channels=sorted({by_target[link] for link in (found or {}).values() if link in by_target}),
    )


def _probe_namespaces(recording: Recording, name: str, target: Member) -> None:
    recording.journal.write(
        Kind.NAMESPACES_PROBED, target.lane, name=name, namespaces=procfs.namespaces(target.pid)
    )


def _probe_maps(recording: Recording, name: str, target: Member) -> None:
    recording.journal.write(
        Kind.UID_MAP_PROBED,
        target.lane,
        name=name,
        uid_map=procfs.uid_map(target.pid),
        gid_map=procfs.gid_map(target.pid),
    )


def _probe_signals(recording: Recording, name: str, target: Member) -> None:
    state = procfs.signal_state(target.pid)
    sets: dict[str, Any] = (
        {}
        if state is None
        else {
            kind: sorted(signal_name[3:] for signal_name in getattr(state, kind))
            for kind in ("blocked", "ignored", "caught", "pending")
        }
    )
    recording.journal.write(Kind.SIGNALS_PROBED, target.lane, name=name, **sets)


def _probe_connection(
    recording: Recording, name: str, what: dict[str, Any], within_ns: int
) -> None:
    """Try to reach a helper from a process's network namespace, in a forked child that joins it."""
    target = member(recording, what["from"], within_ns)
    port = recording.ports[what["connect"]]
    result_r, result_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(result_w, _connect_from(target.pid, port).encode())
        finally:
            os._exit(0)
    os.close(result_w)
    answer: list[str] = []

    def on_answer() -> None:
        answer.append(os.read(result_r, 64).decode())
        recording.unwatch(result_r)

    recording.watch(result_r, on_answer)
    try:
        if not recording.pump(lambda: bool(answer), within_ns):
            os.kill(pid, signal.SIGKILL)
            raise StepTimedOut
    finally:
        recording.unwatch(result_r)
        os.close(result_r)
        os.waitpid(pid, 0)
    recording.journal.write(
        Kind.CONNECTION_PROBED, target.lane, name=name, reached=answer[0] == "", errno=answer[0]
    )


def _connect_from(pid: int, port: int) -> str:
    """Empty when the helper was reached, else the name of the errno."""
    try:
        network = procfs.open_namespace(pid, "net")
        with contextlib.suppress(OSError):  # EINVAL: it is the one we are in already
            kernel.setns(kernel.owner_user_namespace(network), 0)
        kernel.setns(network, 0)
        with socket.create_connection(("10.0.2.2", port), timeout=2):
            return ""
    except OSError as fault:
        return errno.errorcode.get(fault.errno or 0, "timed-out")


PROBES: dict[str, Callable[[Recording, str, Member], None]] = {
    "locks": lambda *_: None,
    "fds": _probe_fds,
    "namespaces": _probe_namespaces,
    "uid_map": _probe_maps,
    "signals": _probe_signals,
    "census": lambda *_: None,
    "connect": lambda *_: None,
}

STEPS: dict[str, Callable[[Recording, dict[str, Any]], None]] = {
    "launch": _launch,
    "wait": _wait,
    "write": _write,
    "close": _close,
    "signal": _signal,
    "end": _end,
    "start": _start,
    "stop": _stop,
    "map_ids": _map_ids,
    "probe": _probe,
    "pass": _pass,
    "settle": _settle,
    "type": _type,
    "resize": _resize,
}
