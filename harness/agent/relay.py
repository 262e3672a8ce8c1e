"""A process between the recorder and a far-away harness, so that recording is not disturbed.

Where the timeline goes over a container engine's stream, each event would wake up three processes
(the engine's shim, the engine, the harness), in the very moments that a recording is about: on two
cores that made whole runs a third longer (measured).  The relay sleeps while events come in, and
hands them on every ``INTERVAL_S``, and at once when an answer is complete.  What the recorder wrote
is safe from then on: it is in a pipe that outlives the recorder.

A signal says that an answer is complete, not an fd: the recorder has none to spare, since every
supervisor that it forks would have it as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from typing import NoReturn

from harness.agent.journal import write_all
from harness.agent.kernel import close_all_but

#: Far longer than three wake-ups take, far shorter than what anybody notices.
INTERVAL_S = 0.02
#: Room for what a flood of lines writes in an interval; a full pipe would hold up the recorder.
#: What an unprivileged process may ask for: /proc/sys/fs/pipe-max-size.
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # fcntl(2); the module has a name for it from Python 3.10 on
COMPLETE = signal.SIGUSR1


def start_relay(read_end: int, out_fd: int) -> int:
    """Fork a relay from a pipe to ``out_fd``, and return its pid; both fds stay the caller's.

    It ends when all writers are gone, or ``out_fd`` is closed at the far end; the caller reaps it.
    """
    with contextlib.suppress(OSError):  # the user's pipes are over their limit: it is slower then
        fcntl.fcntl(read_end, _F_SETPIPE_SZ, _PIPE_BYTES)
    # Blocked before the fork: one that comes early stays pending until it is waited for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {COMPLETE})
    pid = os.fork()
    if pid == 0:
        close_all_but({2, read_end, out_fd})
        _relay(read_end, out_fd)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _relay(read_end: int, out_fd: int) -> NoReturn:
    try:
        os.set_blocking(read_end, False)
        poll = select.poll()
        poll.register(read_end, select.POLLIN)
        while True:
            poll.poll()
            signal.sigtimedwait({COMPLETE}, INTERVAL_S)
            if not _hand_on(read_end, out_fd):
                break
    except OSError:
        pass  # nobody listens any more: the recorder will hear of it in its next write
    finally:
        os._exit(0)


def _hand_on(read_end: int, out_fd: int) -> bool:
    """Hand on what there is; False when there will be no more."""
    while True:
        try:
            data = os.read(read_end, _PIPE_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        write_all(out_fd, data)
