"""What /proc says about processes: identity, family, fds, namespaces, credentials, waiting.

Nothing here changes a process and nothing is looked up by name. A process that has gone is an
answer (``None``, or an empty list), never an exception; so is a file that may not be read, and the
two differ only where a caller must tell them apart. All of it is a snapshot: by the time a function
returns, the process may be in another state, or be another process with the same pid, which is
what ``exists`` is for.

Sources: proc_pid_stat(5), proc_pid_status(5), proc_pid_fdinfo(5) and their siblings, and the
kernel's Documentation/filesystems/proc.rst. Files are read with plain system calls and parsed as
bytes, since a recording reads hundreds of them within milliseconds.

Longer than most modules on purpose: it is one format, read in one way.

Who may read what. PID/stat, PID/status, PID/cmdline and PID/uid_map are open to everybody
(unless /proc is mounted with ``hidepid``). PID/fd, PID/ns, PID/exe, PID/environ and PID/wchan need
PTRACE_MODE_READ, and PID/syscall needs PTRACE_MODE_ATTACH (ptrace(2), "Ptrace access mode
checking"): the reader's uid and gid equal to all of the target's *and* a dumpable target *and*
capabilities no smaller than the target's or an ancestor's ownership of its user namespace; or
else CAP_SYS_PTRACE in the target's user namespace. Yama (kernel.yama.ptrace_scope) tightens
ATTACH alone: at 1 only ancestors may, at 2 only CAP_SYS_PTRACE, at 3 nobody.

Measured for bwrap 0.8.0 and 0.11.0, not set-user-ID, kernel 6.18 without Yama, by a reader outside
that is no ancestor of bwrap: while the gate of ``--block-fd`` or ``--userns-block-fd`` is held,
syscall, fd, ns, wchan, exe and environ of both the monitor and its child are readable (a) by root,
always, and (b) by uid 1000 when bwrap was started by uid 1000; with and without
``--unshare-user-try``, ``--dev`` and ``--unshare-pid``, which make no difference. Uid 1000 can read
none of them of a bwrap that root started; ``wchan`` then says 0 rather than refusing. The process
blocked in read(2) on the gate is the child for ``--block-fd``, the monitor for
``--userns-block-fd``, whose child meanwhile reads an eventfd.
"""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Collection, Iterable
from typing import NamedTuple

# All kinds of namespaces, with the two that apply to children only. Older kernels lack some.
NAMESPACE_KINDS = (
    "cgroup",
    "ipc",
    "mnt",
    "net",
    "pid",
    "pid_for_children",
    "time",
    "time_for_children",
    "user",
    "uts",
)

# A stat or status file never gets near this; cmdline and environ are read to their end.
_CHUNK = 65536

# How often a census re-reads processes whose parent vanished while it ran. Each round follows one
# more level of a family that is dying from the top, so a handful covers every real tree.
_ORPHAN_ROUNDS = 8


class Process(NamedTuple):
    """One process as PID/stat shows it.

    ``state`` is one letter: R running, S sleeping, D disk sleep, T stopped, t stopped by a
    tracer, Z zombie, X dead, I idle kernel thread. ``starttime`` is in clock ticks after boot
    (``os.sysconf("SC_CLK_TCK")`` a second) and, with ``pid``, identifies the process.
    ``tty_nr`` is the controlling terminal's device number, 0 for none. ``comm`` has at most
    15 bytes and may contain anything, line breaks and parentheses too.
    """

    pid: int
    ppid: int
    state: str
    comm: str
    pgrp: int
    session: int
    tty_nr: int
    starttime: int


class SignalState(NamedTuple):
    """Signal names (``"SIGINT"``, ``"SIGRTMIN+3"``) by what would happen to them.

    ``pending`` joins the thread's and the process's. Blocked is that of the main thread.
    """

    blocked: frozenset[str]
    ignored: frozenset[str]
    caught: frozenset[str]
    pending: frozenset[str]


class Status(NamedTuple):
    """The fields of PID/status that supervision turns on.

    ``uids`` and ``gids`` are real, effective, saved and filesystem ids in the reader's user
    namespace; ``nspid`` is the pid in each pid namespace from the reader's inwards.
    Capability sets are bit masks (capabilities(7)); ``seccomp`` is 0 off, 1 strict, 2 filter,
    and -1 where the kernel does not say.
    """

    pid: int
    ppid: int
    tracer_pid: int
    threads: int
    uids: tuple[int, ...]
    gids: tuple[int, ...]
    nspid: tuple[int, ...]
    signals: SignalState
    cap_inheritable: int
    cap_permitted: int
    cap_effective: int
    cap_bounding: int
    cap_ambient: int
    no_new_privs: bool | None
    seccomp: int


class FdInfo(NamedTuple):
    """One open fd as PID/fdinfo/FD shows it.

    ``flags`` are the open(2) flags; ``access`` is their access mode, ``"read"``, ``"write"`` or
    ``"both"``, or ``"path"`` for O_PATH. ``locks`` are the raw lock lines, each as in /proc/locks,
    of locks that belong to this file. ``fields`` has every other line, such as ``eventfd-count``.
    """

    flags: int
    access: str
    cloexec: bool
    pos: int
    mnt_id: int
    inode: int | None
    locks: tuple[str, ...]
    fields: dict[str, str]


class Holder(NamedTuple):
    """One process that has one open file description's link target at ``fd``.

    ``access`` is as in ``FdInfo``; it tells the read end of a pipe from the write end, which
    share one link target. None when the fd was closed before it could be asked.
    """

    pid: int
    fd: int
    access: str | None


class WaitChannel(NamedTuple):
    """What a process is waiting in.

    ``syscall`` is the name, ``"running"`` on a processor or in user space, ``"none"`` when
    blocked outside a system call, ``"unknown"`` for a number not in the table, and None when
    PID/syscall may not be read. ``args`` are the six raw arguments. ``wchan`` is the kernel
    function, empty when unknown or hidden.
    """

    syscall: str | None
    number: int
    args: tuple[int, ...]
    wchan: str


# --- reading -------------------------------------------------------------------------------------


def read_bytes(path: str, *, at_once: bool = False) -> bytes | None:
    """Read a whole /proc file; None when it is gone or refused.

    ``at_once``: it is known to come in one piece, so its end need not be asked for.

    ESRCH comes from the read, not from the open, when the process is reaped in between. EINVAL
    and EACCES are refusals of single files (a zombie's environ, a foreign syscall).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, _CHUNK)
        # /proc gives seq files out in pieces of about a page, so a short read is not the end.
        if data and not at_once:
            while True:
                more = os.read(fd, _CHUNK)
                if not more:
                    break
                data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def parse_stat(data: bytes) -> Process | None:
    """Parse the bytes of a PID/stat file; None when they are not one.

    The name ends at the *last* closing parenthesis: it may contain any byte but NUL.
    """
    left = data.find(b"(")
    right = data.rfind(b")")
    if left < 0 or right < left:
        return None
    rest = data[right + 2 :].split()
    if len(rest) < 20:
        return None
    return Process(
        int(data[:left]),
        int(rest[1]),
        rest[0].decode("ascii"),
        _text(data[left + 1 : right]),
        int(rest[2]),
        int(rest[3]),
        int(rest[4]),
        int(rest[19]),
    )


def read_process(pid: int) -> Process | None:
    """Read one process; None when there is none. A zombie is a process."""
    # The kernel makes this file in one piece (fs/proc/array.c), and no file is read as often.
    data = read_bytes(f"/proc/{pid}/stat", at_once=True)
    return None if data is None else parse_stat(data)


def exists(pid: int, starttime: int) -> bool:
    """Say whether the process that was seen with this ``starttime`` still has this pid.

    True for a zombie. Pid reuse within one clock tick (10 ms) would go unnoticed, and needs
    the whole pid range to be used up in that time.
    """
    process = read_process(pid)
    return process is not None and process.starttime == starttime


def is_zombie(pid: int) -> bool:
    """Say whether the process has ended and waits to be reaped; False when it is gone."""
    process = read_process(pid)
    return process is not None and process.state in "ZX"


# --- family --------------------------------------------------------------------------------------


def all_pids() -> list[int]:
    """List every process of the reader's pid namespace, in ascending order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def tasks(pid: int) -> list[int]:
    """List the thread ids of a process, ascending; empty when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """List the children of a process by all of its threads, ascending, zombies included.

    PID/task/TID/children is exact only while the children stay as they are: one that exits
    during the reading can hide its sibling (proc_tid_children(5)). Where that file is missing
    (kernel without CONFIG_PROC_CHILDREN) every process is asked for its parent instead.
    """
    found: list[int] = []
    threads = tasks(pid)
    for tid in threads:
        data = read_bytes(f"/proc/{pid}/task/{tid}/children")
        if data is not None:
            found.extend(map(int, data.split()))
        elif not os.path.exists("/proc/thread-self/children"):
            return [p.pid for p in map(read_process, all_pids()) if p is not None and p.ppid == pid]
    return sorted(found)


def _scan() -> dict[int, Process]:
    """Read every process once, then again each whose parent went away in the meantime.

    A process whose parent ended between the two readings shows a parent that is not in the
    table; by now it has been given to the subreaper, so reading it again finds its place.
    """
    table: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                table[process.pid] = process
    for _ in range(_ORPHAN_ROUNDS):
        lost = [p.pid for p in table.values() if p.ppid and p.ppid not in table]
        if not lost:
            break
        for pid in lost:
            again = read_process(pid)
            if again is None:
                del table[pid]
            else:
                table[pid] = again
                if again.ppid and again.ppid not in table:
                    parent = read_process(again.ppid)
                    if parent is not None:
                        table[parent.pid] = parent
    return table


def descendants_of(pid: int) -> list[Process]:
    """Take the census: every descendant of ``pid``, parents before children, zombies included.

    One scan of /proc. Complete for every process that exists from the scan's start to its end,
    provided that ``pid`` is a child subreaper (otherwise orphans leave its tree). A process
    forked during the scan may be missing: a caller who needs certainty stops or kills first
    and repeats until two censuses agree.
    """
    table = _scan()
    by_parent: dict[int, list[int]] = {}
    for process in table.values():
        by_parent.setdefault(process.ppid, []).append(process.pid)
    ordered: list[Process] = []
    queue = sorted(by_parent.get(pid, ()))
    for child in queue:
        ordered.append(table[child])
        queue.extend(sorted(by_parent.get(child, ())))
    return ordered


def descendants_by_children(pid: int, *, without: Collection[int] = ()) -> list[Process]:
    """Walk the children files from ``pid`` down: cheaper than a census, and it may miss some.

    The children ``without`` are left out.

    Right for following a family that is standing still; never proof that nothing is left.
    """
    ordered: list[Process] = []
    queue = [child for child in children_of(pid) if child not in without]
    for child in queue:
        process = read_process(child)
        if process is not None:
            ordered.append(process)
            queue.extend(children_of(child))
    return ordered


# --- namespaces ----------------------------------------------------------------------------------


def namespaces(pid: int, kinds: Iterable[str] = NAMESPACE_KINDS) -> dict[str, int | None]:
    """Read the inode number of each namespace; None for one that cannot be read.

    That is all of them for a process that is gone or protected, most of them for a zombie, and
    those that the kernel does not know.
    """
    found: dict[str, int | None] = {}
    for kind in kinds:
        try:
            target = os.readlink(f"/proc/{pid}/ns/{kind}")
        except OSError:
            found[kind] = None
        else:
            found[kind] = int(target[target.index("[") + 1 : -1])
    return found


def open_namespace(pid: int, kind: str) -> int:
    """Open a namespace, close-on-exec; the caller closes it, and until then it lives on.

    ``OSError`` ENOENT when the process is gone or a zombie, EACCES or EPERM when protected.
    """
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _id_map(pid: int, name: str) -> list[tuple[int, int, int]]:
    data = read_bytes(f"/proc/{pid}/{name}")
    if data is None:
        return []
    rows = (line.split() for line in data.splitlines())
    return [(int(inside), int(outside), int(count)) for inside, outside, count in rows]


def uid_map(pid: int) -> list[tuple[int, int, int]]:
    """Read (first id inside, first id in the reader's namespace, count); empty before written."""
    return _id_map(pid, "uid_map")


def gid_map(pid: int) -> list[tuple[int, int, int]]:
    """Read the group id map, in the form of ``uid_map``."""
    return _id_map(pid, "gid_map")


# --- open files ----------------------------------------------------------------------------------


def fds(pid: int) -> dict[int, str] | None:
    """Read each open fd's link target, by number; None when refused or gone.

    A zombie has none: its directory is refused or empty by kernel version. For this process
    itself, the fd that lists the directory is not among them.
    """
    directory = f"/proc/{pid}/fd/"
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    found: dict[int, str] = {}
    for number in sorted(map(int, names)):
        try:
            found[number] = os.readlink(directory + str(number))
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return found


_ACCESS = ("read", "write", "both", "both")


def parse_fdinfo(data: bytes) -> FdInfo:
    """Parse the text of a fdinfo file. Its flags are octal, O_CLOEXEC included."""
    fields: dict[str, str] = {}
    locks: list[str] = []
    for line in _text(data).splitlines():
        name, _, value = line.partition(":")
        if name == "lock":
            locks.append(value.strip())
        else:
            fields[name] = value.strip()
    flags = int(fields.pop("flags", "0"), 8)
    inode = fields.pop("ino", None)
    return FdInfo(
        flags,
        "path" if flags & os.O_PATH else _ACCESS[flags & os.O_ACCMODE],
        bool(flags & os.O_CLOEXEC),
        int(fields.pop("pos", "0")),
        int(fields.pop("mnt_id", "0")),
        None if inode is None else int(inode),
        tuple(locks),
        fields,
    )


def fdinfo(pid: int, fd: int) -> FdInfo | None:
    """Read one fd's flags, position and locks; None when refused or gone."""
    data = read_bytes(f"/proc/{pid}/fdinfo/{fd}")
    return None if data is None else parse_fdinfo(data)


def holders_of(target: str, pids: Iterable[int]) -> list[Holder]:
    """Find who among ``pids`` holds ``target``, such as ``"pipe:[123]"``, and at which end.

    Processes whose fds may not be read are passed over: ask ``unreadable_fds`` before taking an
    empty answer as proof.
    """
    found: list[Holder] = []
    for pid in pids:
        for fd, link in (fds(pid) or {}).items():
            if link == target:
                info = fdinfo(pid, fd)
                found.append(Holder(pid, fd, None if info is None else info.access))
    return found


def unreadable_fds(pids: Iterable[int]) -> list[int]:
    """List the living processes, zombies apart, among ``pids`` whose fds cannot be read."""
    return [pid for pid in pids if fds(pid) is None and _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.state not in "ZX"


# --- credentials and signals ---------------------------------------------------------------------


def signal_name(number: int) -> str:
    """Name a signal; real-time ones are counted from SIGRTMIN as the C library has it.

    Numbers without a name, such as those the C library keeps to itself, give ``SIG32``.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        if signal.SIGRTMIN < number < signal.SIGRTMAX:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}"
        return f"SIG{number}"


# Made once: the enum's lookup costs more than the reading of the file that it is used for.
_SIGNAL_NAMES = tuple(map(signal_name, range(1, 129)))
_LAST_STANDARD = 31


def signal_names(mask: int) -> frozenset[str]:
    """Name the signals of a bit mask whose lowest bit is signal 1.

    Without those that the C library keeps to itself (signal(7), "Real-time signals"): no program
    can say what becomes of them, and who ignores them depends on the library alone, some of which
    leave them ignored in whatever posix_spawn(3) starts.
    """
    return frozenset(
        _SIGNAL_NAMES[bit]
        for bit in range(mask.bit_length())
        if mask >> bit & 1 and not _LAST_STANDARD <= bit < signal.SIGRTMIN - 1
    )


def parse_status(data: bytes) -> Status | None:
    """Parse the bytes of a PID/status file; None when they are not one.

    A line break in the process's name is written as ``\\n`` there, so lines are lines.
    """
    fields: dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        name, _, value = line.partition(b":")
        fields[name] = value
    if b"Pid" not in fields or b"PPid" not in fields:
        return None

    def mask(name: bytes) -> int:
        return int(fields.get(name, b"0"), 16)

    def numbers(name: bytes) -> tuple[int, ...]:
        return tuple(map(int, fields.get(name, b"").split()))

    no_new_privs = fields.get(b"NoNewPrivs")
    return Status(
        pid=int(fields[b"Pid"]),
        ppid=int(fields[b"PPid"]),
        tracer_pid=int(fields.get(b"TracerPid", b"0")),
        threads=int(fields.get(b"Threads", b"0")),
        uids=numbers(b"Uid"),
        gids=numbers(b"Gid"),
        nspid=numbers(b"NSpid"),
        signals=SignalState(
            signal_names(mask(b"SigBlk")),
            signal_names(mask(b"SigIgn")),
            signal_names(mask(b"SigCgt")),
            signal_names(mask(b"SigPnd") | mask(b"ShdPnd")),
        ),
        cap_inheritable=mask(b"CapInh"),
        cap_permitted=mask(b"CapPrm"),
        cap_effective=mask(b"CapEff"),
        cap_bounding=mask(b"CapBnd"),
        cap_ambient=mask(b"CapAmb"),
        no_new_privs=None if no_new_privs is None else bool(int(no_new_privs)),
        seccomp=int(fields.get(b"Seccomp", b"-1")),
    )


def read_status(pid: int) -> Status | None:
    """Read PID/status; None when the process is gone."""
    data = read_bytes(f"/proc/{pid}/status")
    return None if data is None else parse_status(data)


def signal_state(pid: int) -> SignalState | None:
    """Read which signals are blocked, ignored, caught and pending; None when gone."""
    status = read_status(pid)
    return None if status is None else status.signals


# --- program -------------------------------------------------------------------------------------


def _strings(data: bytes) -> list[str]:
    return [_text(item) for item in data.removesuffix(b"\0").split(b"\0")] if data else []


def cmdline(pid: int) -> list[str]:
    """Read the argument list; empty for a zombie, a kernel thread, and a process that is gone."""
    return _strings(read_bytes(f"/proc/{pid}/cmdline") or b"")


def environ(pid: int) -> dict[str, str] | None:
    """Read the environment as it was at exec; None when refused, gone or a zombie.

    Of a name that occurs twice the first value is kept, as getenv(3) would find it.
    """
    data = read_bytes(f"/proc/{pid}/environ")
    if data is None:
        return None
    found: dict[str, str] = {}
    for item in _strings(data):
        name, _, value = item.partition("=")
        found.setdefault(name, value)
    return found


def executable(pid: int) -> str | None:
    """Read the path of the program as the reader's mount namespace names it; None when unreadable.

    ``" (deleted)"`` is appended by the kernel when the file is gone.
    """
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


# --- waiting -------------------------------------------------------------------------------------

# Kernel source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_SYSCALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read",
        1: "write",
        7: "poll",
        17: "pread64",
        19: "readv",
        20: "writev",
        23: "select",
        34: "pause",
        35: "nanosleep",
        42: "connect",
        43: "accept",
        45: "recvfrom",
        47: "recvmsg",
        58: "vfork",
        61: "wait4",
        72: "fcntl",
        73: "flock",
        128: "rt_sigtimedwait",
        130: "rt_sigsuspend",
        202: "futex",
        219: "restart_syscall",
        230: "clock_nanosleep",
        232: "epoll_wait",
        247: "waitid",
        257: "openat",
        270: "pselect6",
        271: "ppoll",
        281: "epoll_pwait",
        288: "accept4",
    },
    "aarch64": {
        22: "epoll_pwait",
        25: "fcntl",
        32: "flock",
        56: "openat",
        63: "read",
        64: "write",
        65: "readv",
        66: "writev",
        67: "pread64",
        72: "pselect6",
        73: "ppoll",
        95: "waitid",
        98: "futex",
        101: "nanosleep",
        115: "clock_nanosleep",
        128: "restart_syscall",
        133: "rt_sigsuspend",
        137: "rt_sigtimedwait",
        202: "accept",
        203: "connect",
        207: "recvfrom",
        212: "recvmsg",
        242: "accept4",
        260: "wait4",
    },
}
_SYSCALL_NAMES = _SYSCALLS.get(platform.machine(), {})

_READS = frozenset({"read", "readv", "pread64", "recvmsg", "recvfrom"})


def parse_syscall(data: bytes, wchan: str = "") -> WaitChannel | None:
    """Parse a PID/syscall file: ``running``, ``-1 sp pc``, or number, six arguments, sp, pc."""
    words = data.split()
    if not words:
        return None
    if words[0] == b"running":
        return WaitChannel("running", -1, (), wchan)
    number = int(words[0])
    if number < 0:
        return WaitChannel("none", number, (), wchan)
    args = tuple(int(word, 16) for word in words[1:7])
    return WaitChannel(_SYSCALL_NAMES.get(number, "unknown"), number, args, wchan)


def wait_channel(pid: int) -> WaitChannel | None:
    """Say what a process is blocked in; None when it is gone.

    Where PID/syscall is refused or not compiled in, ``syscall`` is None and only ``wchan`` may
    be known: that file wants less (PTRACE_MODE_READ) and says ``0`` when refused.
    """
    data = read_bytes(f"/proc/{pid}/syscall")
    hint = read_bytes(f"/proc/{pid}/wchan")
    wchan = "" if hint in (None, b"0", b"") else _text(hint or b"").strip()
    found = None if data is None else parse_syscall(data, wchan)
    if found is not None:
        return found
    return None if read_process(pid) is None else WaitChannel(None, -1, (), wchan)


def blocked_reading(pid: int, targets: Collection[str]) -> bool | None:
    """Say whether a process sleeps in a read of an fd that leads to one of ``targets``.

    ``targets`` are link targets such as ``"pipe:[1234]"``. False also for a process that is
    gone, running, or blocked in anything else; None when that cannot be known because
    PID/syscall or PID/fd is refused, which is no reason to believe either.
    """
    process = read_process(pid)
    if process is None or process.state != "S":
        return False
    data = read_bytes(f"/proc/{pid}/syscall")
    if data is None:
        return None if _is_alive(pid) else False
    found = parse_syscall(data)
    if found is None or found.syscall not in _READS:
        return False
    try:
        return os.readlink(f"/proc/{pid}/fd/{found.args[0]}") in targets
    except FileNotFoundError:
        return False
    except OSError:
        return None
