"""Processes and descriptors with one owner: spawn by fork, hold by pidfd, reap exactly once.

A pid is a name that the kernel reuses; a pidfd is the process.  Everything here that signals does
so through a pidfd.  This module knows nothing of bwrap.  Read ``supervisor`` next.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import shutil
import signal
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

from harness.supervise.errors import LaunchRefused, LostTrack, ProgramMissing, SuperviseError
from harness.supervise.outcome import ExitStatus

__all__ = [
    "Process",
    "children_of",
    "close_all_but",
    "close_fds",
    "find_program",
    "fork_with_signals_blocked",
    "holders_of_pipe",
    "parent_of",
    "pipe",
    "spawn",
    "wait_readable",
]

# Loaded with the module: whoever drops privileges before a launch may not be able to read the
# standard library any more.
try:
    import ctypes
except ImportError:  # Some images leave libffi out.
    _prctl: Callable[..., int] | None = None
else:
    _prctl = ctypes.CDLL(None).prctl

# catch_warnings saves and restores what all threads share; two runs must not interleave in it.
# A child inherits it locked and never takes it.
_filters_lock = threading.Lock()

_PR_SET_PDEATHSIG = 1
# Python ignores SIGPIPE and SIGXFSZ for itself; a command that inherits that misses its own death.
# SIGCHLD ignored makes bwrap before 0.11.1 wait for ever (containers/bubblewrap #705).
_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


class Process:
    """A process held by pidfd; the object owns ``pidfd`` until ``close``.

    ``exit`` is set once the process was reaped by this object.  A process that is not our child
    (the sandbox's pid 1 while bwrap lives) is watched and signalled the same way, never reaped.
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.exit: ExitStatus | None = None

    @classmethod
    def open(cls, pid: int) -> Process | None:
        """Hold process ``pid`` of the caller's pid namespace, or return None when it is gone."""
        try:
            return cls(pid, os.pidfd_open(pid))
        except ProcessLookupError:
            return None

    @classmethod
    def of_child(cls, pid: int) -> Process:
        """Hold our own child, just forked.  Kills it when no descriptor is left to hold it by."""
        try:
            return cls(pid, os.pidfd_open(pid))
        except OSError:
            os.kill(pid, signal.SIGKILL)  # Unreaped, so the number cannot have been reused.
            os.waitpid(pid, 0)
            raise

    def ended(self) -> bool:
        """Tell, without waiting, whether the process is dead (a zombie counts as dead)."""
        return self.pidfd < 0 or wait_readable([self.pidfd], 0.0) != []

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; a process that is already gone is no error."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> ExitStatus | None:
        """Reap our own child if it has ended, without waiting; return ``exit``.

        Raises LostTrack when the status is gone because something else reaped the child.
        """
        if self.exit is None and self.pidfd >= 0:
            try:
                info = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
            except ChildProcessError as error:
                raise LostTrack(
                    f"expected process {self.pid} to be an unreaped child, but its exit status is "
                    "gone; do not call waitpid(-1) or ignore SIGCHLD while supervise() runs"
                ) from error
            if info is not None:
                ended = info.si_code == os.CLD_EXITED
                self.exit = ExitStatus(
                    code=info.si_status if ended else None,
                    signal=None if ended else info.si_status,
                )
        return self.exit

    def reap_if_inherited(self) -> None:
        """Reap a dead orphan that became our child because we are its subreaper (or its init).

        Once its parent is a zombie, the kernel has already chosen the new parent (exit_notify), so
        after reaping bwrap the answer "not our child" is final.  containers/bubblewrap #697.
        """
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)

    def close(self) -> None:
        """Close the pidfd; may be called twice."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def wait_readable(fds: Iterable[int], timeout_s: float | None) -> list[int]:
    """Wait until one of ``fds`` is readable, hung up or in error; return those that are.

    ``timeout_s`` 0 asks and returns, None waits without limit.  A pidfd is readable when the
    process has ended (pidfd_open(2)).
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout_s is None else _milliseconds(timeout_s))]


def _milliseconds(seconds: float) -> int:
    # Rounded up: rounding down would spin through the last millisecond before a deadline.
    return max(0, -int(-seconds * 1000 // 1))


def pipe() -> tuple[int, int]:
    """Return a close-on-exec pipe ``(read end, write end)``, both above 2.

    A caller with stdin closed would otherwise get descriptor 0 here, and the child's stdio would
    be laid over it.
    """
    ends = os.pipe()
    moved = []
    try:
        for end in ends:
            moved.append(end if end > 2 else fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))
    except OSError:
        close_fds([*ends, *moved])
        raise
    close_fds([end for end in ends if end <= 2])
    return moved[0], moved[1]


def close_fds(fds: Iterable[int]) -> None:
    """Close each descriptor once; negative numbers and numbers already closed are no error."""
    for fd in set(fds):
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def find_program(name: str) -> str:
    """Return the path of an executable: ``name`` itself when it has a slash, else from PATH.

    Raises ProgramMissing.
    """
    found = shutil.which(name)
    if found is None:
        where = "as an executable file" if "/" in name else "on PATH"
        raise ProgramMissing(f"expected {name!r} {where}; install it or give its full path")
    return os.path.abspath(found)


def parent_of(pid: int) -> int | None:
    """Return the parent of ``pid`` as /proc tells it, or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold spaces and parentheses; the fields start after the last one.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def children_of(pid: int) -> list[int]:
    """Return the children of every thread of ``pid`` (proc(5), /proc/PID/task/TID/children).

    The list is dependable only while the process is stopped; empty when it is gone.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(each) for each in file.read().split()]
    return found


def holders_of_pipe(fd: int, *, program: str) -> list[Process]:
    """Return the other processes that hold ``fd``'s pipe open and run the file ``program``.

    The pipe is private to one launch, so nothing is looked up by name; the second condition spares
    a process that another thread of the caller forked meanwhile.  The caller owns the pidfds.
    """
    wanted = os.fstat(fd)
    binary = os.stat(program)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        # The pidfd comes first: what is then read belongs to it, or the signal goes nowhere.
        process = Process.open(int(entry))
        if process is None:
            continue
        if _runs(entry, binary) and _holds(entry, wanted) and not process.ended():
            found.append(process)
        else:
            process.close()
    return found


def _runs(pid: str, binary: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/exe"), binary)
    except OSError:
        return False


def _holds(pid: str, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), wanted):
                    return True
    return False


def spawn(
    argv: Sequence[str],
    *,
    program: str,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdio: Sequence[int | None] = (None, None, None),
    pass_fds: Iterable[int] = (),
    parent_death_signal: bool = True,
) -> Process:
    """Fork and execute ``program`` with exactly the declared descriptors; return it by pidfd.

    ``stdio`` holds three descriptors, None keeps the caller's own.  ``pass_fds`` keep their
    numbers (all above 2); every other descriptor is closed, whatever its close-on-exec flag,
    because one stray write end takes every EOF away from the supervisor (WebKit #4094) and every
    stray descriptor is usable in the sandbox.  The caller keeps owning all of them.

    The child starts with an empty signal mask, and SIGCHLD, SIGPIPE and SIGXFSZ at their
    defaults.  With ``parent_death_signal`` the kernel kills it when the *thread* that called this
    ends (prctl(2), PR_SET_PDEATHSIG); a set-user-id program clears it.

    Raises ProgramMissing when the exec fails, SuperviseError when a step before it does.
    """
    if parent_death_signal and _prctl is None:
        raise LaunchRefused(
            "parent_death_signal needs the ctypes module, which this Python lacks; "
            "set parent_death_signal=False"
        )
    keep = sorted(set(pass_fds))
    error_read, error_write = pipe()
    parent = os.getpid()
    try:
        pid = fork_with_signals_blocked()
        if pid == 0:
            step = "prepare"
            try:
                gc.disable()  # A finalizer of the parent's objects must not act twice.
                if parent_death_signal and _prctl is not None:
                    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(127)  # The parent died before the death signal was set.
                _arrange_child(stdio, keep, error_write, cwd)
                step = "execute"
                os.execve(program, list(argv), dict(env))
            except BaseException as error:
                os.write(error_write, f"{step} {error}".encode("utf-8", "replace")[:512])
            finally:
                os._exit(127)
    except BaseException:
        close_fds([error_read, error_write])
        raise
    return _started(pid, program, error_read, error_write)


def fork_with_signals_blocked() -> int:
    """Fork; return 0 in the child, where every signal is blocked, and the pid in the parent.

    The child carries our Python signal handlers: a SIGTERM to the group would run them twice.  It
    may unblock once they are gone.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        # Python 3.12 warns about fork in a process with threads.  Our children only make system
        # calls that take no lock which another thread can hold.
        with _filters_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor of this process, whatever its close-on-exec flag."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # The listing's own descriptor.
                os.close(int(name))


def _arrange_child(
    stdio: Sequence[int | None], keep: Sequence[int], error_fd: int, cwd: str | None
) -> None:
    signal.set_wakeup_fd(-1)
    for each in signal.valid_signals():
        if each in _RESET_SIGNALS or callable(signal.getsignal(each)):
            with contextlib.suppress(OSError, ValueError):  # KILL, STOP, libc's own.
                signal.signal(each, signal.SIG_DFL)
    # Copied out of the way first: stdout=0, stdin=1 must swap, not collapse.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in stdio if fd is not None]
    for number, fd in enumerate(stdio):
        if fd is not None:
            os.dup2(copies.pop(0), number, inheritable=True)
    for fd in keep:
        os.set_inheritable(fd, True)
    close_all_but({0, 1, 2, error_fd, *keep})
    if cwd is not None:
        os.chdir(cwd)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _started(pid: int, program: str, error_read: int, error_write: int) -> Process:
    message = b""
    try:
        process = Process.of_child(pid)
        os.close(error_write)
        error_write = -1
        # EOF is the exec itself: the write end is close-on-exec.
        while chunk := os.read(error_read, 1024):
            message += chunk
    finally:
        close_fds([error_read, error_write])
    if not message:
        return process
    wait_readable([process.pidfd], None)
    process.reap()
    process.close()
    step, _, text = message.decode("utf-8", "replace").partition(" ")
    if step == "execute":
        raise ProgramMissing(f"could not execute {program}: {text}")
    raise SuperviseError(f"could not prepare the start of {program}: {text}")
