"""Starting bwrap as a supervisor would: its fds and dispositions, from the thread that calls.

``start_bwrap`` executes from whatever thread calls it, because the thread matters: the parent-death
signal of ``--die-with-parent`` is tied to the thread that forked, not to the process (prctl(2),
PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import _signal
import fcntl
import os
import termios

from harness.agent import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Sources of fds are moved up here before they are put on their numbers, so that putting one in
#: place never overwrites the source of the next.
PARKED_FD = 300


def open_session(terminal_fd: int) -> None:
    """A session of the supervisor's own, with its controlling terminal if there is one.

    So that a signal to a process group never reaches the recorder, and ^C has a group to reach.
    """
    os.setsid()
    if terminal_fd < 0:
        return
    # The controlling one of this session (tty_ioctl(4), TIOCSCTTY).
    fcntl.ioctl(terminal_fd, termios.TIOCSCTTY, 0)
    # ^C is for bwrap and its command; a handler, unlike SIG_IGN, is not inherited by exec.
    for number in (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGHUP):
        _signal.signal(number, lambda *_: None)


def drop_identity(uid: int, gid: int) -> None:
    """Become an unprivileged user for good; a no-op when already that user.

    A process that changed its uid is not dumpable, and then its own /proc entries belong to root:
    a provider of the same user could not open ``/proc/SUPERVISOR/fd/N`` (prctl(2),
    PR_SET_DUMPABLE).
    """
    if os.getuid() == uid:
        return
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)


def start_bwrap(launch: dict[str, Any]) -> int:
    """Start what ``harness.agent.launch.launch_order`` says; return its pid once it executes.

    posix_spawn(3), since a fork of a Python process costs half as much as all that bwrap does; the
    parent of the new process, for its parent-death signal, is the calling thread just the same.
    The fds stay the caller's.  OSError with the errno of execve when that failed.
    """
    parked = {
        number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PARKED_FD)
        for number, fd in launch["fds"].items()
    }
    actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in parked.items()]
    if 0 not in parked:
        actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
    options: dict[str, Any] = {}
    if launch["session"] == "own-session":
        options["setsid"] = True
    elif launch["session"] == "own-group":
        options["setpgroup"] = 0
    # There is no "ignore" among spawn's attributes: it is inherited.  Only system calls here, no
    # signal module: that one refuses to work outside of the main thread.
    before = [
        (number, kernel.set_disposition(number, kernel.SIG_IGN)) for number in launch["ignored"]
    ]
    try:
        return os.posix_spawn(
            launch["argv"][0],
            launch["argv"],
            launch["environment"],
            file_actions=actions,
            setsigdef=launch["defaults"],
            setsigmask=launch["blocked"],
            **options,
        )
    finally:
        for number, old in before:
            kernel.set_disposition(number, old)
        for fd in parked.values():
            os.close(fd)
