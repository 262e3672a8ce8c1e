"""Rules about probes: locks, fds, observed, probe."""

from __future__ import annotations

from typing import Any

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, judge, tape

from harness.judges.rules import Judgement, follow
from harness.model.timeline import Kind
from harness.model.verdict import Held


def locks(*found: str, name: str = "now") -> Tape:
    """A lock probe that saw locks written as ``TYPE:MEMBER``."""
    seen = [
        {"api": "fcntl", "type": kind, "pid": 9, "member": member}
        for kind, member in (text.split(":") for text in found)
    ]
    return tape().add(Kind.LOCKS_PROBED, "observer", name=name, file="lock", locks=seen)


def fds(numbers: dict[str, str] | None, *channels: str) -> Tape:
    """An fd probe of the command."""
    return tape().add(Kind.FDS_PROBED, "command", name="now", fds=numbers, channels=list(channels))


LOCKS: dict[str, Row] = {
    "none": ({"held": []}, locks(), YES),
    "one where none must be": ({"held": []}, locks("read:reaper"), NO),
    "a read lock": ({"held": ["read"]}, locks("read:reaper"), YES),
    "a write lock where a read lock must be": ({"held": ["read"]}, locks("write:reaper"), NO),
    "one read lock too few": ({"held": ["read", "read"]}, locks("read:reaper"), NO),
    "in whatever order": ({"held": ["write", "read"]}, locks("read:a", "write:b"), YES),
    "by this process": ({"held": ["read"], "by": "reaper"}, locks("read:reaper"), YES),
    "by another process": ({"held": ["read"], "by": "reaper"}, locks("read:child"), NO),
    "by this process and another": (
        {"held": ["read", "read"], "by": "reaper"},
        locks("read:reaper", "read:keeper"),
        NO,
    ),
    "a probe that was not made": ({"held": []}, tape(), UNKNOWN),
    "another probe": ({"held": []}, locks(name="before"), UNKNOWN),
}
FDS: dict[str, Row] = {
    "exactly these": ({"numbers": [2, 0, 1]}, fds({"0": "a", "1": "b", "2": "c"}), YES),
    "one more": ({"numbers": [0, 1]}, fds({"0": "a", "1": "b", "2": "c"}), NO),
    "one fewer": ({"numbers": [0, 1, 2]}, fds({"0": "a", "1": "b"}), NO),
    "ten is above two": ({"numbers": [2, 10]}, fds({"10": "a", "2": "b"}), YES),
    "none": ({"numbers": []}, fds({}), YES),
    "the channel is among them": ({"has_channel": "sync"}, fds({"20": "p"}, "sync"), YES),
    "the channel is not among them": ({"has_channel": "sync"}, fds({"20": "p"}, "gate"), NO),
    "a channel that must not be there": ({"lacks_channel": "sync"}, fds({"20": "p"}, "sync"), NO),
    "a channel that is not there": ({"lacks_channel": "sync"}, fds({"20": "p"}, "gate"), YES),
    "fds that could not be read": ({"lacks_channel": "sync"}, fds(None), UNKNOWN),
    "numbers that could not be read": ({"numbers": []}, fds(None), UNKNOWN),
    "a probe that was not made": ({"lacks_channel": "sync"}, tape(), UNKNOWN),
}
OBSERVATION = {
    "pid": 2,
    "environment": {"HOME": "/x", "A.B": "dots"},
    "fds": {"0": "pipe:[1]", "20": "pipe:[2]"},
    "signals": {"ignored": ["CHLD"]},
    "mounts": [{"point": "/"}, {"point": "/proc"}],
    "tty": None,
}
SEEN = tape().add(Kind.COMMAND_OBSERVED, "command", observation=OBSERVATION)
OBSERVED: dict[str, Row] = {
    "the value": ({"path": "pid", "equals": 2}, SEEN, YES),
    "another value": ({"path": "pid", "equals": 1}, SEEN, NO),
    "a number is not its text": ({"path": "pid", "equals": "2"}, SEEN, NO),
    "a value further in": ({"path": "environment.HOME", "equals": "/x"}, SEEN, YES),
    "a key with dots": ({"path": "environment.A.B", "equals": "dots"}, SEEN, YES),
    "an item of a list by number": ({"path": "mounts.1.point", "equals": "/proc"}, SEEN, YES),
    "a list as a whole": ({"path": "signals.ignored", "equals": ["CHLD"]}, SEEN, YES),
    "what is not there equals nothing": ({"path": "environment.PATH", "equals": "x"}, SEEN, NO),
    "an item beyond the list": ({"path": "mounts.2.point", "equals": "/"}, SEEN, NO),
    "exactly these keys": ({"path": "environment", "keys": ["A.B", "HOME"]}, SEEN, YES),
    "one key more": ({"path": "environment", "keys": ["HOME"]}, SEEN, NO),
    "keys of what has none": ({"path": "pid", "keys": ["HOME"]}, SEEN, NO),
    "a list with it": ({"path": "signals.ignored", "contains": "CHLD"}, SEEN, YES),
    "a list without it": ({"path": "signals.ignored", "contains": "PIPE"}, SEEN, NO),
    "keys with it, as a number": ({"path": "fds", "contains": 20}, SEEN, YES),
    "keys without it, as a number": ({"path": "fds", "contains": 21}, SEEN, NO),
    "lacks it": ({"path": "fds", "lacks": 21}, SEEN, YES),
    "does not lack it": ({"path": "fds", "lacks": 20}, SEEN, NO),
    "what is not there lacks nothing": ({"path": "oops", "lacks": 20}, SEEN, NO),
    "absent": ({"path": "environment.PATH", "absent": True}, SEEN, YES),
    "not absent": ({"path": "environment.HOME", "absent": True}, SEEN, NO),
    "a command that reported nothing": ({"path": "pid", "equals": 2}, tape(), UNKNOWN),
    "absent in a report that was never made": ({"path": "x", "absent": True}, tape(), UNKNOWN),
    "another sandbox's command": ({"path": "pid", "equals": 2, "of": "left"}, SEEN, UNKNOWN),
}


def signals(name: str = "now", **sets: Any) -> Tape:
    return tape().add(Kind.SIGNALS_PROBED, "command", name=name, **sets)


def two_namespaces(first: int | None, second: int | None) -> Tape:
    told = tape().add(Kind.NAMESPACES_PROBED, "child", name="now", namespaces={"net": first})
    return told.add(Kind.NAMESPACES_PROBED, "monitor", name="then", namespaces={"net": second})


NET = "namespaces.net"
PROBE: dict[str, Row] = {
    "the value": ({"path": "ignored", "equals": []}, signals(ignored=[]), YES),
    "another value": ({"path": "ignored", "equals": []}, signals(ignored=["CHLD"]), NO),
    "contains": ({"path": "ignored", "contains": "CHLD"}, signals(ignored=["CHLD"]), YES),
    "does not contain": ({"path": "ignored", "contains": "CHLD"}, signals(ignored=[]), NO),
    "lacks": ({"path": "ignored", "lacks": "CHLD"}, signals(ignored=[]), YES),
    "does not lack": ({"path": "ignored", "lacks": "CHLD"}, signals(ignored=["CHLD"]), NO),
    "reached is true": (
        {"path": "reached", "equals": True},
        tape().add(Kind.CONNECTION_PROBED, "child", name="now", reached=True, errno=""),
        YES,
    ),
    "reached is not one": (
        {"path": "reached", "equals": 1},
        tape().add(Kind.CONNECTION_PROBED, "child", name="now", reached=True, errno=""),
        NO,
    ),
    "a map": (
        {"path": "uid_map", "equals": [[0, 1000, 1]]},
        tape().add(Kind.UID_MAP_PROBED, "child", name="now", uid_map=[[0, 1000, 1]], gid_map=[]),
        YES,
    ),
    "the last probe of that name counts": (
        {"path": "ignored", "equals": ["CHLD"]},
        signals(ignored=[]).add(Kind.SIGNALS_PROBED, "command", name="now", ignored=["CHLD"]),
        YES,
    ),
    "what the probe could not read": ({"path": "ignored", "lacks": "CHLD"}, signals(), UNKNOWN),
    "what the probe could not read at all": (
        {"path": "uid_map", "equals": []},
        tape().add(Kind.UID_MAP_PROBED, "child", name="now", uid_map=None, gid_map=None),
        UNKNOWN,
    ),
    "a probe that was not made": ({"path": "ignored", "equals": []}, tape(), UNKNOWN),
    "the same": ({"path": NET, "same_as": "then"}, two_namespaces(5, 5), YES),
    "not the same": ({"path": NET, "same_as": "then"}, two_namespaces(5, 6), NO),
    "differs": ({"path": NET, "differs_from": "then"}, two_namespaces(5, 6), YES),
    "does not differ": ({"path": NET, "differs_from": "then"}, two_namespaces(5, 5), NO),
    "two that cannot be read are not the same": (
        {"path": NET, "same_as": "then"},
        two_namespaces(None, None),
        UNKNOWN,
    ),
    "one that cannot be read does not differ": (
        {"path": NET, "differs_from": "then"},
        two_namespaces(5, None),
        UNKNOWN,
    ),
    "a kind that was not probed": (
        {"path": "namespaces.pid", "same_as": "then"},
        two_namespaces(5, 5),
        UNKNOWN,
    ),
    "the same as a probe that was not made": (
        {"path": "ignored", "same_as": "then"},
        signals(ignored=[]),
        UNKNOWN,
    ),
}


@pytest.mark.parametrize("name", LOCKS)
def test_locks(name: str) -> None:
    rule, told, held = LOCKS[name]
    assert judge({"locks": {"at": "now", **rule}}, told).held is held


@pytest.mark.parametrize("name", FDS)
def test_fds(name: str) -> None:
    rule, told, held = FDS[name]
    assert judge({"fds": {"at": "now", **rule}}, told).held is held


@pytest.mark.parametrize("name", OBSERVED)
def test_observed(name: str) -> None:
    rule, told, held = OBSERVED[name]
    assert judge({"observed": rule}, told).held is held


@pytest.mark.parametrize("name", PROBE)
def test_probe(name: str) -> None:
    rule, told, held = PROBE[name]
    assert judge({"probe": {"at": "now", **rule}}, told).held is held


def test_locks_are_shown_with_their_holder_and_kind() -> None:
    rule = {"at": "now", "held": ["read"], "by": "reaper"}
    assert judge({"locks": rule}, locks("read:child", "write:keeper")) == Judgement(
        Held.NO,
        "locks: read, held by reaper",
        "locks: read by child (fcntl), write by keeper (fcntl)",
        (1,),
    )


def test_fds_are_shown_with_the_channels_among_them() -> None:
    told = fds({"0": "a", "20": "b"}, "sync")
    assert judge({"fds": {"at": "now", "lacks_channel": "sync"}}, told) == Judgement(
        Held.NO, "sync not among the fds", "sync among the fds", (1,), "fds [0, 20], of these sync"
    )
    assert judge({"fds": {"at": "now", "numbers": [0]}}, told) == Judgement(
        Held.NO, "fds [0]", "fds [0, 20]", (1,), "of these sync"
    )


def test_two_probes_that_differ_are_both_cited() -> None:
    rule = {"at": "now", "path": NET, "same_as": "then"}
    assert judge({"probe": rule}, two_namespaces(5, 6)) == Judgement(
        Held.NO, "namespaces.net the same in now as in then", "5 and 6", (1, 2)
    )


def test_the_command_of_one_sandbox_among_several_is_found_by_its_name() -> None:
    told = (
        tape()
        .add(Kind.COMMAND_OBSERVED, "left.command", observation={"pid": 1})
        .add(Kind.COMMAND_OBSERVED, "right.command", observation={"pid": 2})
    )
    rule = {"path": "pid", "equals": 2, "of": "right"}
    assert judge({"observed": rule}, told) == Judgement(Held.YES, "pid = 2", "2", (2,))


@pytest.mark.parametrize("path", ["x", "a.x", "a.b.c", "list.2", "list.x", "list.-1"])
def test_a_path_that_leads_nowhere_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(KeyError):
        follow(path, {"a": {"b": 1}, "list": [1, 2]})
