"""The multiplexed connection to an agent, with the far end played by the test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.backends.stream import STDERR, STDOUT, StreamAgent, Wire
from harness.errors import Interrupted, RecordingLost, ReportNotWritten

EVENT = {"seq": 0, "t_ns": 0, "wake": 0, "kind": "line-read", "lane": "observer", "data": {}}
CLOSED = {**EVENT, "seq": 1, "kind": "recording-closed"}
#: What a sandbox can make a recording say: words that look like the end of it, or like a fault.
IMPOSTOR = {**EVENT, "data": {"text": '{"kind":"recording-closed"}', "reply": "fault"}}
PLAN: dict[str, Any] = {"id": "x", "steps": []}


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def out(*events: dict[str, Any]) -> bytes:
    return b"".join(frame(STDOUT, json.dumps(each).encode() + b"\n") for each in events)


class FarEnd:
    """The other half of a connection, an agent on this one, and what stops it."""

    def __init__(self) -> None:
        near, self.socket = socket.socketpair()
        self.stop_fd, self.stop_w = os.pipe()
        self.log = io.BytesIO()
        self.agent = StreamAgent(
            Wire(near),
            stop_fd=self.stop_fd,
            log=self.log,
            why_lost=lambda said: RecordingLost(f"lost: {said}"),
            has_ended=lambda _limit_s: True,
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.agent.close()
        os.close(self.stop_fd)
        os.close(self.stop_w)


@pytest.fixture
def far() -> Iterator[FarEnd]:
    end = FarEnd()
    yield end
    end.close()


def test_an_answer_may_come_in_any_pieces(far: FarEnd) -> None:
    text = json.dumps({"reply": "x", "value": "é" * 50}).encode() + b"\n"
    whole = frame(STDOUT, text[:7]) + frame(STDERR, b"a word\n") + frame(STDOUT, text[7:])

    def drip() -> None:
        for byte in whole:
            far.socket.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert far.agent.ask({"do": "x"}) == {"reply": "x", "value": "é" * 50}
    dripping.join()
    assert far.log.getvalue() == b"a word\n"


def test_a_recording_ends_with_its_closing_line_and_no_impostor(
    far: FarEnd, tmp_path: Path
) -> None:
    far.socket.sendall(out(EVENT, IMPOSTOR, CLOSED))
    lines = far.agent.record(PLAN, tmp_path / "x.jsonl", timeout_s=5)
    assert [json.loads(line) for line in lines] == [EVENT, IMPOSTOR, CLOSED]
    assert (tmp_path / "x.jsonl").read_text().splitlines() == lines


def test_recordings_of_one_file_follow_each_other(far: FarEnd, tmp_path: Path) -> None:
    for _ in range(2):
        far.socket.sendall(out(EVENT, CLOSED))
        assert len(far.agent.record(PLAN, tmp_path / "x.jsonl", timeout_s=5)) == 2
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 4


def test_what_came_before_the_connection_broke_is_in_the_file(far: FarEnd, tmp_path: Path) -> None:
    far.socket.sendall(out(EVENT) + frame(STDERR, b"the reason") + frame(STDOUT, b"half a li"))
    far.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(RecordingLost, match="lost: the reason"):
        far.agent.record(PLAN, tmp_path / "x.jsonl", timeout_s=5)
    assert [json.loads(x) for x in (tmp_path / "x.jsonl").read_text().splitlines()] == [EVENT]


def test_an_engines_last_words_are_not_framed_and_are_told(far: FarEnd) -> None:
    far.socket.sendall(b"OCI runtime exec failed: no such thing\r\n")
    far.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(RecordingLost, match="no such thing"):
        far.agent.ask({"do": "x"})


def test_an_answer_that_is_no_json_is_told_as_what_it_is(far: FarEnd) -> None:
    far.socket.sendall(frame(STDOUT, b"python3: not found\n"))
    with pytest.raises(RecordingLost, match="python3: not found"):
        far.agent.ask({"do": "x"})


def test_a_recording_that_takes_too_long_is_ended(far: FarEnd, tmp_path: Path) -> None:
    def end_when_stdin_ends() -> None:
        while far.socket.recv(1000):
            pass
        far.socket.shutdown(socket.SHUT_WR)

    ending = threading.Thread(target=end_when_stdin_ends)
    ending.start()
    with pytest.raises(RecordingLost, match=r"x took longer than 0\.1 s and was ended"):
        far.agent.record(PLAN, tmp_path / "x.jsonl", timeout_s=0.1)
    ending.join()


def test_a_run_that_is_to_stop_does_not_wait_for_an_answer(far: FarEnd) -> None:
    os.write(far.stop_w, b"x")
    with pytest.raises(Interrupted):
        far.agent.ask({"do": "x"})


def test_a_file_that_cannot_be_written_is_no_fault_of_the_agents(far: FarEnd) -> None:
    far.socket.sendall(out(EVENT, CLOSED))
    with pytest.raises(ReportNotWritten, match="No space left"):
        far.agent.record(PLAN, Path("/dev/full"), timeout_s=5)


def test_what_was_read_with_the_answers_header_is_not_lost() -> None:
    near, far_end = socket.socketpair()
    wire = Wire(near, early=frame(STDOUT, b"early")[:6])
    try:
        far_end.sendall(frame(STDOUT, b"early")[6:])
        assert wire.read(time.monotonic() + 5) == (STDOUT, b"early")
    finally:
        wire.close()
        far_end.close()
