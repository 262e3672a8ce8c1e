"""Rules about processes: exit, ran, never_ran, survivors, zombies, alive."""

from __future__ import annotations

from typing import Any

import pytest
from judges_tape import NO, UNKNOWN, YES, Row, Tape, judge, tape

from harness.judges.rules import Judgement
from harness.model.verdict import Held


def ended(**how: Any) -> Tape:
    """A monitor that was started and has ended."""
    return tape().started("monitor").exited("monitor").status("monitor", **how)


EXIT: dict[str, Row] = {
    "the code": ({"code": 7}, ended(code=7), YES),
    "another code": ({"code": 7}, ended(code=8), NO),
    "code 0": ({"code": 0}, ended(code=0), YES),
    "the signal": ({"signal": "KILL"}, ended(signal="KILL"), YES),
    "another signal": ({"signal": "KILL"}, ended(signal="TERM"), NO),
    "137 is not a death by SIGKILL": ({"signal": "KILL"}, ended(code=137), NO),
    "a death by SIGKILL is not 137": ({"code": 137}, ended(signal="KILL"), NO),
    "a status of which only the reaping is known": (
        {"code": 7},
        tape().started("monitor").status("monitor", code=7),
        YES,
    ),
    "not ended yet": ({"code": 0}, tape().started("monitor"), NO),
    "never started": ({"code": 0}, tape(), NO),
    "another process's end": ({"code": 0}, tape().exited("child").status("child", code=0), NO),
    "ended, and nobody could collect the code": (
        {"code": 0},
        tape().started("monitor").exited("monitor"),
        UNKNOWN,
    ),
    "ended, and nobody could collect the signal": (
        {"signal": "KILL"},
        tape().started("monitor").exited("monitor"),
        UNKNOWN,
    ),
    "ended, and its status came without a value": ({"code": 0}, ended(), UNKNOWN),
    "ended in whatever way": ({"any": True}, ended(signal="TERM"), YES),
    "ended without a status": ({"any": True}, tape().exited("monitor"), YES),
    "not ended in any way": ({"any": True}, tape().started("monitor"), NO),
    "never ended": ({"never": True}, tape().started("monitor"), YES),
    "ended although it must not": ({"never": True}, ended(code=0), NO),
    "a process that was never there did not go on": ({"never": True}, tape(), NO),
    "a process found through bwrap's words never ended": (
        {"never": True},
        tape().identified("monitor"),
        YES,
    ),
}
RAN: dict[str, Row] = {
    "the marker appeared": ({"ran": "mark"}, tape().marker("mark"), YES),
    "another marker appeared": ({"ran": "mark"}, tape().marker("mark2"), NO),
    "no marker appeared": ({"ran": "mark"}, tape(), NO),
    "it never ran": ({"never_ran": "mark"}, tape().marker("mark2"), YES),
    "it ran although it must not": ({"never_ran": "mark"}, tape().marker("mark"), NO),
}
CENSUS: dict[str, Row] = {
    "nobody is left": ({"survivors": "none"}, tape().census("settle"), YES),
    "somebody is left": ({"survivors": "none"}, tape().census("settle", "command:S"), NO),
    "a zombie is no survivor": ({"survivors": "none"}, tape().census("settle", "child:Z"), YES),
    "the dead state is no survivor": ({"survivors": "none"}, tape().census("end", "child:X"), YES),
    "a stopped process is a survivor": (
        {"survivors": "none"},
        tape().census("settle", "command:T"),
        NO,
    ),
    "supervisor, launcher and helpers are outside": (
        {"survivors": "none"},
        tape().census("settle", "supervisor:S", "left.supervisor:S", "launcher:S", "keeper:S"),
        YES,
    ),
    "a provider is inside": ({"survivors": "none"}, tape().census("settle", "net:S"), NO),
    "exactly these survive": (
        {"survivors": ["command", "reaper"]},
        tape().census("settle", "reaper:S", "command:R"),
        YES,
    ),
    "one survives who is not named": (
        {"survivors": ["command"]},
        tape().census("settle", "command:S", "descendant:S"),
        NO,
    ),
    "one who is named does not survive": (
        {"survivors": ["command", "reaper"]},
        tape().census("settle", "command:S"),
        NO,
    ),
    "several descendants are one kind of survivor": (
        {"survivors": ["descendant"]},
        tape().census("settle", "descendant:S", "descendant:S"),
        YES,
    ),
    "a settle counts, not what comes after it": (
        {"survivors": "none"},
        tape().census("settle").census("end", "command:S"),
        YES,
    ),
    "the last settle counts": (
        {"survivors": "none"},
        tape().census("settle", "command:S").census("settle"),
        YES,
    ),
    "without a settle the last census counts": (
        {"survivors": "none"},
        tape().census("census", "command:S").census("end"),
        YES,
    ),
    "survivors without any census": ({"survivors": "none"}, tape(), UNKNOWN),
    "no zombies": ({"zombies": "none"}, tape().census("settle", "command:S"), YES),
    "a zombie": ({"zombies": "none"}, tape().census("settle", "child:Z"), NO),
    "exactly these zombies": ({"zombies": ["child"]}, tape().census("settle", "child:Z"), YES),
    "the zombie of a supervisor is outside": (
        {"zombies": "none"},
        tape().census("settle", "supervisor:Z"),
        YES,
    ),
    "zombies without any census": ({"zombies": "none"}, tape(), UNKNOWN),
    "alive": ({"alive": "command"}, tape().census("settle", "command:S"), YES),
    "stopped is alive": ({"alive": "command"}, tape().census("settle", "command:T"), YES),
    "a zombie is not alive": ({"alive": "command"}, tape().census("settle", "command:Z"), NO),
    "who is not there is not alive": ({"alive": "command"}, tape().census("settle"), NO),
    "one living descendant among the dead": (
        {"alive": "descendant"},
        tape().census("settle", "descendant:S", "descendant:Z"),
        YES,
    ),
    "alive without any census": ({"alive": "command"}, tape(), UNKNOWN),
}


@pytest.mark.parametrize("name", EXIT)
def test_exit(name: str) -> None:
    rule, told, held = EXIT[name]
    assert judge({"exit": {"of": "monitor", **rule}}, told).held is held


@pytest.mark.parametrize("name", RAN)
def test_ran(name: str) -> None:
    rule, told, held = RAN[name]
    assert judge(rule, told).held is held


@pytest.mark.parametrize("name", CENSUS)
def test_census(name: str) -> None:
    rule, told, held = CENSUS[name]
    assert judge(rule, told, helpers={"keeper": {}}).held is held


@pytest.mark.parametrize(
    ("told", "observed", "events"),
    [
        (ended(code=8), "it exited 8", (2, 3)),
        (ended(signal="TERM"), "it was killed by SIGTERM", (2, 3)),
        (tape().started("monitor"), "it had not ended when the steps were over", ()),
        (tape(), "it was never started", ()),
    ],
    ids=["code", "signal", "running", "absent"],
)
def test_an_exit_that_differs_says_what_happened(
    told: Tape, observed: str, events: tuple[int, ...]
) -> None:
    expected = Judgement(Held.NO, "monitor exits 7", observed, events)
    assert judge({"exit": {"of": "monitor", "code": 7}}, told) == expected


def test_an_undecided_exit_says_why() -> None:
    told = tape().started("monitor").exited("monitor")
    assert judge({"exit": {"of": "monitor", "signal": "KILL"}}, told) == Judgement(
        Held.UNKNOWN,
        "monitor is killed by SIGKILL",
        "monitor ended, but nobody could collect its status",
        (2,),
    )


def test_survivors_are_all_named_with_the_census_as_proof() -> None:
    told = tape().census("settle", "reaper:S", "command:R", "descendant:S", "descendant:S")
    assert judge({"survivors": ["command"]}, told) == Judgement(
        Held.NO, "alive: command", "alive: command, descendant, reaper", (1,), "4 processes"
    )


def test_the_state_in_which_a_process_is_alive_is_an_aside() -> None:
    told = (judge({"alive": "command"}, tape().census("settle", f"command:{s}")) for s in "SRZ")
    assert [(each.observed, each.aside) for each in told] == [
        ("alive", "state S"),
        ("alive", "state R"),
        ("dead", "state Z"),
    ]


def test_a_marker_that_must_not_be_there_is_cited() -> None:
    assert judge({"never_ran": "mark"}, tape().marker("mark")) == Judgement(
        Held.NO, "marker mark never appears", "it appeared at 2.0 ms", (1,)
    )
