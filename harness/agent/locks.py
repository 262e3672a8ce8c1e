"""Who holds which lock on a file, who would be refused one, and how to hold one.

Three interfaces, two families: POSIX record locks (``fcntl``) belong to a process, OFD locks
(``ofd``) to an open file description, and these two exclude each other; BSD locks (``flock``)
belong to an open file description and know nothing of the other two on local file systems
(fcntl_locking(2), flock(2)). ``bwrap --lock-file`` takes a ``fcntl`` read lock.

The trap that shapes this module: when a process closes *any* fd of a file, it loses *all* of its
own POSIX locks on that file. So nothing here closes a real fd of a file that this process holds a
POSIX lock on; paths are identified through O_PATH fds, which do not have that effect.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple

from harness.agent import kernel, procfs

_APIS = {"POSIX": "fcntl", "OFDLCK": "ofd", "FLOCK": "flock"}
_KINDS = ("read", "write")


class Lock(NamedTuple):
    """One line of /proc/locks (proc_locks(5)).

    ``api`` is ``"fcntl"``, ``"ofd"``, ``"flock"``, or another type in lower case (``"lease"``).
    ``kind`` is ``"read"`` or ``"write"``. ``pid`` is in the pid namespace of the /proc that was
    read, and None for an OFD lock, which has no process. ``end`` is the last byte locked, None
    for the end of the file. ``waiting`` is true for one who asks and is not granted it.
    """

    api: str
    kind: str
    pid: int | None
    major: int
    minor: int
    inode: int
    start: int
    end: int | None
    waiting: bool


def parse_locks(data: bytes) -> list[Lock]:
    """Parse the bytes of /proc/locks, keeping its order; lines without an inode are left out."""
    found: list[Lock] = []
    for line in data.splitlines():
        words = line.decode("ascii").split()
        waiting = len(words) > 1 and words[1] == "->"
        if waiting:
            del words[1]
        if len(words) != 8 or words[5].count(":") != 2:
            continue
        api, kind, pid = words[1], words[3].lower(), int(words[4])
        major, minor, inode = words[5].split(":")
        found.append(
            Lock(
                _APIS.get(api, api.lower()),
                kind,
                pid if pid > 0 else None,
                int(major, 16),
                int(minor, 16),
                int(inode),
                int(words[6]),
                None if words[7] == "EOF" else int(words[7]),
                waiting,
            )
        )
    return found


def all_locks() -> list[Lock]:
    """Read every lock that the reader may see.

    A POSIX or BSD lock whose holder has no pid in the pid namespace of the mounted /proc is not
    listed at all, while OFD locks always are (measured on kernel 6.18): read it from outside a
    sandbox, never from within. Empty when there is no /proc/locks (CONFIG_FILE_LOCKING).
    """
    data = procfs.read_bytes("/proc/locks")
    return [] if data is None else parse_locks(data)


def _devices(path: str) -> tuple[os.stat_result, set[tuple[int, int]]]:
    """Stat a path and name the devices under which the kernel may list its locks.

    /proc/locks prints the superblock's device, which on btrfs and overlayfs is not the one that
    stat gives; the mount table has it.
    """
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        info = procfs.fdinfo(os.getpid(), fd)
    finally:
        os.close(fd)
    devices = {(os.major(status.st_dev), os.minor(status.st_dev))}
    if info is not None:
        for line in (procfs.read_bytes("/proc/self/mountinfo") or b"").splitlines():
            words = line.split(b" ", 3)
            if len(words) == 4 and int(words[0]) == info.mnt_id:
                major, _, minor = words[2].partition(b":")
                devices.add((int(major), int(minor)))
    return status, devices


def locks_on(file: str | os.stat_result) -> list[Lock]:
    """List the locks on one file, holders and waiters, all three interfaces.

    ``file`` is a path, or a stat result when the file has gone from its path; the latter can miss
    locks on btrfs and overlayfs. ``OSError`` when the path cannot be found.
    """
    if isinstance(file, str):
        status, devices = _devices(file)
    else:
        status = file
        devices = {(os.major(file.st_dev), os.minor(file.st_dev))}
    return [
        lock
        for lock in all_locks()
        if lock.inode == status.st_ino and (lock.major, lock.minor) in devices
    ]


def _check_kind(kind: str) -> None:
    if kind not in _KINDS:
        raise ValueError(f"a lock is 'read' or 'write', not {kind!r}")


def probe_posix_lock(path: str, kind: str) -> tuple[str, int] | None:
    """Ask who would refuse a POSIX lock of ``kind`` on the whole file; None when it is free.

    Places and removes nothing. Asks on behalf of anyone else: a lock of this process counts as an
    obstacle too. Sees holders in other pid namespaces, whose pid is then 0; the pid of an OFD lock
    is -1. One holder of several is named. BSD locks are never in the way.

    While this process holds a POSIX lock on the file the answer comes from /proc/locks, since
    closing the fd of the question would drop that lock. ``OSError`` when the file cannot be opened
    for reading.
    """
    _check_kind(kind)
    own = os.getpid()
    listed = [lock for lock in locks_on(path) if lock.api in ("fcntl", "ofd") and not lock.waiting]
    if any(lock.api == "fcntl" and lock.pid == own for lock in listed):
        for lock in listed:
            if "write" in (kind, lock.kind):
                return lock.kind, -1 if lock.pid is None else lock.pid
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return kernel.ofd_lock_holder(fd, kind)
    except OSError as problem:
        # Linux before 3.15 and some emulations of it.
        if problem.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        return kernel.posix_lock_holder(fd, kind)
    finally:
        os.close(fd)


def hold(path: str, kind: str, *, api: str = "fcntl", wait: bool = False) -> int:
    """Lock the whole of an existing file; return the close-on-exec fd that holds the lock.

    The lock is held until the caller closes the fd or the process ends; a ``fcntl`` lock also ends
    with the closing of any other fd of the file in this process, and is not inherited by fork,
    while an ``ofd`` or ``flock`` lock is shared with every copy of the fd. Meant for helper
    processes that do nothing else.

    ``BlockingIOError`` when refused and ``wait`` is false; with ``wait`` it blocks, without limit.
    Other ``OSError`` from the opening: ``kind`` ``"write"`` opens for reading and writing.
    """
    _check_kind(kind)
    if api not in _APIS.values():
        raise ValueError(f"a lock is taken with 'fcntl', 'ofd' or 'flock', not {api!r}")
    access = os.O_RDWR if kind == "write" else os.O_RDONLY
    fd = os.open(path, access | os.O_CLOEXEC)
    try:
        if api == "flock":
            operation = fcntl.LOCK_EX if kind == "write" else fcntl.LOCK_SH
            fcntl.flock(fd, operation | (0 if wait else fcntl.LOCK_NB))
        elif api == "ofd":
            command = kernel.F_OFD_SETLKW if wait else kernel.F_OFD_SETLK
            fcntl.fcntl(fd, command, kernel.pack_flock(kind))
        else:
            command = fcntl.F_SETLKW if wait else fcntl.F_SETLK
            fcntl.fcntl(fd, command, kernel.pack_flock(kind))
    except OSError as problem:
        os.close(fd)
        # POSIX allows either errno for "somebody else has it".
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError(errno.EAGAIN, f"{path}: {kind} lock is held") from problem
        raise
    return fd
