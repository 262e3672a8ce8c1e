"""A provider of the scripted supervisor, as the recorder's loop sees it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.agent import kernel
from harness.agent.journal import Journal
from harness.agent.recorder import Recording

PLAN = {"id": "a.b", "sandboxes": {"main": {}}, "providers": {"net": {"for": "main"}}}


def test_the_loop_sleeps_once_a_provider_and_its_pipes_have_ended(tmp_path: Path) -> None:
    out = os.open(tmp_path / "timeline", os.O_WRONLY | os.O_CREAT)
    journal = Journal(out)
    recording = Recording(PLAN, journal, str(tmp_path))
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    ready, liveness, stderr = (os.pipe() for _ in range(3))
    message = {"lane": "net", "pid": pid}
    try:
        fds = [kernel.pidfd_open(pid), ready[0], liveness[0], stderr[0]]
        recording._take_in_provider(message, fds)
        os.write(stderr[1], b"last words\n")
        for end in (ready[1], liveness[1], stderr[1]):
            os.close(end)
        os.kill(pid, signal.SIGKILL)
        wakes = []
        for _ in range(10):  # four sources, each with something to read and its end, at most
            recording.wake_up(0.1)
            wakes.append(journal.wake)
            if wakes[-2:] == wakes[-1:] * 2:
                break
        assert wakes[-2:] == wakes[-1:] * 2, f"the loop never sleeps: {wakes}"
        assert recording.channels["net.stderr"].lines == ["last words"]
    finally:
        os.waitpid(pid, 0)
        recording.close()
        os.close(out)
