"""A bwrap without some of the known deviations: it looks first, and then becomes the real one.

Runs as a program of its own, by whatever Python the scenarios' user can execute; ``@REAL@`` is the
real bwrap.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys

REAL = "@REAL@"


def values(option: str) -> list[str]:
    """What follows each option of this name."""
    words = sys.argv[1:]
    return [words[n + 1] for n, word in enumerate(words[:-1]) if word == option]


def refuse(text: str) -> None:
    """Fail as bwrap does, having said that there was a child."""
    for fd in values("--json-status-fd"):
        os.write(int(fd), b'{ "child-pid": 1 }\n')
    sys.stderr.write(f"bwrap: {text}\n")
    sys.stderr.flush()
    os._exit(1)


def look_at_fds() -> None:
    """A number on which nothing is open is refused, and so is one whose reader is gone."""
    for option in ("--info-fd", "--json-status-fd", "--block-fd"):
        for fd in map(int, values(option)):
            try:
                os.fstat(fd)
            except OSError:
                refuse_quietly(f"{option} {fd}: Bad file descriptor")
            poll = select.poll()
            poll.register(fd, 0)
            if option != "--block-fd" and dict(poll.poll(0)).get(fd, 0) & select.POLLERR:
                refuse_quietly(f"{option} {fd}: Broken pipe")


def refuse_quietly(text: str) -> None:
    """Fail as bwrap does."""
    sys.stderr.write(f"bwrap: {text}\n")
    sys.stderr.flush()
    os._exit(1)


def look_at_locks() -> None:
    """A lock that cannot be had is refused before anything runs; it is had again by bwrap."""
    for path in values("--lock-file"):
        try:
            fd = os.open(path, os.O_RDONLY)
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.close(fd)
        except OSError as fault:
            refuse(f"{path}: {fault.strerror}")


def look_at_gate() -> None:
    """A gate whose far end is gone already, with nothing in it, is refused."""
    for fd in map(int, values("--block-fd")):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if dict(poll.poll(0)).get(fd, 0) == select.POLLHUP:
            refuse_quietly(f"--block-fd {fd}: end of file")


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    look_at_fds()
    look_at_locks()
    look_at_gate()
    os.execv(REAL, [REAL, *sys.argv[1:]])
