"""Rules about channels: objects, field, text, eof."""

from __future__ import annotations

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, judge, tape

from harness.judges.rules import Judgement
from harness.model.timeline import Kind
from harness.model.verdict import Held


def status() -> Tape:
    """What every bwrap writes when its command exits with 7."""
    first = tape().line("status", '{"child-pid": 9}').together().object("status", child_pid=9)
    second = first.line("status", '{"exit-code": 7}').together().object("status", exit_code=7)
    return second.eof("status", bytes_=40)


def cut(channel: str = "status") -> Tape:
    """One object, and then more than is kept."""
    return tape().object(channel, a=1).truncated(channel).eof(channel, bytes_=1 << 20)


def seen_by(source: str, inode: int | None) -> Tape:
    """A status object that names namespace 5, and what else was seen of it."""
    told = tape().object("status", mnt_namespace=5)
    if source == "command":
        return told.add(
            Kind.COMMAND_OBSERVED, "command", observation={"namespaces": {"mnt": inode}}
        )
    return told.add(Kind.NAMESPACES_PROBED, "child", name=source, namespaces={"mnt": inode})


OBJECTS: dict[str, Row] = {
    "the number of objects": ({"count": 2}, status(), YES),
    "one object too few": ({"count": 3}, status(), NO),
    "one object too many": ({"count": 1}, status(), NO),
    "none where none is": ({"count": 0}, tape(), YES),
    "members of each in order": ({"members": [["child-pid"], ["exit-code"]]}, status(), YES),
    "members in another order": ({"members": [["exit-code"], ["child-pid"]]}, status(), NO),
    "members of an object that is not there": ({"members": [[], [], ["x"]]}, status(), NO),
    "more objects than are named": ({"members": [["child-pid"]]}, status(), YES),
    "no object has it": ({"none_has": "mnt-namespace"}, status(), YES),
    "one object has it after all": ({"none_has": "exit-code"}, status(), NO),
    "some object has it": ({"some_has": "exit-code"}, status(), YES),
    "no object has what some must": ({"some_has": "mnt-namespace"}, status(), NO),
    "one of two demands": ({"count": 2, "none_has": "exit-code"}, status(), NO),
    "both demands": ({"count": 2, "some_has": "exit-code"}, status(), YES),
    "every byte in an object": ({"fragments_joined": True}, status(), YES),
    "bytes after the last object": (
        {"fragments_joined": True},
        tape().line("status", "{}").object("status").eof("status", rest='{"exit'),
        NO,
    ),
    "no object at all to be whole": ({"fragments_joined": True}, tape().eof("status"), NO),
    "another channel's objects": ({"count": 0}, tape().object("info", child_pid=9), YES),
    "a count on a truncated channel": ({"count": 1}, cut(), UNKNOWN),
    "too many before the channel was truncated": ({"count": 0}, cut(), NO),
    "an absence on a truncated channel": ({"none_has": "exit-code"}, cut(), UNKNOWN),
    "a presence on a truncated channel": ({"some_has": "a"}, cut(), YES),
    "what is not in the part that was kept": ({"some_has": "b"}, cut(), UNKNOWN),
}
FIELD: dict[str, Row] = {
    "the value": ({"member": "exit-code", "equals": 7}, status(), YES),
    "another value": ({"member": "exit-code", "equals": 8}, status(), NO),
    "a number is not its text": ({"member": "exit-code", "equals": "7"}, status(), NO),
    "one is not true": ({"member": "a", "equals": True}, tape().object("status", a=1), NO),
    "true is not one": ({"member": "a", "equals": 1}, tape().object("status", a=True), NO),
    "a member that no object has": ({"member": "oops", "equals": 1}, status(), NO),
    "the first object that has it": (
        {"member": "n", "equals": 1},
        tape().object("status", m=0).object("status", n=1).object("status", n=2),
        YES,
    ),
    "absent": ({"member": "oops", "absent": True}, status(), YES),
    "there although it should be absent": ({"member": "exit-code", "absent": True}, status(), NO),
    "a pid that its parent reported": (
        {"member": "child-pid", "pid_of": "monitor"},
        status().started("monitor", 9),
        YES,
    ),
    "the pid of somebody else": (
        {"member": "child-pid", "pid_of": "monitor"},
        status().started("monitor", 10),
        NO,
    ),
    "a pid in a census": (
        {"member": "child-pid", "pid_of": "reaper"},
        status().identified("child", 9).census("settle", "reaper:S:9"),
        YES,
    ),
    "another pid in the census": (
        {"member": "child-pid", "pid_of": "reaper"},
        status().identified("child", 9).census("settle", "reaper:S:11"),
        NO,
    ),
    "the pid of a process that was never seen": (
        {"member": "child-pid", "pid_of": "reaper"},
        status(),
        UNKNOWN,
    ),
    "the inode that the command saw": (
        {"member": "mnt-namespace", "inode_of": "observed.mnt"},
        seen_by("command", 5),
        YES,
    ),
    "another inode than the command saw": (
        {"member": "mnt-namespace", "inode_of": "observed.mnt"},
        seen_by("command", 6),
        NO,
    ),
    "an inode when the command reported nothing": (
        {"member": "mnt-namespace", "inode_of": "observed.mnt"},
        tape().object("status", mnt_namespace=5),
        UNKNOWN,
    ),
    "the inode that a probe saw": (
        {"member": "mnt-namespace", "inode_of": "inside.mnt"},
        seen_by("inside", 5),
        YES,
    ),
    "another inode than the probe saw": (
        {"member": "mnt-namespace", "inode_of": "inside.mnt"},
        seen_by("inside", 6),
        NO,
    ),
    "an inode that the probe could not read": (
        {"member": "mnt-namespace", "inode_of": "inside.mnt"},
        seen_by("inside", None),
        UNKNOWN,
    ),
    "an inode of a kind that was not probed": (
        {"member": "mnt-namespace", "inode_of": "inside.net"},
        seen_by("inside", 5),
        UNKNOWN,
    ),
}
TWO_LINES = tape().line("stdout", "one").late().line("stdout", "two").eof("stdout", bytes_=8)
TEXT: dict[str, Row] = {
    "a line contains it": ({"contains": "tw"}, TWO_LINES, YES),
    "no line contains it": ({"contains": "three"}, TWO_LINES, NO),
    "what follows the last newline contains it": (
        {"contains": "thr"},
        tape().line("stdout", "one").eof("stdout", rest="three"),
        YES,
    ),
    "text beyond what is kept": (
        {"contains": "three"},
        tape().line("stdout", "one").truncated("stdout").eof("stdout", bytes_=1 << 20),
        UNKNOWN,
    ),
    "text before what is cut": (
        {"contains": "one"},
        tape().line("stdout", "one").truncated("stdout").eof("stdout", bytes_=1 << 20),
        YES,
    ),
    "no line has what must not be there": ({"lacks": "three"}, TWO_LINES, YES),
    "a line has what must not be there": ({"lacks": "two"}, TWO_LINES, NO),
    "the rest has what must not be there": (
        {"lacks": "thr"},
        tape().eof("stdout", rest="three"),
        NO,
    ),
    "an absence beyond what is kept": (
        {"lacks": "three"},
        tape().line("stdout", "one").truncated("stdout"),
        UNKNOWN,
    ),
    "exactly these lines": ({"lines": ["one", "two"]}, TWO_LINES, YES),
    "a line too few": ({"lines": ["one"]}, TWO_LINES, NO),
    "lines in another order": ({"lines": ["two", "one"]}, TWO_LINES, NO),
    "no lines": ({"lines": []}, tape().eof("stdout"), YES),
    "a last line without its newline": (
        {"lines": ["one"]},
        tape().eof("stdout", rest="one"),
        YES,
    ),
    "lines that go on beyond what is kept": (
        {"lines": ["one", "two"]},
        tape().line("stdout", "one").truncated("stdout"),
        UNKNOWN,
    ),
    "lines that differ before what is cut": (
        {"lines": ["zero", "one"]},
        tape().line("stdout", "one").truncated("stdout"),
        NO,
    ),
    "enough bytes": ({"at_least_bytes": 8}, TWO_LINES, YES),
    "a byte too few": ({"at_least_bytes": 9}, TWO_LINES, NO),
    "bytes that were only counted": (
        {"at_least_bytes": 1 << 20},
        tape().truncated("stdout").eof("stdout", bytes_=1 << 20),
        YES,
    ),
    "bytes of lines without an end": (
        {"at_least_bytes": 4},
        tape().line("stdout", "one"),
        YES,
    ),
    "bytes beyond the text of the lines": (
        {"at_least_bytes": 3},
        tape().line("stdout", "é"),
        YES,
    ),
    "bytes of a truncated channel without an end": (
        {"at_least_bytes": 1 << 20},
        tape().line("stdout", "one").truncated("stdout"),
        UNKNOWN,
    ),
    "nothing": ({"empty": True}, tape().eof("stdout"), YES),
    "something where nothing must be": ({"empty": True}, TWO_LINES, NO),
    "something": ({"empty": False}, TWO_LINES, YES),
    "nothing where something must be": ({"empty": False}, tape().eof("stdout"), NO),
    "an empty line is something": ({"empty": True}, tape().line("stdout", ""), NO),
    "a flood without a newline is not nothing": (
        {"empty": True},
        tape().truncated("stdout").eof("stdout", bytes_=1 << 20),
        NO,
    ),
    "a flood without a newline is something": (
        {"empty": False},
        tape().truncated("stdout").eof("stdout", bytes_=1 << 20),
        YES,
    ),
}
EOF: dict[str, Row] = {
    "an end that came": ({}, tape().eof("sync"), YES),
    "an end that never came": ({}, tape().line("sync", "x"), NO),
    "the end of another channel": ({}, tape().eof("status"), NO),
    "an end that must not come": ({"seen": False}, tape().eof("sync"), NO),
    "no end where none must come": ({"seen": False}, tape(), YES),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name: str) -> None:
    rule, told, held = OBJECTS[name]
    assert judge({"objects": {"on": "status", **rule}}, told).held is held


@pytest.mark.parametrize("name", FIELD)
def test_field(name: str) -> None:
    rule, told, held = FIELD[name]
    assert judge({"field": {"on": "status", **rule}}, told).held is held


@pytest.mark.parametrize("name", TEXT)
def test_text(name: str) -> None:
    rule, told, held = TEXT[name]
    assert judge({"text": {"on": "stdout", **rule}}, told).held is held


@pytest.mark.parametrize("name", EOF)
def test_eof(name: str) -> None:
    rule, told, held = EOF[name]
    assert judge({"eof": {"on": "sync", **rule}}, told).held is held


def test_a_judgement_on_objects_cites_all_of_them_and_the_end() -> None:
    assert judge({"objects": {"on": "status", "count": 3}}, status()) == Judgement(
        Held.NO,
        "exactly 3 object(s) on status",
        "2 object(s) on status: {child-pid}; {exit-code}",
        (2, 4, 5),
    )


def test_a_judgement_on_a_field_cites_the_object_and_who_has_the_pid() -> None:
    told = tape().started("monitor", 10).object("status", child_pid=9)
    rule = {"on": "status", "member": "child-pid", "pid_of": "monitor"}
    assert judge({"field": rule}, told) == Judgement(
        Held.NO, "child-pid = pid of monitor as the observer sees it", "9", (1, 2)
    )


def test_a_judgement_on_a_missing_member_has_no_event_to_cite() -> None:
    rule = {"on": "status", "member": "exit-code", "equals": 7}
    assert judge({"field": rule}, tape().eof("status")) == Judgement(
        Held.NO, "exit-code on status to be there", "no object has it"
    )


def test_a_judgement_on_text_cites_the_line_that_must_not_be_there() -> None:
    assert judge({"text": {"on": "stdout", "lacks": "two"}}, TWO_LINES) == Judgement(
        Held.NO, 'no "two" on stdout', "one | two", (2,)
    )


def test_a_judgement_on_text_shows_long_output_cut() -> None:
    told = tape().line("stdout", "x" * 5000)
    assert judge({"text": {"on": "stdout", "contains": "y"}}, told).observed == "x" * 199 + "…"


def test_a_judgement_on_an_end_says_when_it_came() -> None:
    told = tape().after(11.5).eof("sync")
    assert judge({"eof": {"on": "sync", "seen": False}}, told) == Judgement(
        Held.NO, "no EOF on sync before the steps are over", "EOF after 13.5 ms", (1,)
    )
