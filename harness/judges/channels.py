"""Rules about channels: JSON objects and their members, text, EOF."""

from __future__ import annotations

from typing import Any

from harness.judges.rules import Case, Judgement, follow, is_same, judged, shown, undecided
from harness.model.scenario import ExpectEof, ExpectField, ExpectObjects, ExpectText
from harness.model.timeline import Event, Kind


def judge_objects(rule: ExpectObjects, case: Case) -> Judgement:
    """How many objects a channel carried, and which members they have.

    What a truncated channel carried later is not known: only what was kept can decide then.
    """
    events = list(case.timeline.of(Kind.OBJECT_READ, channel=rule.on))
    values: list[dict[str, Any]] = [event.data["value"] for event in events]
    cut = case.timeline.first(Kind.CHANNEL_TRUNCATED, channel=rule.on)
    seen = f"{len(values)} object(s) on {rule.on}: " + shown(
        "; ".join("{" + ", ".join(value) + "}" for value in values) or "none"
    )
    demands: list[tuple[str, bool, bool]] = []  # in words, holds so far, later ones can change it
    if rule.count is not None:
        open_ = len(values) <= rule.count
        demands.append((f"exactly {rule.count} object(s)", len(values) == rule.count, open_))
    if rule.members is not None:
        pairs = zip(rule.members, values, strict=False)
        fits = all(set(wanted) <= set(value) for wanted, value in pairs)
        enough = len(values) >= len(rule.members)
        text = f"objects with the members {rule.members}"
        demands.append((text, fits and enough, fits and not enough))
    if rule.none_has is not None:
        lacking = not any(rule.none_has in value for value in values)
        demands.append((f"no object with {rule.none_has}", lacking, lacking))
    if rule.some_has is not None:
        found = any(rule.some_has in value for value in values)
        demands.append((f"an object with {rule.some_has}", found, not found))
    if rule.fragments_joined:
        whole, why = _all_whole(rule.on, case)
        demands.append(("every byte part of a whole object", whole, True))
        seen += why
    expected = " and ".join(text for text, _, _ in demands) + f" on {rule.on}"
    certain = any(not holds and not open_ for _, holds, open_ in demands)
    if cut is not None and not certain and any(open_ for _, _, open_ in demands):
        return undecided(expected, f"{seen}; the channel was truncated", [*events, cut])
    eof = case.timeline.first(Kind.EOF_READ, channel=rule.on)
    return judged(all(holds for _, holds, _ in demands), expected, seen, [*events, eof])


def _all_whole(channel: str, case: Case) -> tuple[bool, str]:
    lines = list(case.timeline.of(Kind.LINE_READ, channel=channel))
    objects = list(case.timeline.of(Kind.OBJECT_READ, channel=channel))
    eof = case.timeline.first(Kind.EOF_READ, channel=channel)
    rest = eof.data["rest"] if eof is not None else ""
    reads = sum(event.data["fragments"] for event in objects)
    whole = bool(objects) and len(lines) >= len(objects) and rest == ""
    return whole, f" in {reads} read(s), rest {rest!r}"


def judge_field(rule: ExpectField, case: Case) -> Judgement:
    """The value of one member of the first object that has it."""
    event = next(
        (
            found
            for found in case.timeline.of(Kind.OBJECT_READ, channel=rule.on)
            if rule.member in found.data["value"]
        ),
        None,
    )
    name = f"{rule.member} on {rule.on}"
    if rule.absent:
        seen = "absent" if event is None else f"{event.data['value'][rule.member]}"
        return judged(event is None, f"no {name}", seen, [event])
    if event is None:
        return judged(False, f"{name} to be there", "no object has it")
    value = event.data["value"][rule.member]
    if rule.equals is not None:
        return judged(is_same(value, rule.equals), f"{name} = {rule.equals}", f"{value}", [event])
    if rule.pid_of is not None:
        return _same_pid(rule, case, event, value)
    return _same_inode(rule, case, event, value)


def _same_pid(rule: ExpectField, case: Case, event: Event, value: Any) -> Judgement:
    expected = f"{rule.member} = pid of {rule.pid_of} as the observer sees it"
    other = case.timeline.last(Kind.PROCESS_IDENTIFIED, Kind.PROCESS_STARTED, lane=str(rule.pid_of))
    census = [
        process["pid"]
        for taken in case.timeline.of(Kind.CENSUS_TAKEN)
        for process in taken.data["processes"]
        if process["member"] == rule.pid_of
    ]
    if other is not None and other.kind is Kind.PROCESS_STARTED:
        return judged(value == other.data["pid"], expected, f"{value}", [event, other])
    if census:
        return judged(value == census[-1], expected, f"{value}, census {census[-1]}", [event])
    if other is not None:
        return judged(value == other.data["pid"], expected, f"{value}", [event, other])
    return undecided(expected, f"{value}, but {rule.pid_of} was never seen", [event])


def _same_inode(rule: ExpectField, case: Case, event: Event, value: Any) -> Judgement:
    source, _, kind = str(rule.inode_of).rpartition(".")
    expected = f"{rule.member} = inode of the {kind} namespace ({source})"
    if source == "observed":
        seen = case.timeline.first(Kind.COMMAND_OBSERVED)
        path = f"observation.namespaces.{kind}"
    else:
        seen = case.timeline.first(Kind.NAMESPACES_PROBED, name=source)
        path = f"namespaces.{kind}"
    if seen is None:
        return undecided(expected, f"nothing was seen of {source}", [event])
    try:
        inode = follow(path, dict(seen.data))
    except KeyError:
        inode = None
    if inode is None:
        return undecided(expected, f"{kind} namespace of {source} is unreadable", [event, seen])
    return judged(value == inode, expected, f"{value}, seen {inode}", [event, seen])


def judge_text(rule: ExpectText, case: Case) -> Judgement:
    """Text on a channel."""
    events = list(case.timeline.of(Kind.LINE_READ, channel=rule.on))
    eof = case.timeline.first(Kind.EOF_READ, channel=rule.on)
    cut = case.timeline.first(Kind.CHANNEL_TRUNCATED, channel=rule.on)
    lines: list[str] = [event.data["text"] for event in events]
    if eof is not None and eof.data["rest"]:
        lines.append(eof.data["rest"])
    seen = shown(" | ".join(lines) or "nothing")
    unseen = "the channel was truncated"
    if rule.contains is not None:
        expected = f'"{rule.contains}" on {rule.on}'
        found = [e for e in events if rule.contains in e.data["text"]][:1]
        holds = any(rule.contains in line for line in lines)
        if cut is not None and not holds:
            return undecided(expected, unseen, [cut])
        return judged(holds, expected, seen, found or [eof])
    if rule.lacks is not None:
        expected = f'no "{rule.lacks}" on {rule.on}'
        proof = [e for e in events if rule.lacks in e.data["text"]]
        if cut is not None and not proof:
            return undecided(expected, unseen, [cut])
        return judged(not any(rule.lacks in line for line in lines), expected, seen, proof)
    if rule.lines is not None:
        expected = f"{rule.lines} on {rule.on}"
        if cut is not None and lines == rule.lines[: len(lines)]:
            return undecided(expected, unseen, [cut])
        return judged(lines == rule.lines, expected, seen, [*events[:20], eof])
    if rule.at_least_bytes is not None:
        count = eof.data["bytes"] if eof is not None else _bytes_of(lines)
        expected = f"at least {rule.at_least_bytes} bytes on {rule.on}"
        if cut is not None and eof is None and count < rule.at_least_bytes:
            return undecided(expected, unseen, [cut])
        return judged(count >= rule.at_least_bytes, expected, f"{count} bytes", [eof])
    expected = f"{'nothing' if rule.empty else 'something'} on {rule.on}"
    # A flood without a newline has no line: it is only counted.
    empty = not lines and cut is None
    return judged(
        empty == rule.empty, expected, seen if lines or empty else unseen, [*events[:3], eof or cut]
    )


def _bytes_of(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in lines)


def judge_eof(rule: ExpectEof, case: Case) -> Judgement:
    """Whether a channel came to its end."""
    event = case.timeline.first(Kind.EOF_READ, channel=rule.on)
    expected = f"{'an' if rule.seen else 'no'} EOF on {rule.on} before the steps are over"
    seen = "no EOF" if event is None else f"EOF after {event.t_ns / 1e6:.1f} ms"
    return judged((event is not None) == rule.seen, expected, seen, [event])
