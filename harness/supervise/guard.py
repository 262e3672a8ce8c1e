"""The guard: ends a sandbox whose supervisor was killed, at any moment of its life.

``--die-with-parent`` cannot: bwrap arms the death signal of the sandbox's own process only behind
the gate, so a supervisor that is SIGKILLed before leaves that process waiting for ever - or, where
the gate opens by EOF, running the command.  Measured over 100 kills with the gate held, bwrap
0.8.0: command ran 88 times as root and 27 times unprivileged with a plain gate; never with a gate
whose write end the sandbox holds (``sandbox``), which then leaves the process 100 times out of
100; with the guard, nothing is left.

The guard is one forked process that sleeps on a pipe whose write end only the supervisor holds.
It costs a fork (about 1 ms) and wakes once.  Read ``sandbox`` next.
"""

from __future__ import annotations

import gc
import os
import select
import time

from harness.supervise.processes import (
    Process,
    close_all_but,
    close_fds,
    fork_with_signals_blocked,
    holders_of_pipe,
    pipe,
    wait_readable,
)

__all__ = ["GIVE_UP_S", "RESCAN_S", "Guard"]

RESCAN_S = 0.02
"""How long the guard waits for what it killed to be gone before it looks again: bwrap may have
been forking while it was looked for.  Killed processes are gone in 2 to 10 ms (measured)."""

GIVE_UP_S = 10.0
"""When the guard gives up on a process that outlives SIGKILL, stuck inside the kernel."""


class Guard:
    """A running guard for the sandbox behind ``sync_fd``.

    ``sync_fd`` is the read end of the pipe whose write end the sandbox holds; it stays the
    caller's.  ``program`` is the bwrap that will be started.  Must be made before bwrap is, so
    that there is no moment without one, and ended by ``stop``.
    """

    def __init__(self, *, sync_fd: int, program: str) -> None:
        wake, self._alive_fd = pipe()
        try:
            pid = fork_with_signals_blocked()
            if pid == 0:
                _watch(wake, sync_fd, program)
            self._process = Process.of_child(pid)
        except BaseException:
            close_fds([self._alive_fd])
            raise
        finally:
            close_fds([wake])

    @property
    def pid(self) -> int:
        """The guard's pid."""
        return self._process.pid

    def stop(self) -> None:
        """End the guard and reap it, once the sandbox is gone; may be called twice.

        Killed rather than hung up on: a process that another thread of the caller forked in the
        wrong moment may hold a copy of the pipe, and the guard would then sleep on.
        """
        if self._process.pidfd >= 0:
            self._process.kill()
            wait_readable([self._process.pidfd], None)
            self._process.reap_if_inherited()
            self._process.close()
        close_fds([self._alive_fd])
        self._alive_fd = -1


def _watch(wake: int, sync_fd: int, program: str) -> None:
    """Sleep until the supervisor is gone, then kill what holds the sandbox's pipe.  No return.

    Signals stay blocked, so that a Ctrl-C for the whole group leaves the guard to do its work.
    """
    try:
        gc.disable()
        # The caller's stdio too: a copy of a pipe kept here would keep its reader waiting.
        close_all_but({wake, sync_fd})
        os.read(wake, 1)
        give_up = time.monotonic() + GIVE_UP_S
        poll = select.poll()
        poll.register(sync_fd, 0)  # Hang-up only: nobody holds the write end any more.
        while not poll.poll(0) and time.monotonic() < give_up:
            for process in holders_of_pipe(sync_fd, program=program):
                process.kill()
                process.close()
            poll.poll(RESCAN_S * 1000)
    finally:
        os._exit(0)
