"""Steps whose end is easily believed too early, or never noticed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.agent import procfs, steps, waiting
from harness.agent.waiting import EMPTY_WALKS

MONITOR = procfs.Process(50, 40, "S", "bwrap", 50, 50, 0, 1000)


class StubRecording:
    """As much of a recording as a settle and a launch look at; ``asked`` is what pump was told."""

    def __init__(self, reference: bool = False) -> None:
        self.plan = {"supervisor": {"kind": "reference" if reference else "scripted"}}
        self.prefixes = {"main": ""}
        supervisor = SimpleNamespace(pid=40, exited=False)
        self.cast = SimpleNamespace(members={"supervisor": supervisor})
        self.supervisors = {"supervisor": SimpleNamespace(send=lambda _packet: None)}
        self.reports: set[str] = set()
        self.asked: list[bool] = []
        self.walks: list[list[procfs.Process]] = []

    def descendants(self) -> list[procfs.Process]:
        """What the next walk of /proc finds; nobody, once all that was prepared is told."""
        return self.walks.pop(0) if self.walks else []

    def pump(self, done: Callable[[], bool], _within_ns: int, **_looks: bool) -> bool:
        self.asked.append(done())
        return self.asked[-1]

    def wake_up(self, _timeout_s: float) -> None:
        pass

    def take_census(self, _name: str) -> None:
        pass


def settled(*found: list[procfs.Process]) -> bool:
    recording: Any = StubRecording()
    recording.walks = list(found)
    steps.STEPS["settle"](recording, {"settle": 1})
    return bool(recording.asked[-1])


def test_a_process_that_one_walk_missed_is_still_there_for_settle() -> None:
    assert settled([], [MONITOR]) is False


def test_settle_waits_for_none_but_the_living_inside() -> None:
    supervisor = MONITOR._replace(pid=40)
    zombie = MONITOR._replace(state="Z")
    everybody = [supervisor, zombie]
    assert settled(*[everybody] * (2 * EMPTY_WALKS)) is True


@pytest.mark.parametrize("reported", [True, False])
def test_a_launch_that_is_refused_is_done(reported: bool) -> None:
    recording: Any = StubRecording(reference=True)
    recording.reports = {"supervisor"} if reported else set()
    step = {"launch": "main", "within": 1}
    if reported:
        steps.STEPS["launch"](recording, step)
    else:
        with pytest.raises(steps.StepTimedOut):
            steps.STEPS["launch"](recording, step)


@pytest.mark.parametrize(
    ("exited", "status", "at_eof", "ended"),
    [
        (True, {"code": 1}, True, True),
        (False, {"code": 1}, True, False),
        (True, None, True, False),
        (True, {"code": 1}, False, False),
    ],
    ids=["all of it", "exit not noticed yet", "status not known yet", "channel still open"],
)
def test_a_sandbox_has_ended_once_exit_status_and_ends_are_all_in_the_timeline(
    exited: bool, status: dict[str, int] | None, at_eof: bool, ended: bool
) -> None:
    recording: Any = StubRecording()
    recording.cast.members["monitor"] = SimpleNamespace(exited=exited, status=status)
    recording.groups = {"main": {"status": SimpleNamespace(is_read=True, at_eof=at_eof)}}
    assert waiting._has_ended(recording, "main") is ended
