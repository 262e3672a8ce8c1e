"""What shows a bwrap at work, and what any program can do."""

from __future__ import annotations

import pytest
from judges_tape import Tape, scenario, tape

from harness.judges.recording import judge_recording
from harness.model.timeline import Kind

EXIT_0 = {"exit": {"of": "monitor", "code": 0}}
NOTHING = "nothing in the recording shows a bwrap at work: no process below it, no error of its own"


def launched(code: int = 0) -> Tape:
    """A program was started and has ended."""
    return tape().started("monitor").exited("monitor").status("monitor", code=code).triggered()


def hindrance(told: Tape) -> str:
    return judge_recording(scenario(EXIT_0), told.closed(), {}).hindered


EVIDENCE = {
    "a process that bwrap called its child": launched().identified("child"),
    "a process that reads the gate": launched().add(
        Kind.STATE_REACHED, "child", pid=5, state="blocked-on-gate"
    ),
    "a marker of the command": launched().marker("ran"),
    "a report from the inside": launched().add(Kind.COMMAND_OBSERVED, "command", observation={}),
    "an error under bwrap's name": launched(1).add(
        Kind.LINE_READ, "stderr", channel="stderr", n=1, text="bwrap: no", fragments=1
    ),
    "such an error without its newline": launched(1).add(
        Kind.EOF_READ, "stderr", channel="stderr", bytes=9, rest="bwrap: no"
    ),
    "a status that no shell gives by itself": launched(7),
    "a lock of bwrap's init": launched().add(
        Kind.LOCKS_PROBED,
        "observer",
        name="locks",
        file="lock",
        locks=[{"api": "fcntl", "type": "read", "pid": 5, "member": "reaper"}],
    ),
    "a clone of the monitor that is left": launched().add(
        Kind.CENSUS_TAKEN,
        "observer",
        name="settle",
        processes=[{"pid": 5, "member": "descendant", "state": "S", "comm": "x"}],
    ),
    "a clone of a monitor that was gone before it was looked at": tape()
    .add(
        Kind.PROCESS_STARTED,
        "monitor",
        pid=4,
        ppid=0,
        comm="",
        argv=["/opt/some-quite-long-name", "--dev-bind"],
    )
    .status("monitor", signal="PIPE")
    .triggered()
    .add(
        Kind.CENSUS_TAKEN,
        "observer",
        name="settle",
        processes=[{"pid": 5, "member": "descendant", "state": "S", "comm": "some-quite-long"}],
    ),
    "that nothing was launched": tape().triggered(),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_this_is_enough(name: str) -> None:
    assert hindrance(EVIDENCE[name]) == ""


ANYBODY = {
    "ending": launched(),
    "failing": launched(1),
    "what a shell says of a missing program": launched(127),
    "dying of a signal": tape().started("monitor").status("monitor", signal="KILL").triggered(),
    "hanging": tape().started("monitor").triggered(),
    "a line that looks like bwrap's": launched().add(
        Kind.LINE_READ, "status", channel="status", n=1, text='{ "child-pid": 5 }', fragments=1
    ),
    "an error under another name": launched(1).add(
        Kind.LINE_READ, "stderr", channel="stderr", n=1, text="sh: bwrap: no", fragments=1
    ),
    "a child of another kind": launched().add(
        Kind.CENSUS_TAKEN,
        "observer",
        name="settle",
        processes=[{"pid": 5, "member": "child", "state": "S", "comm": "sleep"}],
    ),
}


@pytest.mark.parametrize("name", ANYBODY)
def test_anybody_can_do_this(name: str) -> None:
    assert hindrance(ANYBODY[name]) == NOTHING


def test_text_that_was_asked_for_by_its_words_came_from_a_command() -> None:
    said = launched().add(
        Kind.LINE_READ, "stdout", channel="stdout", n=1, text="hello", fragments=1
    )
    asked = scenario({"text": {"on": "stdout", "contains": "hello"}})
    assert judge_recording(asked, said.closed(), {}).hindered == ""
    assert judge_recording(asked, launched().closed(), {}).hindered == NOTHING
