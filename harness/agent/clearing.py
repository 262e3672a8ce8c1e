"""Nothing is left: processes ended and reaped, fds closed, folders removed (design law 8)."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import stat
import time
from collections.abc import Collection, Iterator
from typing import Any, Callable

from harness.agent import kernel, procfs

#: How long killed processes may take to be gone when a whole agent ends.
SWEEP_DEADLINE_S = 5.0


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether ``ancestor`` is above ``pid`` in the process tree now."""
    while pid > 1:
        process = procfs.read_process(pid)
        if process is None:
            return False
        pid = process.ppid
        if pid == ancestor:
            return True
    return False


def end_descendants(
    deadline_s: float,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    spared: Collection[int] = (),
    unheard: Collection[int] = (),
) -> tuple[set[int], dict[int, dict[str, Any]], list[str]]:
    """SIGKILL and reap everything below this process, which must be a child-subreaper.

    ``meanwhile`` is called once while the first of them die: taking a process apart takes the
    kernel a millisecond, which another core can use.

    ``spared`` are children that are left alone, ``unheard`` are children whose end no signal tells;
    neither is known to a plain waitpid(2), which says when there is nobody else.

    Returns the pids that were killed, the statuses of those reaped here, and one text for each
    process that is still there at the deadline.  Killing goes on until nobody is left, because a
    dying parent hands its children up to us one generation at a time.
    """
    killed: set[int] = set()
    unheard = set(unheard)
    reaped: dict[int, dict[str, Any]] = {}
    deadline = time.monotonic() + deadline_s
    while True:
        below = procfs.descendants_by_children(os.getpid(), without=spared)
        alive = [p for p in below if p.state not in "ZX"]
        for process in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                killed.add(process.pid)
        meanwhile()
        meanwhile = _nothing
        _await_death(alive, min(deadline - time.monotonic(), 0.05))
        for pid in tuple(unheard):
            if _reap(pid, reaped):
                unheard.remove(pid)
        try:
            while _reap(-1, reaped):
                pass
        except ChildProcessError:
            if not unheard:
                return killed, reaped, []
        if time.monotonic() >= deadline:
            return (
                killed,
                reaped,
                [f"process {p.pid} ({p.comm}) is still there, in state {p.state}" for p in alive],
            )


def _reap(pid: int, reaped: dict[int, dict[str, Any]]) -> bool:
    """Reap a child that has ended; False when none has."""
    found, status = os.waitpid(pid, os.WNOHANG | (kernel.WALL if pid > 0 else 0))
    if found:
        reaped[found] = decode_status(status)
    return bool(found)


def decode_status(status: int) -> dict[str, Any]:
    """A wait status as ``code`` or ``signal`` (its name): never one integer for both."""
    if os.WIFSIGNALED(status):
        return {"signal": procfs.signal_name(os.WTERMSIG(status))[3:]}
    return {"code": os.WEXITSTATUS(status)}


def _nothing() -> None:
    """Done already."""


def _await_death(dying: list[procfs.Process], timeout_s: float) -> None:
    """Wait until one of our own dying children is dead, or the time is over."""
    own = os.getpid()
    for process in dying:
        if process.ppid != own:
            continue
        try:
            pidfd = kernel.pidfd_open(process.pid)
        except OSError:
            return
        try:
            select.select([pidfd], [], [], max(0.0, timeout_s))
        finally:
            os.close(pidfd)
        return


@contextlib.contextmanager
def scratch_directory(base: str, uid: int, gid: int) -> Iterator[str]:
    """An empty directory of the scenario's user, which nobody had under this name before."""
    path = os.path.join(base, f"s{time.monotonic_ns():x}")
    try:
        os.rename(_spare(path, uid, gid), path)
    except FileNotFoundError:
        os.mkdir(path, 0o755)
    try:
        os.chown(path, uid, gid)
        yield path
    finally:
        clear_scratch(path, uid, gid)


def clear_scratch(path: str, uid: int, gid: int) -> None:
    """Remove a scratch directory with all that is in it, or put it by for the next recording.

    Only one that is as it was made is put by.  Making one and removing it takes 0.4 ms on ext4, and
    all the longer the more were removed lately (measured: find_inode_bit in fs/ext4/ialloc.c).
    """
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        made = (stat.S_IFDIR | 0o755, uid, gid)
        is_as_made = (found.st_mode, found.st_uid, found.st_gid) == made
        # An access control list is an extended attribute.
        if is_as_made and not os.listdir(path) and not os.listxattr(path):
            os.rename(path, _spare(path, uid, gid))
            return
    remove_tree(path)


def _spare(path: str, uid: int, gid: int) -> str:
    return os.path.join(os.path.dirname(path), f"spare-{uid}-{gid}")


def remove_tree(path: str) -> None:
    """Remove a directory whose insides a scenario may have made unwritable."""

    tried = set()

    def unlock(_function: object, stuck: str, _info: object) -> None:
        # What cannot be entered or emptied is made so and tried once more.  Never above the tree:
        # its parent is shared with others.
        if stuck in tried:
            return
        tried.add(stuck)
        is_folder = os.path.isdir(stuck) and not os.path.islink(stuck)
        with contextlib.suppress(OSError):
            if stuck != path:
                os.chmod(os.path.dirname(stuck), 0o700)
            if is_folder:
                os.chmod(stuck, 0o700)
                shutil.rmtree(stuck, onerror=unlock)
            else:
                os.unlink(stuck)

    shutil.rmtree(path, onerror=unlock)
