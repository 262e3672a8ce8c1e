"""How an event reads: one line for tables and logs, a few characters for a label in a picture.

Members of an event that are missing or of the wrong type read ``?``: a recording from an older
recorder, or one that a killed recorder left behind, must still be readable.  All texts are raw; who
prints them passes them through ``words.visible`` or ``words.one_line``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, assert_never

from harness.model.timeline import Event, Kind, Order, Timeline
from harness.reporters.words import FIELD_LIMIT, plural, seconds, short

# What the recorder does itself, one after the other, and its reports of that.
_OWN_DOING = frozenset(
    {
        *(Kind.RECORDING_OPENED, Kind.RECORDING_CLOSED, Kind.CLEANUP_DONE, Kind.SIGNAL_SENT),
        *(Kind.STEP_STARTED, Kind.STEP_DONE, Kind.STEP_TIMED_OUT, Kind.STEP_FAILED),
        *(Kind.DATA_WRITTEN, Kind.WRITE_FAILED, Kind.SIGNAL_FAILED, Kind.CHANNEL_CLOSED),
        *(Kind.LOCKS_PROBED, Kind.FDS_PROBED, Kind.NAMESPACES_PROBED, Kind.UID_MAP_PROBED),
        *(Kind.SIGNALS_PROBED, Kind.CENSUS_TAKEN, Kind.CONNECTION_PROBED),
    }
)

#: Characters of a label in a picture.
_LABEL_CHARS = 22


def _pid(data: Mapping[str, Any]) -> str:
    return f"pid {data['pid']}" if data.get("pid") is not None else "pid unknown"


def ending(data: Mapping[str, Any]) -> str:
    """How a process ended, from the data of ``status-collected``: ``7``, ``SIGKILL``, ``?``."""
    if data.get("signal") is not None:
        return signal_name(data["signal"])
    return str(data["code"]) if data.get("code") is not None else "?"


def signal_name(signal: object) -> str:
    """``SIGKILL`` for ``KILL`` and for ``SIGKILL``; ``signal 9`` for a number."""
    if isinstance(signal, int):
        return f"signal {signal}"
    name = str(signal)
    return name if name.startswith("SIG") else f"SIG{name}"


def _compact(value: object) -> str:
    if isinstance(value, str):
        return value
    # The limit is generous: the caller cuts what it shows.
    return json.dumps(value, default=str, separators=(", ", ": "))[: 4 * FIELD_LIMIT]


def _step(data: Mapping[str, Any]) -> str:
    return f"step {data.get('index', '?')} ({data.get('verb', '?')})"


def _processes(data: Mapping[str, Any]) -> str:
    found = data.get("processes")
    if not isinstance(found, list):
        return "census"
    names = [
        f"{entry.get('member') or entry.get('comm') or '?'} {entry.get('pid', '?')}"
        f" {entry.get('state', '?')}"
        for entry in found
        if isinstance(entry, Mapping)
    ]
    return f"census: {', '.join(names) or 'nobody'}"


def _locks(data: Mapping[str, Any]) -> str:
    locks = data.get("locks")
    if not isinstance(locks, list):
        return f"locks on {data.get('file', '?')}: unknown"
    held = [
        f"{lock.get('api', '?')} {lock.get('type', '?')} by"
        f" {lock.get('member') or lock.get('pid', '?')}"
        for lock in locks
        if isinstance(lock, Mapping)
    ]
    return f"locks on {data.get('file', '?')}: {', '.join(held) or 'none'}"


def _trigger(data: Mapping[str, Any]) -> str:
    return " — the trigger" if data.get("trigger") else ""


def is_observation(event: Event) -> bool:
    """Whether an event is something that the recorder noticed, not something that it did.

    Only these are worth joining when they share a wake-up: which of two came first is what a
    reader would otherwise guess from their places.  What the recorder does is in sequence anyway.
    """
    return event.kind not in _OWN_DOING


def shares_wake_up(first: Event, second: Event) -> bool:
    """Whether two events were noticed together, so that their order is not known.

    Bytes of one channel are ordered by the pipe (:meth:`Timeline.before`), so they never are.
    """
    seen = is_observation(first) and is_observation(second)
    return seen and Timeline.before(first, second) is Order.UNKNOWN


def describe(event: Event) -> str:
    """What an event says, in one line without its lane."""
    return _fact(event) + (" (read behind another event)" if event.late else "")


def _fact(event: Event) -> str:
    data = event.data
    channel = data.get("channel", "?")
    match event.kind:
        case Kind.RECORDING_OPENED:
            return f"recording opened: {data.get('scenario', '?')}, repeat {data.get('repeat', 0)}"
        case Kind.PROCESS_STARTED:
            argv = data.get("argv")
            tail = f": {' '.join(map(str, argv))}" if isinstance(argv, list) else ""
            return f"started, {_pid(data)}, parent {data.get('ppid', '?')}{tail}"
        case Kind.PROCESS_IDENTIFIED:
            same = f", the same process as {data['same_as']}" if data.get("same_as") else ""
            return f"identified, {_pid(data)}, parent {data.get('ppid', '?')}{same}"
        case Kind.PROCESS_EXITED:
            return f"exited, {_pid(data)}"
        case Kind.STATUS_COLLECTED:
            how = "by" if data.get("signal") is not None else "with"
            return f"ended {how} {ending(data)}, {_pid(data)}"
        case Kind.LINE_READ:
            return f"{channel} line {data.get('n', '?')}: {data.get('text', '?')}"
        case Kind.OBJECT_READ:
            return f"{channel} object {data.get('n', '?')}: {_compact(data.get('value', '?'))}"
        case Kind.EOF_READ:
            rest = f", unfinished text {data['rest']!r}" if data.get("rest") else ""
            return f"{channel}: EOF after {data.get('bytes', '?')} bytes{rest}"
        case Kind.CHANNEL_TRUNCATED:
            return f"{channel}: only {data.get('kept_bytes', '?')} bytes kept from here on"
        case Kind.CHANNEL_CLOSED:
            return f"{channel}: closed by {data.get('by', '?')}"
        case Kind.DATA_WRITTEN:
            return f"{channel}: {data.get('bytes', '?')} bytes written by {data.get('by', '?')}"
        case Kind.WRITE_FAILED:
            return f"{channel}: write failed, {data.get('errno', '?')}"
        case Kind.SIGNAL_SENT:
            whom = "process group of " if data.get("group") else ""
            return f"{signal_name(data.get('signal', '?'))} sent to {whom}{_pid(data)}"
        case Kind.SIGNAL_FAILED:
            name = signal_name(data.get("signal", "?"))
            return f"{name} could not be sent: {data.get('reason', '?')}"
        case Kind.LAUNCHER_ENDED:
            return f"launching {data.get('how', 'thread')} ended"
        case Kind.STATE_REACHED:
            return f"state reached: {data.get('state', '?')}"
        case Kind.MARKER_SEEN:
            return f"marker seen: {data.get('marker', '?')}"
        case Kind.HELPER_READY:
            return f"ready, port {data['port']}" if data.get("port") else "ready"
        case Kind.HELPER_STOPPED:
            return "stopped"
        case Kind.PROVIDER_READY:
            return "provider ready"
        case Kind.PROVIDER_LOST:
            return "provider lost: EOF on its liveness pipe"
        case Kind.PROVIDER_STOPPED:
            return "provider stopped in an ordinary teardown"
        case Kind.PROVIDER_FAILED:
            return f"provider never became ready: {data.get('reason', '?')}"
        case Kind.STEP_STARTED:
            return f"{_step(data)} started"
        case Kind.STEP_DONE:
            return f"{_step(data)} done{_trigger(data)}"
        case Kind.STEP_TIMED_OUT:
            deadline = data.get("deadline_ns")
            after = f" after {seconds(deadline / 1e9)}" if isinstance(deadline, int | float) else ""
            return f"{_step(data)} timed out{after}{_trigger(data)}"
        case Kind.STEP_FAILED:
            return f"{_step(data)} failed: {data.get('reason', '?')}{_trigger(data)}"
        case Kind.LOCKS_PROBED:
            return _locks(data)
        case Kind.FDS_PROBED:
            return f"fds: {_compact(data.get('fds'))}"
        case Kind.NAMESPACES_PROBED:
            return f"namespaces: {_compact(data.get('namespaces'))}"
        case Kind.UID_MAP_PROBED:
            maps = (data.get("uid_map"), data.get("gid_map"))
            return f"uid map {_compact(maps[0])}, gid map {_compact(maps[1])}"
        case Kind.SIGNALS_PROBED:
            sets = ("blocked", "ignored", "caught", "pending")
            return "signals: " + "; ".join(f"{name} {_compact(data.get(name))}" for name in sets)
        case Kind.CENSUS_TAKEN:
            return _processes(data)
        case Kind.CONNECTION_PROBED:
            failed = f"failed, {data['errno']}" if data.get("errno") else "failed"
            return f"connection {'reached' if data.get('reached') else failed}"
        case Kind.SUPERVISOR_SAID:
            return f"supervisor said {data.get('name', '?')} {_compact(data.get('fields', {}))}"
        case Kind.SUPERVISOR_REPORTED:
            return f"supervisor's outcome: {_compact(data.get('outcome', '?'))}"
        case Kind.COMMAND_OBSERVED:
            return f"observed inside: {_compact(data.get('observation', '?'))}"
        case Kind.CLEANUP_DONE:
            killed, leaks = data.get("killed") or [], data.get("leaks") or []
            leaked = f"; LEAKED {_compact(leaks)}" if leaks else ""
            return f"cleanup: {plural(_length(killed), 'process')} killed{leaked}"
        case Kind.RECORDING_CLOSED:
            state = "complete" if data.get("complete") else "INCOMPLETE"
            return f"recording closed, {data.get('events', '?')} events, {state}"
        case _:
            assert_never(event.kind)


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


def label_of(event: Event) -> str:
    """The few characters that stand beside a glyph; the rest is in its tooltip and in the table."""
    return short(_label(event), width=_LABEL_CHARS)


def _label(event: Event) -> object:
    data = event.data
    match event.kind:
        case Kind.STEP_STARTED:
            return data.get("verb", "step")
        case Kind.STEP_TIMED_OUT:
            return "timed out"
        case Kind.STEP_FAILED | Kind.PROVIDER_FAILED | Kind.SIGNAL_FAILED | Kind.WRITE_FAILED:
            return "failed"
        case Kind.SIGNAL_SENT:
            return signal_name(data.get("signal", "?")).removeprefix("SIG")
        case Kind.STATUS_COLLECTED:
            return ending(data).removeprefix("SIG")
        case Kind.OBJECT_READ:
            value = data.get("value")
            return next(iter(value), "object") if isinstance(value, dict) else "object"
        case Kind.LINE_READ:
            # A line that is an object is followed by an event of its own, which says it better.
            text = str(data.get("text", "line"))
            return "" if text.lstrip().startswith("{") else text
        case Kind.EOF_READ:
            return "EOF"
        case Kind.CHANNEL_CLOSED:
            return "closed"
        case Kind.CHANNEL_TRUNCATED:
            return "cut"
        case Kind.DATA_WRITTEN:
            return plural(data["bytes"], "byte") if isinstance(data.get("bytes"), int) else "write"
        case Kind.STATE_REACHED:
            return data.get("state", "state")
        case Kind.MARKER_SEEN:
            return data.get("marker", "marker")
        case Kind.HELPER_READY | Kind.PROVIDER_READY:
            return "ready"
        case Kind.HELPER_STOPPED | Kind.PROVIDER_STOPPED:
            return "stopped"
        case Kind.PROVIDER_LOST:
            return "lost"
        case Kind.LAUNCHER_ENDED:
            return "ended"
        case Kind.CONNECTION_PROBED:
            return "reached" if data.get("reached") else data.get("errno") or "unreachable"
        case Kind.LOCKS_PROBED:
            return "locks"
        case Kind.FDS_PROBED:
            return "fds"
        case Kind.NAMESPACES_PROBED:
            return "namespaces"
        case Kind.UID_MAP_PROBED:
            return "uid map"
        case Kind.SIGNALS_PROBED:
            return "signals"
        case Kind.CENSUS_TAKEN:
            return "census"
        case Kind.SUPERVISOR_SAID:
            return data.get("name", "said")
        case Kind.SUPERVISOR_REPORTED:
            outcome = data.get("outcome")
            kind = outcome.get("kind") if isinstance(outcome, dict) else outcome
            return kind or "outcome"
        case Kind.COMMAND_OBSERVED:
            return "observed"
        case Kind.CLEANUP_DONE:
            return "clean-up"
        case _:
            # Begin and end of a bar or of the recording: the place says it.
            return ""
