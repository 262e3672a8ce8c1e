"""The agent's process: what it answers, and that nothing is left however it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_client import NOBODY, Agent, make_plan, reap_orphans

from harness.agent import kernel, procfs
from harness.model.timeline import Kind, read_timelines


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent with a folder of its own; this process adopts what it leaves, to find it."""
    kernel.set_child_subreaper()
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    started = Agent(folder)
    try:
        yield started
        started.close()
        reap_orphans()
        assert os.listdir(folder) == [], "the agent left files"
    finally:
        started.close()
        kernel.set_child_subreaper(False)
        for _ in range(100):  # only after a failure: the test has failed already
            if not procfs.descendants_of(os.getpid()):
                break
            for process in procfs.descendants_of(os.getpid()):
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)
    folder.rmdir()


# --- requests -------------------------------------------------------------------------------------

GOOD = make_plan("/nonexistent/bwrap")
BAD_REQUESTS: dict[str, bytes | dict[str, Any]] = {
    "no JSON": b"hello\n",
    "torn JSON": b'{"do": "record"\n',
    "an empty line": b"\n",
    "bytes that are no text": b"\xff\xfe\n",
    "a number": b"7\n",
    "a list": b"[]\n",
    "null": b"null\n",
    "too deep": b"[" * 50_000 + b"\n",
    "no verb": {},
    "an unknown verb": {"do": "dance"},
    "facts of nobody": {"do": "facts"},
    "identify nothing": {"do": "identify"},
    "a plan that is not there": {"do": "record"},
    "a plan that is a text": {"do": "record", "plan": "x"},
    "an empty plan": {"do": "record", "plan": {}},
    "a plan without a bwrap": {
        "do": "record",
        "plan": {key: value for key, value in GOOD.items() if key != "bwrap"},
    },
    "a plan for a user that is none": {"do": "record", "plan": {**GOOD, "uid": "root"}},
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_is_answered_with_a_fault_and_the_agent_lives_on(
    agent: Agent, name: str
) -> None:
    agent.send(BAD_REQUESTS[name])
    answer = agent.read_reply()
    assert answer is not None, "the agent died"
    assert answer["reply"] == "fault"
    assert answer["reason"]
    assert "Traceback" in answer["traceback"]
    facts = agent.ask({"do": "facts", "uid": NOBODY})
    assert facts is not None
    assert facts["reply"] == "facts"
    assert agent.close() == 0


def test_a_plan_that_cannot_be_recorded_is_a_fault_and_leaves_nothing(agent: Agent) -> None:
    box = {"command": {"argv": ["true"]}, "channels": {"a": {"same_number_as": "never-made"}}}
    agent.send({"do": "record", "plan": {**GOOD, "sandboxes": {"main": box}}})
    answer = agent.read_reply()
    assert answer is not None
    assert (answer["reply"], answer["reason"]) == ("fault", "KeyError: 'never-made'")
    agent.assert_nothing_left()


def test_requests_that_come_in_pieces_or_together_are_all_answered(agent: Agent) -> None:
    request = json.dumps({"do": "facts", "uid": NOBODY}).encode() + b"\n"
    agent.send(request[:9])
    agent.send(request[9:] + request + request[:5])
    agent.send(request[5:])
    assert [(agent.read_line() or {})["reply"] for _ in range(3)] == ["facts"] * 3


def test_facts_tell_the_tools_that_were_asked_for(agent: Agent) -> None:
    answer = agent.ask({"do": "facts", "uid": NOBODY, "tools": ["sh", "no-such-tool"]})
    assert answer is not None
    found, missing = (answer["facts"][f"tool:{name}"] for name in ("sh", "no-such-tool"))
    assert (found["ok"], found["value"][-3:]) == (True, "/sh")
    assert missing == {
        "name": "tool:no-such-tool",
        "value": None,
        "ok": False,
        "layer": "tool",
        "detail": "no-such-tool is not on PATH",
        "remedy": "install no-such-tool",
    }


def test_a_bwrap_proves_itself_and_another_program_does_not(agent: Agent, bwrap: str) -> None:
    asked = {"do": "identify", "uid": NOBODY, "gid": NOBODY}
    real = agent.ask({**asked, "path": bwrap})
    other = agent.ask({**asked, "path": "/bin/true"})
    assert real is not None
    assert other is not None
    assert (real["ok"], real["problem"]) == (True, "")
    assert (other["ok"], other["problem"]) == (False, "not-bwrap")


def test_a_recording_goes_into_a_file_of_the_harness(
    agent: Agent, bwrap: str, tmp_path: Path
) -> None:
    path = tmp_path / "timeline.jsonl"
    for _ in range(2):
        plan = {**make_plan(bwrap), "timeline": str(path)}
        assert agent.ask({"do": "record", "plan": plan}) == {"reply": "recorded"}
    with path.open() as file:
        assert [timeline.closed for timeline in read_timelines(file)] == [True, True]


def test_a_file_that_cannot_be_written_is_a_fault_with_its_errno(
    agent: Agent, bwrap: str, tmp_path: Path
) -> None:
    plan = {**make_plan(bwrap), "timeline": str(tmp_path / "no" / "such" / "folder")}
    answer = agent.ask({"do": "record", "plan": plan})
    assert answer is not None
    assert (answer["reply"], answer["errno"]) == ("fault", errno.ENOENT)
    full = agent.ask({"do": "record", "plan": {**make_plan(bwrap), "timeline": "/dev/full"}})
    assert full is not None
    assert (full["reply"], full["errno"]) == ("fault", errno.ENOSPC)
    agent.assert_nothing_left()


# --- the end --------------------------------------------------------------------------------------

#: What is hard to end: stopped, in a session of its own, deaf to SIGTERM, and an orphan at that.
TOUGH = """
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP; (sh -c "kill -STOP \\$\\$; sleep 1000" &) ; sleep 1000' &
setsid sh -c 'sh -c "echo > $SCRATCH/daemon; exec sleep 1000" &' &
while ! test -e $SCRATCH/daemon; do :; done
echo ready
sleep 1000
"""
TOUGH_SANDBOXES: dict[str, dict[str, Any]] = {
    "no-pid-namespace": {"command": {"shell": TOUGH}},
    "pid-namespace": {"args": ["--unshare-pid"], "command": {"shell": TOUGH}},
    "gate-held": {
        "args": ["--unshare-pid"],
        "command": {"shell": TOUGH},
        "channels": {"gate": {"option": "block-fd"}, "status": {"option": "json-status-fd"}},
    },
}


def kill_recorder(agent: Agent) -> None:
    os.kill(agent.recorder, signal.SIGKILL)


def kill_watchdog(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGKILL)


def hang_up(agent: Agent) -> None:
    assert agent.process.stdin is not None
    agent.process.stdin.close()


def terminate_watchdog(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGTERM)


def interrupt_watchdog(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGINT)


def terminate_recorder(agent: Agent) -> None:
    os.kill(agent.recorder, signal.SIGTERM)


ENDS: list[Callable[[Agent], None]] = [
    kill_recorder,
    kill_watchdog,
    hang_up,
    terminate_watchdog,
    interrupt_watchdog,
    terminate_recorder,
]


@pytest.mark.parametrize("sandbox", TOUGH_SANDBOXES)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_however_the_agent_ends_in_the_middle_nothing_is_left(
    agent: Agent, each_bwrap: str, end: Callable[[Agent], None], sandbox: str
) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox=TOUGH_SANDBOXES[sandbox],
        helpers={"keeper": {"lock": "write", "file": "lock"}},
        files={"lock": {"mode": "0666"}},
        steps=[{"pass": "100s", "trigger": True}],
    )
    if sandbox == "gate-held":
        agent.begin(plan, Kind.OBJECT_READ)
    else:
        agent.begin(plan, Kind.LINE_READ, text="ready")
    everybody = agent.hold_everybody()
    assert len(everybody) >= 5  # watchdog, recorder, keeper, supervisor, bwrap, and what it made
    end(agent)
    agent.await_death_of_all()


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_however_an_idle_agent_ends_nothing_is_left(
    agent: Agent, end: Callable[[Agent], None]
) -> None:
    agent.hold_everybody()
    end(agent)
    agent.await_death_of_all()


def test_an_agent_that_is_hung_up_in_good_order_says_so(agent: Agent, bwrap: str) -> None:
    assert agent.record(make_plan(bwrap)).closed
    assert agent.close() == 0


def test_an_agent_whose_recorder_was_killed_says_so(agent: Agent) -> None:
    kill_recorder(agent)
    assert agent.read_line() is None
    assert agent.close() == 70
