"""Rules about what was looked at: locks, fds, namespaces, maps, masks, and the view from inside."""

from __future__ import annotations

from typing import Any

from harness.judges.rules import Case, Judgement, follow, is_same, judged, shown, undecided
from harness.model.scenario import ExpectFds, ExpectLocks, ExpectObserved, ExpectProbe
from harness.model.timeline import Event, Kind

_VALUE_PROBES = (
    Kind.NAMESPACES_PROBED,
    Kind.UID_MAP_PROBED,
    Kind.SIGNALS_PROBED,
    Kind.CONNECTION_PROBED,
)


def judge_locks(rule: ExpectLocks, case: Case) -> Judgement:
    """Which locks a probe saw on a file."""
    wanted = sorted(rule.held)
    expected = f"locks: {', '.join(wanted) or 'none'}"
    if rule.by is not None:
        expected += f", held by {rule.by}"
    event = case.timeline.last(Kind.LOCKS_PROBED, name=rule.at)
    if event is None:
        return undecided(expected, f"the probe {rule.at} was not made")
    found: list[dict[str, Any]] = event.data["locks"]
    # Sorted: /proc/locks has them in no order that means anything.
    each = sorted(f"{lock['type']} by {lock['member']} ({lock['api']})" for lock in found)
    seen = ", ".join(each)
    holds = sorted(lock["type"] for lock in found) == wanted and (
        rule.by is None or all(lock["member"] == rule.by for lock in found)
    )
    return judged(holds, expected, f"locks: {seen or 'none'}", [event])


def judge_fds(rule: ExpectFds, case: Case) -> Judgement:
    """Which fds a process had at a probe."""
    event = case.timeline.last(Kind.FDS_PROBED, name=rule.at)
    if rule.numbers is not None:
        expected = f"fds {sorted(rule.numbers)}"
    elif rule.has_channel is not None:
        expected = f"{rule.has_channel} among the fds"
    else:
        expected = f"{rule.lacks_channel} not among the fds"
    if event is None:
        return undecided(expected, f"the probe {rule.at} was not made")
    if event.data["fds"] is None:
        return undecided(expected, "its fds cannot be read", [event])
    numbers = sorted(int(number) for number in event.data["fds"])
    channels: list[str] = event.data["channels"]
    named = ", ".join(channels) or "no channel"
    if rule.numbers is not None:
        holds = numbers == sorted(rule.numbers)
        return judged(holds, expected, f"fds {numbers}", [event], aside=f"of these {named}")
    asked = rule.has_channel or rule.lacks_channel
    holds = (asked in channels) == (rule.has_channel is not None)
    seen = f"{asked} {'' if asked in channels else 'not '}among the fds"
    return judged(holds, expected, seen, [event], aside=f"fds {numbers}, of these {named}")


def judge_observed(rule: ExpectObserved, case: Case) -> Judgement:
    """What the command saw from inside the sandbox."""
    lane = f"{rule.of}.command" if rule.of is not None else None
    event = case.timeline.first(Kind.COMMAND_OBSERVED, lane=lane)
    if event is None:
        return undecided(f"{rule.path} as seen from inside", "the command reported nothing")
    return _judge_value(rule, rule.path, event.data["observation"], [event])


def judge_probe(rule: ExpectProbe, case: Case) -> Judgement:
    """A value that another kind of probe saw."""
    event = case.timeline.last(*_VALUE_PROBES, name=rule.at)
    if event is None:
        return undecided(f"{rule.at}: {rule.path}", f"the probe {rule.at} was not made")
    other_name = rule.same_as or rule.differs_from
    if other_name is None:
        return _judge_value(rule, rule.path, dict(event.data), [event])
    other = case.timeline.last(*_VALUE_PROBES, name=other_name)
    same = "the same" if rule.same_as is not None else "another"
    expected = f"{rule.path} {same} in {rule.at} as in {other_name}"
    if other is None:
        return undecided(expected, f"the probe {other_name} was not made", [event])
    try:
        values = [follow(rule.path, dict(seen.data)) for seen in (event, other)]
    except KeyError as missing:
        return undecided(expected, f"there is no {missing.args[0]}", [event, other])
    if None in values:
        return undecided(expected, "one of the two cannot be read", [event, other])
    holds = (values[0] == values[1]) == (rule.same_as is not None)
    return judged(holds, expected, f"{shown(values[0])} and {shown(values[1])}", [event, other])


def _judge_value(
    rule: ExpectObserved | ExpectProbe, path: str, whole: dict[str, Any], events: list[Event]
) -> Judgement:
    if _is_unreadable(path, whole) or (isinstance(rule, ExpectProbe) and not _has(path, whole)):
        return undecided(f"{path} to be readable", f"{path} could not be read", events)
    try:
        value = follow(path, whole)
    except KeyError:
        absent = isinstance(rule, ExpectObserved) and bool(rule.absent)
        expected = f"no {path}" if absent else f"{path} to be there"
        return judged(absent, expected, f"there is no {path}", events)
    items = list(value) if isinstance(value, dict | list) else [value]
    if isinstance(rule, ExpectObserved):
        if rule.absent:
            return judged(False, f"no {path}", shown(value), events)
        if rule.keys is not None:
            keys = sorted(str(key) for key in value) if isinstance(value, dict) else []
            return judged(
                keys == sorted(rule.keys), f"{path}: {sorted(rule.keys)}", f"{keys}", events
            )
    if rule.contains is not None:
        holds = _among(rule.contains, items)
        return judged(holds, f"{rule.contains} in {path}", shown(value), events)
    if rule.lacks is not None:
        holds = not _among(rule.lacks, items)
        return judged(holds, f"no {rule.lacks} in {path}", shown(value), events)
    holds = is_same(value, rule.equals)
    return judged(holds, f"{path} = {shown(rule.equals)}", shown(value), events)


def _has(path: str, whole: dict[str, Any]) -> bool:
    try:
        follow(path, whole)
    except KeyError:
        return False
    return True


def _is_unreadable(path: str, whole: dict[str, Any]) -> bool:
    """Whether the value, or what it would be in, is None: it was looked for and not to be seen."""
    parts = path.split(".")
    heads = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(_has(head, whole) and follow(head, whole) is None for head in heads)


def _among(wanted: Any, items: list[Any]) -> bool:
    """Whether an item is there; keys of JSON objects are text, so numbers fit as text too."""
    return wanted in items or str(wanted) in items
