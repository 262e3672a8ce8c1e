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
from typing import Any, Callable

from harness.agent import kernel
from harness.agent.channels import Channel
from harness.agent.probing import probe
from harness.agent.recorder import Recording, StepFailed
from harness.agent.talk import say
from harness.agent.waiting import (
    DEAD,
    StepTimedOut,
    are_statuses_told,
    channel_of,
    condition,
    is_anybody_left,
    member,
    state_of,
)
from harness.model.vocabulary import Kind

#: How long another process may take to answer what it answers at once: the patience of a loaded
#: machine, as for any wait without a deadline of its own.
ANSWER_NS = 5_000_000_000


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
    recording.pump(lambda: are_statuses_told(recording), ANSWER_NS, looks=True)
    recording.look()
    recording.take_census("end")


# --- verbs ---------------------------------------------------------------------------------------


def _launch(recording: Recording, step: dict[str, Any]) -> None:
    name = step["launch"]
    prefix = recording.prefixes[name]
    lane = prefix + "monitor"
    if recording.plan["supervisor"]["kind"] == "reference":
        say_start = recording.supervisors[prefix + "supervisor"]
        say(say_start, {"do": "launch"})
    else:
        message = {"do": "launch", "launch": recording.forks.launches[name]}
        recording.order("supervisor", message, step["within"])
    # A launch that the reference supervisor refuses is done as well: its report is all there is.
    reporter = prefix + "supervisor"
    begun = lambda: lane in recording.cast.members or reporter in recording.reports  # noqa: E731
    if not recording.pump(begun, step["within"]):
        raise StepTimedOut


def _write(recording: Recording, step: dict[str, Any]) -> None:
    what = step["write"]
    channel = channel_of(recording, what["to"])
    if channel.held_by == "supervisor":
        recording.look()
        fd = recording.forks.passed_fds[channel.lane]
        message = {"do": "write", "fd": fd, "text": what["text"]}
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
    channel = channel_of(recording, step["close"])
    recording.look()
    if channel.held_by == "supervisor":
        fd = recording.forks.passed_fds[channel.lane]
        recording.order("supervisor", {"do": "close", "fd": fd}, step["within"])
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
        stopped = lambda: state_of(receiver) in "T" + DEAD  # noqa: E731
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
        spec = recording.plan["providers"][name]
        message = {"do": "start-provider", "name": name, "spec": spec, "child_pid": child.pid}
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
    recording.pump(
        lambda: not is_anybody_left(recording) and are_statuses_told(recording),
        step["settle"],
        looks=True,
    )
    # What ended during the last look is read before the census, so that both say the same.
    recording.wake_up(0)
    recording.take_census("settle")


def _type(recording: Recording, step: dict[str, Any]) -> None:
    what = step["type"]
    channel = channel_of(recording, what["on"])
    _write_whole(recording, channel, what["text"].encode(), step["within"])
    size = len(what["text"].encode())
    recording.act(Kind.DATA_WRITTEN, channel.lane, channel=channel.lane, bytes=size, by="observer")


def _resize(recording: Recording, step: dict[str, Any]) -> None:
    what = step["resize"]
    recording.look()
    channel_of(recording, what["on"]).resize(what["rows"], what["columns"])
    recording.act(Kind.DATA_WRITTEN, what["on"], channel=what["on"], bytes=0, by="observer")


def _wait(recording: Recording, step: dict[str, Any]) -> None:
    is_met, looks = condition(recording, step["wait"])
    if not recording.pump(is_met, step["within"], looks=looks):
        raise StepTimedOut


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
    "probe": probe,
    "pass": _pass,
    "settle": _settle,
    "type": _type,
    "resize": _resize,
}
