"""Thin wrappers round the Linux calls that Python's standard library lacks.

One function per call, integers in and out, ``OSError`` with the kernel's errno on failure. This
module decides nothing and keeps no state beyond one loaded C library; what a result means is said
in ``procfs``, ``locks`` and ``facts``.

The calls are usable between ``fork`` and ``exec``: none of them starts a thread or takes a lock
that another thread of the forking process could hold, apart from the GIL.

Only 64-bit Linux is supported: ``struct flock`` is packed for it, and the system call numbers used
here are those above 423, which are the same on every architecture (kernel source, syscall.tbl).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import termios

# Neither typing nor array (which imports collections.abc) here: of what a process has in memory,
# each of its forks takes a copy.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
# For the call from which two processes return: another thread must not have the GIL then.
_LIBC_WITH_GIL = ctypes.PyDLL(None, use_errno=True)
_LIBC_WITH_GIL.syscall.restype = ctypes.c_long

_SYS_PIDFD_SEND_SIGNAL = 424
_SYS_PIDFD_OPEN = 434
_SYS_CLONE3 = 435
_SYS_CLOSE_RANGE = 436

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PR_SET_NO_NEW_PRIVS = 38

#: Wait for children whatever signal their end is told with (wait(2)); os has no name for it.
WALL = 0x40000000
CLONE_PARENT = 0x00008000
CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# _IO(0xb7, 1) of linux/nsfs.h as encoded on x86, arm and riscv.
_NS_GET_USERNS = 0xB701
_NS_GET_PARENT = 0xB702

MS_REC = 0x4000
MS_PRIVATE = 0x40000

# linux/inotify.h
IN_ACCESS = 0x00000001
IN_MODIFY = 0x00000002
IN_ATTRIB = 0x00000004
IN_CLOSE_WRITE = 0x00000008
IN_CLOSE_NOWRITE = 0x00000010
IN_OPEN = 0x00000020
IN_MOVED_FROM = 0x00000040
IN_MOVED_TO = 0x00000080
IN_CREATE = 0x00000100
IN_DELETE = 0x00000200
IN_DELETE_SELF = 0x00000400
IN_MOVE_SELF = 0x00000800
IN_Q_OVERFLOW = 0x00004000
IN_IGNORED = 0x00008000
IN_ISDIR = 0x40000000
IN_ONESHOT = 0x80000000

# fcntl commands which Python names only from 3.9 or 3.10 on, or only when the headers had them.
F_OFD_GETLK = 36
F_OFD_SETLK = 37
F_OFD_SETLKW = 38
_F_SETPIPE_SZ = 1031
_F_GETPIPE_SZ = 1032

_CLOSE_RANGE_CLOEXEC = 4

# struct flock on 64-bit: l_type, l_whence, 4 bytes of padding, l_start, l_len, l_pid, padding.
_FLOCK = struct.Struct("@hhqqi4x")
# struct clone_args of linux/sched.h, version 0: flags, pidfd, child_tid, parent_tid, exit_signal,
# stack, stack_size, tls.
_CLONE_ARGS = struct.Struct("@8Q")
_INT = struct.Struct("@i")
_INOTIFY_EVENT = struct.Struct("@iIII")


def _fail(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")


def _syscall(call: str, number: int, *args: int) -> int:
    result: int = _LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in args))
    if result < 0:
        raise _fail(call)
    return result


def _prctl(call: str, option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise _fail(call)


def _prctl_read(call: str, option: int) -> int:
    value = ctypes.c_int(0)
    if _LIBC.prctl(option, ctypes.byref(value), 0, 0, 0) != 0:
        raise _fail(call)
    return value.value


def set_child_subreaper(enabled: bool = True) -> None:
    """Make orphaned descendants of this process its own children (PR_SET_CHILD_SUBREAPER).

    The attribute belongs to the process, is not inherited by its children and survives exec
    (prctl(2)), so a recorder must set it before it starts anything.
    """
    _prctl("prctl(PR_SET_CHILD_SUBREAPER)", _PR_SET_CHILD_SUBREAPER, int(enabled))


def child_subreaper() -> bool:
    """Say whether this process is a child subreaper."""
    return _prctl_read("prctl(PR_GET_CHILD_SUBREAPER)", _PR_GET_CHILD_SUBREAPER) != 0


def set_parent_death_signal(signum: int) -> None:
    """Ask for ``signum`` when the *thread* that created this process ends; 0 clears it.

    The parent may be gone already when this is called, and then no signal comes: compare
    ``os.getppid()`` with the expected parent afterwards. Cleared by fork for the child, and by
    exec of a set-user-ID program (PR_SET_PDEATHSIG(2const)).
    """
    _prctl("prctl(PR_SET_PDEATHSIG)", _PR_SET_PDEATHSIG, signum)


def parent_death_signal() -> int:
    """Return the signal set by ``set_parent_death_signal``, 0 for none."""
    return _prctl_read("prctl(PR_GET_PDEATHSIG)", _PR_GET_PDEATHSIG)


def set_no_new_privileges() -> None:
    """Set the no_new_privs attribute, which can never be taken back (PR_SET_NO_NEW_PRIVS)."""
    _prctl("prctl(PR_SET_NO_NEW_PRIVS)", _PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(enabled: bool) -> None:
    """Set whether others of this uid may inspect this process (PR_SET_DUMPABLE).

    A change of uid clears it, and then /proc/PID belongs to root until exec.
    """
    _prctl("prctl(PR_SET_DUMPABLE)", _PR_SET_DUMPABLE, int(enabled))


def clone(flags: int = 0) -> int:
    """fork(2) with flags: 0 in the new process, its pid in the old one; no signal tells its end.

    So it is waited for only with ``__WALL``.  With ``CLONE_PARENT`` the new process is a sibling,
    and its end is told as that of the calling one.  Only for a process with a single thread: what
    pthread_atfork(3) registered is not called.  OSError ENOSYS before Linux 5.3, or where a seccomp
    filter says so; AttributeError in a Python without the C API of CPython.
    """
    python = ctypes.pythonapi
    before, in_parent, in_child = (
        python.PyOS_BeforeFork, python.PyOS_AfterFork_Parent, python.PyOS_AfterFork_Child
    )  # fmt: skip
    arguments = ctypes.create_string_buffer(_CLONE_ARGS.pack(flags, 0, 0, 0, 0, 0, 0, 0))
    before()
    pid: int = _LIBC_WITH_GIL.syscall(_SYS_CLONE3, arguments, _CLONE_ARGS.size)
    code = ctypes.get_errno()
    if pid == 0:
        in_child()
        return 0
    in_parent()
    if pid < 0:
        raise OSError(code, f"clone3: {os.strerror(code)}")
    return pid


def pidfd_open(pid: int) -> int:
    """Open a process fd, which is close-on-exec; the caller closes it.

    It becomes readable when the process ends, before anyone has reaped it. ``OSError`` ESRCH when
    there is no such process, ENOSYS before Linux 5.3 (pidfd_open(2)).
    """
    # Python has it from 3.9 on, where it was built with headers that have it.
    opened = getattr(os, "pidfd_open", None)
    fd: int = opened(pid) if opened else _syscall("pidfd_open", _SYS_PIDFD_OPEN, pid, 0)
    return fd


def pidfd_send_signal(pidfd: int, signum: int) -> None:
    """Signal exactly the process behind ``pidfd``; a reused pid cannot be hit.

    ``signum`` 0 only checks. ``OSError`` ESRCH when the process has been reaped: a zombie still
    accepts signals and ignores them (pidfd_send_signal(2), Linux 5.1).
    """
    _syscall("pidfd_send_signal", _SYS_PIDFD_SEND_SIGNAL, pidfd, signum, 0, 0)


def setns(fd: int, nstype: int = 0) -> None:
    """Move this thread into the namespace behind ``fd``, or those of a pidfd by bit mask.

    EINVAL from a process with several threads when a user namespace is asked for (setns(2)).
    """
    if _LIBC.setns(fd, nstype) != 0:
        raise _fail("setns")


def unshare(flags: int) -> None:
    """Move this thread into new namespaces (unshare(2)); EPERM, ENOSPC, EUSERS as found there."""
    if _LIBC.unshare(flags) != 0:
        raise _fail("unshare")


def mount(source: str, target: str, fstype: str, flags: int = 0) -> None:
    """Call mount(2) without data; ``fstype`` may be empty for a change of propagation."""
    result = _LIBC.mount(
        os.fsencode(source), os.fsencode(target), os.fsencode(fstype), ctypes.c_ulong(flags), None
    )
    if result != 0:
        raise _fail("mount")


def owner_user_namespace(ns_fd: int) -> int:
    """Open the user namespace that owns the namespace behind ``ns_fd`` (NS_GET_USERNS).

    The result is close-on-exec and is closed by the caller. EPERM when the owner is outside the
    caller's own user namespace (ioctl_nsfs(2)).
    """
    return fcntl.ioctl(ns_fd, _NS_GET_USERNS)


def parent_namespace(ns_fd: int) -> int:
    """Open the parent of a user or pid namespace (NS_GET_PARENT); the caller closes the fd."""
    return fcntl.ioctl(ns_fd, _NS_GET_PARENT)


def inotify_init() -> int:
    """Open a non-blocking, close-on-exec inotify fd; the caller closes it."""
    fd: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise _fail("inotify_init1")
    return fd


def inotify_add_watch(fd: int, path: str, mask: int) -> int:
    """Watch ``path`` for the ``IN_*`` bits in ``mask``; return the watch descriptor."""
    watch: int = _LIBC.inotify_add_watch(fd, os.fsencode(path), ctypes.c_uint32(mask))
    if watch < 0:
        raise _fail("inotify_add_watch")
    return watch


def parse_inotify(data: bytes) -> list[tuple[int, str]]:
    """Split what was read from an inotify fd into (mask, name), in the order of the queue.

    ``name`` is empty for an event on the watched object itself. The kernel gives whole events
    only (inotify(7)), so a short tail is an error: ``ValueError``.
    """
    events: list[tuple[int, str]] = []
    offset = 0
    while offset < len(data):
        if offset + _INOTIFY_EVENT.size > len(data):
            raise ValueError(f"truncated inotify event at byte {offset} of {len(data)}")
        _, mask, _, length = _INOTIFY_EVENT.unpack_from(data, offset)
        offset += _INOTIFY_EVENT.size
        if offset + length > len(data):
            raise ValueError(f"truncated inotify name at byte {offset} of {len(data)}")
        name = data[offset : offset + length].split(b"\0", 1)[0]
        events.append((mask, os.fsdecode(name)))
        offset += length
    return events


_LOCK_TYPES = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "unlock": fcntl.F_UNLCK}
_LOCK_NAMES = {value: name for name, value in _LOCK_TYPES.items()}


def pack_flock(kind: str, *, start: int = 0, length: int = 0) -> bytes:
    """Pack a ``struct flock`` counted from the start of the file; ``length`` 0 is to its end.

    ``kind`` is ``"read"``, ``"write"`` or ``"unlock"``. l_pid stays 0, as the F_OFD commands
    demand (fcntl_locking(2)).
    """
    return _FLOCK.pack(_LOCK_TYPES[kind], os.SEEK_SET, start, length, 0)


def _lock_holder(fd: int, command: int, kind: str) -> tuple[str, int] | None:
    answer = fcntl.fcntl(fd, command, pack_flock(kind))
    lock_type, _, _, _, pid = _FLOCK.unpack(answer)
    name = _LOCK_NAMES[lock_type]
    return None if name == "unlock" else (name, pid)


def posix_lock_holder(fd: int, kind: str = "write") -> tuple[str, int] | None:
    """Ask which lock would refuse a POSIX lock of ``kind`` on the whole file; None for none.

    Else its kind, ``"read"`` or ``"write"``, and its pid in this process's pid namespace: 0 when
    the holder is not visible in it, and -1 when the lock belongs to an open file description and
    so to no process (fcntl_locking(2)).

    F_GETLK places nothing. It never reports a lock of this same process, and it names the first
    obstacle only. ``kind`` ``"write"`` sees every lock, ``"read"`` only write locks.
    """
    return _lock_holder(fd, fcntl.F_GETLK, kind)


def ofd_lock_holder(fd: int, kind: str = "write") -> tuple[str, int] | None:
    """The same question on behalf of the open file description of ``fd`` (F_OFD_GETLK).

    It does report POSIX locks of this same process, which ``posix_lock_holder`` cannot see.
    """
    return _lock_holder(fd, F_OFD_GETLK, kind)


def close_range(first: int, last: int, *, cloexec: bool = False) -> None:
    """Close every fd in ``first``..``last`` (inclusive), or mark them close-on-exec.

    Falls back to one call per open fd where the kernel has no close_range(2) (5.9; 5.11 for
    ``cloexec``) or a seccomp filter refuses it.
    """
    flags = _CLOSE_RANGE_CLOEXEC if cloexec else 0
    try:
        _syscall("close_range", _SYS_CLOSE_RANGE, first, min(last, 0x7FFFFFFF), flags)
        return
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM) or first > last:
            raise
    # The listing's own fd is among the names and is closed by now; EBADF is expected for it.
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if first <= fd <= last:
            try:
                os.set_inheritable(fd, False) if cloexec else os.close(fd)
            except OSError as problem:
                if problem.errno != errno.EBADF:
                    raise


def close_all_but(keep: set[int]) -> None:
    """Close every fd that is not in ``keep``: a forked process holds only what is its own."""
    first = 0
    for fd in sorted(keep):
        if fd > first:
            close_range(first, fd - 1)
        first = fd + 1
    close_range(first, 2**31 - 1)


def pipe_size(fd: int) -> int:
    """Return the capacity of a pipe in bytes (F_GETPIPE_SZ)."""
    return fcntl.fcntl(fd, _F_GETPIPE_SZ)


def set_pipe_size(fd: int, size: int) -> int:
    """Set the capacity of a pipe; return what the kernel rounded it up to, in bytes.

    EBUSY when it holds more than ``size`` already, EPERM above /proc/sys/fs/pipe-max-size.
    """
    return fcntl.fcntl(fd, _F_SETPIPE_SZ, size)


def unread_bytes(fd: int) -> int:
    """Return how many bytes a read from a pipe or socket would find now (FIONREAD)."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, _INT.pack(0))
    found: int = _INT.unpack(answer)[0]
    return found


#: signal(2): the dispositions that survive an exec.
SIG_DFL = 0
SIG_IGN = 1
_LIBC.signal.restype = ctypes.c_void_p
_LIBC.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)


def set_disposition(signum: int, disposition: int) -> int:
    """Set a signal's disposition behind Python's back and return the old one, for any thread.

    Python's own ``signal.signal`` refuses to work outside of the main thread, although the
    disposition belongs to the whole process (signal(7)).
    """
    old = _LIBC.signal(signum, disposition)
    if old is not None and old == ctypes.c_void_p(-1).value:
        raise _fail("signal")
    return old or SIG_DFL
