"""What one recording comes to, without what differs every time.  Pure.

A signature holds statements about a recording that are the same whenever the same thing happens:
how processes ended, which objects and lines came, who was left, which fds the command had.  Pids,
inode numbers, times and scratch paths are left out.  Two runs with the same verdict can still
differ here, and ``harness compare`` says how.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.model.timeline import Event, Kind, Order, Timeline

_SCRATCH = re.compile(r"/\S*/s[0-9a-f]{6,}(?=[/\s'\":]|$)")
_NUMBER = re.compile(r"\d+")
#: Members of an observation that depend on bwrap and the scenario alone.
_STABLE_VIEWS = ("capabilities", "no_new_privs", "seccomp", "signals", "uid_map", "gid_map")
_DEAD = "ZX"


def signature(timeline: Timeline) -> dict[str, str]:
    """Statement -> value, both for people: ``exit of monitor`` -> ``code 7``."""
    return dict(_statements(timeline))


def _statements(timeline: Timeline) -> Iterator[tuple[str, str]]:
    yield from _exits(timeline)
    yield from _channels(timeline)
    for event in timeline.of(Kind.MARKER_SEEN):
        yield f"marker {event.data['marker']}", "appeared"
    yield from _probes(timeline)
    yield from _census(timeline)
    for event in timeline.of(Kind.SUPERVISOR_REPORTED):
        yield f"outcome of {event.lane}", _outcome(event.data["outcome"])
    for event in timeline.of(Kind.STEP_TIMED_OUT):
        yield f"step {event.data['index'] + 1} ({event.data['verb']})", "timed out"


def _exits(timeline: Timeline) -> Iterator[tuple[str, str]]:
    for event in timeline.of(Kind.PROCESS_STARTED):
        status = timeline.last(Kind.STATUS_COLLECTED, lane=event.lane)
        ended = timeline.first(Kind.PROCESS_EXITED, lane=event.lane)
        if status is not None and "signal" in status.data:
            value = f"killed by SIG{status.data['signal']}"
        elif status is not None and "code" in status.data:
            value = f"status {status.data['code']}"
        else:
            value = "ended" if ended is not None else "had not ended"
        yield f"end of {event.lane}", value


def _channels(timeline: Timeline) -> Iterator[tuple[str, str]]:
    objects: dict[str, list[str]] = {}
    for event in timeline.of(Kind.OBJECT_READ):
        objects.setdefault(event.data["channel"], []).append(_object(event.data["value"]))
    for channel, shown in objects.items():
        yield f"objects on {channel}", " ".join(shown)
    lines: dict[str, list[str]] = {}
    for event in timeline.of(Kind.LINE_READ):
        if event.data["channel"] not in objects:
            lines.setdefault(event.data["channel"], []).append(_normalised(event.data["text"]))
    for channel, texts in lines.items():
        if not any("harness observation" in text for text in texts):
            yield f"lines on {channel}", " | ".join(texts[:20])
    for event in timeline.of(Kind.EOF_READ):
        yield f"EOF on {event.data['channel']}", "seen"


def _object(value: Mapping[str, Any]) -> str:
    members = [
        f"{name}: {member}" if name == "exit-code" else name for name, member in value.items()
    ]
    return "{" + ", ".join(members) + "}"


def _normalised(text: str) -> str:
    return _NUMBER.sub("N", _SCRATCH.sub("SCRATCH", text))


def _probes(timeline: Timeline) -> Iterator[tuple[str, str]]:
    for event in timeline.of(Kind.FDS_PROBED):
        numbers = sorted(int(number) for number in event.data["fds"] or ())
        yield f"fds of {event.lane} at {event.data['name']}", str(numbers)
    for event in timeline.of(Kind.LOCKS_PROBED):
        held = sorted(f"{lock['type']} by {lock['member']}" for lock in event.data["locks"])
        yield f"locks at {event.data['name']}", ", ".join(held) or "none"
    for event in timeline.of(Kind.SIGNALS_PROBED):
        for kind in ("blocked", "ignored"):
            yield f"signals {kind} at {event.data['name']}", str(event.data.get(kind))
    for event in timeline.of(Kind.CONNECTION_PROBED):
        yield f"connection at {event.data['name']}", str(event.data["reached"])
    for event in timeline.of(Kind.COMMAND_OBSERVED):
        seen = event.data["observation"]
        yield f"fds seen by {event.lane}", str(sorted(int(number) for number in seen["fds"]))
        yield f"environment of {event.lane}", str(sorted(seen.get("environment") or ()))
        for name in _STABLE_VIEWS:
            if name in seen:
                yield f"{name} of {event.lane}", str(seen[name])


def _census(timeline: Timeline) -> Iterator[tuple[str, str]]:
    event = timeline.last(Kind.CENSUS_TAKEN, name="settle")
    if event is None:
        return
    for what, dead in (("alive", False), ("zombies", True)):
        members = {
            process["member"]
            for process in event.data["processes"]
            if (process["state"] in _DEAD) == dead
        }
        yield f"{what} in the end", ", ".join(sorted(members)) or "none"


def _outcome(outcome: Mapping[str, Any]) -> str:
    return f"{outcome.get('kind')}, exit code {outcome.get('exit-code')}"


def certain_orders(timeline: Timeline) -> dict[str, str]:
    """For each pair of landmarks: ``A, B`` -> ``before``, ``after`` or ``unknown``.

    Landmarks are the first object and the EOF of each channel, exits, and markers.
    """
    landmarks = dict(_landmarks(timeline))
    orders = {}
    for (name_a, a), (name_b, b) in itertools.combinations(sorted(landmarks.items()), 2):
        known = Timeline.before(a, b)
        word = {Order.YES: "before", Order.NO: "after", Order.UNKNOWN: "unknown"}[known]
        orders[f"{name_a}, {name_b}"] = word
    return orders


def _landmarks(timeline: Timeline) -> Iterator[tuple[str, Event]]:
    seen: set[str] = set()
    for event in timeline.of(
        Kind.OBJECT_READ, Kind.EOF_READ, Kind.PROCESS_EXITED, Kind.MARKER_SEEN
    ):
        if event.kind is Kind.OBJECT_READ:
            name = f"object {event.data['n']} on {event.data['channel']}"
        elif event.kind is Kind.EOF_READ:
            name = f"EOF on {event.data['channel']}"
        elif event.kind is Kind.PROCESS_EXITED:
            name = f"end of {event.lane}"
        else:
            name = f"marker {event.data['marker']}"
        if name not in seen:
            seen.add(name)
            yield name, event
