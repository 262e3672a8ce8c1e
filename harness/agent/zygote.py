"""A small process from which supervisors are forked.

What a fork costs is what the process has in memory, twice: each page that either side writes to
afterwards is copied, and Python writes to whatever it looks at.  So supervisors are not forked from
the recorder, which knows a lot and looks at all of it, but from a process that has next to nothing;
and each is forked before it is needed, in the time between two recordings.

Supervisors are children of the recorder all the same (CLONE_PARENT): it can wait for them, and
adopts what they leave.  No signal tells their end, nor that of the zygote, which is a child of the
recorder as well: so waitpid(2) without ``__WALL`` does not know of them, and still tells when there
is nobody else.
"""

from __future__ import annotations

import _socket
import errno
import gc
import os

from harness.agent import kernel
from harness.agent.scripted import become_supervisor
from harness.agent.talk import hear, pair, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Zygote:
    """The recorder's side.  ``pids`` are children of the recorder that are in no recording."""

    def __init__(self, pid: int, sock: _socket.socket) -> None:
        self.pids = {pid}
        self._sock = sock
        self._is_asked = False
        self._next: tuple[int, _socket.socket] | None = None

    @property
    def fds(self) -> int:
        """How many fds of the recorder's are open for it, between recordings."""
        return 1 if self._next is None else 2

    def prepare(self) -> None:
        """Have the next supervisor forked, without waiting for it; ``fetch`` tells what came of it.

        In the middle of something else, so no fault is raised here.
        """
        if not self._is_asked and self._next is None:
            self._is_asked = True
            try:  # noqa: SIM105  contextlib is large
                say(self._sock, {})
            except OSError:
                pass  # it is gone, and hear will tell

    def fetch(self) -> None:
        """Wait for the supervisor that was asked for: from now on ``pids`` are complete.

        OSError when it could not be forked, ESRCH when there is nobody left to do it.
        """
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            answer, fds = hear(self._sock)
        except ConnectionResetError:  # it was killed with a message of ours unread
            answer, fds = None, []
        if answer is None:
            raise OSError(errno.ESRCH, "the process that forks supervisors is gone")
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"])
        self._next = answer["pid"], _socket.socket(fileno=fds[0])
        self.pids.add(answer["pid"])

    def take(self) -> tuple[int, _socket.socket]:
        """A supervisor's pid, and the socket to tell it what to become; both the caller's now."""
        self.prepare()
        self.fetch()
        assert self._next is not None
        (pid, sock), self._next = self._next, None
        self.pids.remove(pid)
        return pid, sock


def start_zygote() -> Zygote | None:
    """Start one, as a child of this process; None where such a process cannot be made."""
    ours, theirs = pair()
    try:
        pid = kernel.clone()
    except (OSError, AttributeError):
        ours.close()
        theirs.close()
        return None
    if pid == 0:
        kernel.close_all_but({0, 1, 2, theirs.fileno()})
        _serve(theirs)
    theirs.close()
    return Zygote(pid, ours)


def _serve(sock: _socket.socket) -> NoReturn:
    try:
        os.dup2(2, 1)  # the timeline's own fd is the recorder's alone
        gc.collect()
        gc.freeze()
        gc.disable()  # looking through pages means copying them
        while hear(sock)[0] is not None:
            ours, theirs = pair()
            try:
                pid = kernel.clone(kernel.CLONE_PARENT)
            except OSError as fault:
                say(sock, {"errno": fault.errno, "strerror": fault.strerror})
            else:
                if pid == 0:
                    sock.close()
                    ours.close()
                    become_supervisor(theirs)
                say(sock, {"pid": pid}, (ours.fileno(),))
            ours.close()
            theirs.close()
    finally:
        os._exit(0)
