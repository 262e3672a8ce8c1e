"""Who is who below the recorder, by what bwrap forks and by what its init adopts."""

from __future__ import annotations

from typing import Any

import pytest

from harness.agent import procfs
from harness.agent.cast import Cast

#: Above any pid_max, so that no process of this machine is looked at.
MONITOR, INIT, INSIDE = 5_000_001, 5_000_002, 5_000_003


def alive(pid: int, ppid: int, comm: str) -> procfs.Process:
    return procfs.Process(pid, ppid, "S", comm, pid, pid, 0, 1000)


@pytest.fixture
def cast(monkeypatch: pytest.MonkeyPatch) -> Cast:
    """A sandbox whose init has one child, of which nobody has said who it is."""
    monkeypatch.setattr(
        procfs, "children_of", lambda pid: {MONITOR: [INIT], INIT: [INSIDE]}.get(pid, [])
    )
    made = Cast({"main": ""})
    made.reaped_inside["main"] = True
    made.add("monitor", MONITOR, -1, 0)
    made.add("child", INIT, -1, 0)
    return made


def names(cast: Cast) -> list[str]:
    found = [alive(INIT, 1, "bwrap"), alive(INSIDE, INIT, "sleep")]
    return [process["member"] for process in cast.census(lambda: found)]


def test_the_first_child_of_the_init_is_the_command_while_bwrap_runs(cast: Cast) -> None:
    assert names(cast) == ["reaper", "command"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [({"signal": "KILL"}, ["reaper", "command"]), ({"code": 7}, ["reaper", "descendant"])],
)
def test_a_daemon_is_not_taken_for_the_command_once_bwrap_has_exited(
    cast: Cast, status: dict[str, Any], expected: list[str]
) -> None:
    cast.members["monitor"].status = status
    assert names(cast) == expected
    assert (cast.find_pid("command") is None) == ("code" in status)
