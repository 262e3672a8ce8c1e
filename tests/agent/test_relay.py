"""The relay: everything arrives, in order, also when the recorder is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.agent import procfs
from harness.agent.relay import COMPLETE, start_relay
from harness.agent.startup import RELAYED
from harness.backends.local import AGENT_PROGRAM, PYTHON_OPTIONS

ROOT = Path(__file__).resolve().parents[2]


def read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


def relay_to(out_fd: int) -> tuple[int, int]:
    """A relay's pid, and the fd of what it relays."""
    read_end, write_end = os.pipe()
    pid = start_relay(read_end, out_fd)
    os.close(read_end)
    return pid, write_end


def test_more_than_the_pipe_holds_arrives_whole_and_in_order() -> None:
    read_end, write_end = os.pipe()
    pid, relayed = relay_to(write_end)
    os.close(write_end)
    flood = b"".join(b"%d\n" % n for n in range(400_000))
    writer = os.fork()
    if writer == 0:
        os.close(read_end)
        with os.fdopen(relayed, "wb") as stream:
            stream.write(flood)
        os._exit(0)
    os.close(relayed)
    assert read_all(read_end) == flood
    assert [os.waitpid(each, 0)[1] for each in (writer, pid)] == [0, 0]


def test_what_is_written_is_handed_on_before_any_answer_is_complete() -> None:
    read_end, write_end = os.pipe()
    pid, relayed = relay_to(write_end)
    os.close(write_end)
    for event in (b"one\n", b"two\n"):
        os.write(relayed, event)
        assert os.read(read_end, 64) == event
    os.close(relayed)
    assert read_all(read_end) == b""
    os.waitpid(pid, 0)


def test_the_mask_of_the_caller_is_as_it_was() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    read_end, write_end = os.pipe()
    pid, relayed = relay_to(write_end)
    assert COMPLETE not in before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    for fd in (relayed, read_end, write_end):
        os.close(fd)
    os.waitpid(pid, 0)


def start_agent() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, *AGENT_PROGRAM, RELAYED],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def ask(agent: subprocess.Popen[bytes]) -> dict[str, object]:
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(b'{"do": "identify", "path": "/", "uid": 0, "gid": 0}\n')
    agent.stdin.flush()
    answer: dict[str, object] = json.loads(agent.stdout.readline())
    return answer


def waits_for_the_word(pid: int) -> bool:
    """Whether a process is the relay, which alone has its signal blocked."""
    state = procfs.signal_state(pid)
    return state is not None and "SIGUSR1" in state.blocked


def close(agent: subprocess.Popen[bytes]) -> int:
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.close()
    assert agent.stdout.read() == b""
    agent.stdout.close()
    return agent.wait(30)


def test_a_relayed_agent_answers_and_ends_in_good_order() -> None:
    agent = start_agent()
    assert ask(agent)["problem"] == "missing"
    assert ask(agent)["problem"] == "missing"
    assert close(agent) == 0


def test_a_relayed_agent_whose_recorder_is_killed_ends_as_any_other() -> None:
    agent = start_agent()
    ask(agent)
    (recorder,) = [pid for pid in procfs.children_of(agent.pid) if not waits_for_the_word(pid)]
    os.kill(recorder, signal.SIGKILL)
    assert close(agent) == 70
