"""The words of a timeline: kinds of events, and how one is written down.

Apart from ``harness.model.timeline``, because the recorder only writes: every module that it has
in memory is paid for again with each supervisor that it forks.  Standard library only, Python 3.9.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

#: Version of the line format; a reader refuses what it does not know instead of guessing.
FORMAT = 1
#: One encoder for all events: making one costs more than encoding a small event.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
#: A plan is a scenario without its expectations: what the recorder is told.  Its shape is that of
#: ``harness.model.scenario.Scenario`` less everything that says what ought to happen.
Plan = dict[str, Any]


class Kind(str, enum.Enum):
    """Past-tense facts.  The comment lists the members of ``data``; times are in nanoseconds."""

    RECORDING_OPENED = "recording-opened"  # format, scenario, scenario_sha256, repeat, bwrap
    #   {path, version, sha256}, kernel, uid, harness, machine, facts
    PROCESS_STARTED = "process-started"  # pid, ppid, argv?; lane is the member
    PROCESS_IDENTIFIED = "process-identified"  # pid, ppid, comm, same_as?; found through bwrap's
    #   own words (child-pid) or /proc, never by name
    PROCESS_EXITED = "process-exited"  # pid; noticed through the pidfd
    STATUS_COLLECTED = "status-collected"  # pid, code or signal; by whoever had to wait for it
    LINE_READ = "line-read"  # channel, n (from 1), text, fragments (reads it came in)
    OBJECT_READ = "object-read"  # channel, n (from 1), value, fragments
    EOF_READ = "eof-read"  # channel, bytes, rest (text after the last newline)
    CHANNEL_TRUNCATED = "channel-truncated"  # channel, kept_bytes: later lines are only counted
    CHANNEL_CLOSED = "channel-closed"  # channel, by
    DATA_WRITTEN = "data-written"  # channel, bytes, by
    WRITE_FAILED = "write-failed"  # channel, errno
    SIGNAL_SENT = "signal-sent"  # signal, pid, group (bool); lane is the receiver
    SIGNAL_FAILED = "signal-failed"  # signal, reason; lane is the receiver
    LAUNCHER_ENDED = "launcher-ended"  # how: thread | process; lane is the launcher
    STATE_REACHED = "state-reached"  # state; lane is the process
    MARKER_SEEN = "marker-seen"  # marker
    HELPER_READY = "helper-ready"  # lane is the helper; port?
    HELPER_STOPPED = "helper-stopped"  # lane is the helper
    PROVIDER_READY = "provider-ready"  # lane is the provider
    PROVIDER_LOST = "provider-lost"  # lane is the provider: EOF on its liveness pipe
    PROVIDER_STOPPED = "provider-stopped"  # lane is the provider: an ordinary stop
    PROVIDER_FAILED = "provider-failed"  # reason; lane is the provider: never became ready
    STEP_STARTED = "step-started"  # index (from 0), verb
    STEP_DONE = "step-done"  # index, verb, trigger (bool)
    STEP_TIMED_OUT = "step-timed-out"  # index, verb, deadline_ns, trigger (bool)
    STEP_FAILED = "step-failed"  # index, verb, reason, trigger (bool)
    LOCKS_PROBED = "locks-probed"  # name, file, locks [{api, type, pid, member}]
    FDS_PROBED = "fds-probed"  # name, fds {number: target} or null; lane is the process
    NAMESPACES_PROBED = "namespaces-probed"  # name, namespaces {kind: inode or null}
    UID_MAP_PROBED = "uid-map-probed"  # name, uid_map, gid_map: lists of [inside, outside, count]
    SIGNALS_PROBED = "signals-probed"  # name, blocked, ignored, caught, pending: signal names
    CENSUS_TAKEN = "census-taken"  # name, processes [{pid, ppid, member?, state, comm, exe}]
    CONNECTION_PROBED = "connection-probed"  # name, reached (bool), errno?
    SUPERVISOR_SAID = "supervisor-said"  # name, fields: the reference supervisor's own events
    SUPERVISOR_REPORTED = "supervisor-reported"  # outcome: the reference supervisor's last word
    COMMAND_OBSERVED = "command-observed"  # observation: what the observe payload saw inside
    CLEANUP_DONE = "cleanup-done"  # killed [pids], reaped, leaks [text]: must be empty
    RECORDING_CLOSED = "recording-closed"  # events (count before this one), complete (bool)


def encode_event(
    seq: int, t_ns: int, wake: int, kind: Kind, lane: str, data: Mapping[str, Any], late: bool
) -> str:
    """One event as one line of JSON, without the newline."""
    members: dict[str, Any] = {
        "seq": seq,
        "t_ns": t_ns,
        "wake": wake,
        "kind": kind.value,
        "lane": lane,
        "data": data,
    }
    if late:
        members["late"] = True
    return _ENCODE(members)
