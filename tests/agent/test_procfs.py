"""What procfs and kernel claim, checked against real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_processes import find_bwraps, in_child, wait_until

from harness.agent import kernel, procfs

# No state that is waited for here takes more than some milliseconds.
DEADLINE_S = 10.0
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


class Child:
    """A forked child that runs ``body`` and then ends; killed and reaped at the end of a block."""

    def __init__(self, body: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                body()
            finally:
                os._exit(0)

    def __enter__(self) -> int:
        return self.pid

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = procfs.fds(os.getpid())
    yield
    assert procfs.fds(os.getpid()) == before, "a test left an fd open"
    assert procfs.children_of(os.getpid()) == [], "a test left a child"


each_bwrap = pytest.mark.parametrize("bwrap", find_bwraps())


# --- identity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("comm", ["plain", "two words", "a) R 1 (b", "line\nbreak", "((", "))"])
def test_a_name_with_any_characters_does_not_shift_the_fields(comm: str) -> None:
    def rename() -> None:
        Path("/proc/self/comm").write_text(comm)
        signal.pause()

    with Child(rename) as pid:
        process = wait_until(lambda: (p := procfs.read_process(pid)) and p.comm == comm and p)
        assert process == procfs.Process(
            pid=pid,
            ppid=os.getpid(),
            state=process.state,
            comm=comm,
            pgrp=os.getpgrp(),
            session=os.getsid(0),
            tty_nr=process.tty_nr,
            starttime=process.starttime,
        )
        assert wait_until(lambda: (p := procfs.read_process(pid)) and p.state == "S")
        status = procfs.read_status(pid)
        assert status is not None
        assert (status.pid, status.ppid) == (pid, os.getpid())


@pytest.mark.parametrize("data", [b"", b"12 (x", b"12 (x) S 1 2 3", b"no parenthesis"])
def test_what_is_not_a_stat_file_is_refused(data: bytes) -> None:
    assert procfs.parse_stat(data) is None


def test_a_zombie_is_a_process_and_a_reaped_one_is_not() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    wait_until(lambda: procfs.is_zombie(pid))
    zombie = procfs.read_process(pid)
    assert zombie is not None
    assert zombie.state == "Z"
    assert procfs.exists(pid, zombie.starttime)
    assert procfs.cmdline(pid) == []
    assert procfs.executable(pid) is None
    assert not procfs.fds(pid)
    assert procfs.unreadable_fds([pid]) == []
    os.waitpid(pid, 0)
    assert procfs.read_process(pid) is None
    assert procfs.read_status(pid) is None
    assert procfs.wait_channel(pid) is None
    assert procfs.signal_state(pid) is None
    assert not procfs.is_zombie(pid)
    assert not procfs.exists(pid, zombie.starttime)


def test_the_same_pid_with_another_start_is_another_process() -> None:
    own = procfs.read_process(os.getpid())
    assert own is not None
    assert procfs.exists(own.pid, own.starttime)
    assert not procfs.exists(own.pid, own.starttime + 1)


# --- family --------------------------------------------------------------------------------------


def test_children_of_a_second_thread_are_children_of_the_process() -> None:
    started: list[subprocess.Popen[bytes]] = []
    ready, release = threading.Event(), threading.Event()

    def spawn() -> None:
        started.append(subprocess.Popen(["sleep", "60"]))
        ready.set()
        release.wait()

    thread = threading.Thread(target=spawn)
    thread.start()
    ready.wait()
    try:
        main_only = procfs.read_bytes(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        assert main_only == b""
        assert len(procfs.tasks(os.getpid())) >= 2
        assert procfs.children_of(os.getpid()) == [started[0].pid]
    finally:
        release.set()
        thread.join()
        started[0].kill()
        started[0].wait()


def test_without_children_files_the_parents_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    real_read, real_exists = procfs.read_bytes, os.path.exists
    monkeypatch.setattr(
        procfs,
        "read_bytes",
        lambda path, **how: None if path.endswith("/children") else real_read(path, **how),
    )
    monkeypatch.setattr(
        os.path, "exists", lambda path: not str(path).endswith("children") and real_exists(path)
    )
    with Child(signal.pause) as pid:
        assert procfs.children_of(os.getpid()) == [pid]
        assert procfs.children_of(pid) == []
    monkeypatch.undo()


def test_a_census_under_a_subreaper_contains_orphans_and_zombies() -> None:
    """Child -> grandchild that is orphaned by its parent's end, next to an unreaped zombie."""

    def family() -> Any:
        kernel.set_child_subreaper()
        read_fd, write_fd = os.pipe()
        middle = os.fork()
        if middle == 0:
            orphan = os.fork()
            if orphan == 0:
                signal.pause()
            os.write(write_fd, str(orphan).encode())
            os._exit(0)
        orphan = int(os.read(read_fd, 20))
        wait_until(lambda: procfs.is_zombie(middle))
        wait_until(lambda: procfs.read_process(orphan).ppid == os.getpid())  # type: ignore[union-attr]
        census = procfs.descendants_of(os.getpid())
        walk = procfs.descendants_by_children(os.getpid())
        os.kill(orphan, signal.SIGKILL)
        os.waitpid(middle, 0)
        os.waitpid(orphan, 0)
        return [[p.pid for p in census], [p.pid for p in walk], [middle, orphan]]

    census, walk, expected = in_child(family)
    assert census == walk == sorted(expected)


def test_a_census_lists_parents_before_children() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sh -c 'sleep 60 & echo up; wait' & wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == b"up\n"
        # Asleep, since two walks are to find the same states.
        asleep = [("sh", "S"), ("sleep", "S")]
        wait_until(lambda: [(p.comm, p.state) for p in procfs.descendants_of(outer.pid)] == asleep)
        chain = procfs.descendants_of(os.getpid())
        assert [p.ppid for p in chain] == [os.getpid(), chain[0].pid, chain[1].pid]
        assert procfs.descendants_by_children(outer.pid) == procfs.descendants_of(outer.pid)
        os.killpg(outer.pid, signal.SIGKILL)


def test_a_process_whose_parent_vanished_during_the_scan_is_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process(pid: int, ppid: int) -> procfs.Process:
        return procfs.Process(pid, ppid, "S", "x", 1, 1, 0, 0)

    # 30 is read while 20 is its parent; 20 is gone when its turn comes; 30 then belongs to 10.
    answers: dict[int, list[procfs.Process | None]] = {
        30: [process(30, 20), process(30, 10)],
        20: [None],
        10: [process(10, 1)],
        1: [process(1, 0)],
    }
    monkeypatch.setattr(os, "listdir", lambda _path: ["30", "20", "10", "1", "self"])
    monkeypatch.setattr(
        procfs, "read_process", lambda pid: answers[pid].pop(0) if answers[pid] else None
    )
    census = procfs.descendants_of(10)
    monkeypatch.undo()
    assert census == [process(30, 10)]


# --- namespaces ----------------------------------------------------------------------------------


def test_namespaces_are_the_inodes_of_their_files() -> None:
    found = procfs.namespaces(os.getpid())
    assert tuple(found) == procfs.NAMESPACE_KINDS
    for kind, inode in found.items():
        if inode is not None:
            assert inode == os.stat(f"/proc/self/ns/{kind}").st_ino
    assert found["user"] is not None


def test_namespaces_of_nobody_are_unknown_not_absent() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert procfs.namespaces(pid) == dict.fromkeys(procfs.NAMESPACE_KINDS)
    with pytest.raises(FileNotFoundError):
        procfs.open_namespace(pid, "net")


def test_an_opened_namespace_leads_to_the_user_namespace_that_owns_it() -> None:
    fd = procfs.open_namespace(os.getpid(), "net")
    owner = kernel.owner_user_namespace(fd)
    try:
        assert os.fstat(fd).st_ino == procfs.namespaces(os.getpid())["net"]
        assert os.fstat(owner).st_ino == procfs.namespaces(os.getpid())["user"]
        assert not os.get_inheritable(fd)
        assert not os.get_inheritable(owner)
    finally:
        os.close(fd)
        os.close(owner)


def test_an_id_map_is_empty_until_it_is_written() -> None:
    def unshared() -> Any:
        kernel.unshare(kernel.CLONE_NEWUSER)
        before = procfs.uid_map(os.getpid()), procfs.gid_map(os.getpid())
        Path("/proc/self/uid_map").write_text(f"7 {outside} 1")
        return [*before, procfs.uid_map(os.getpid())]

    outside = os.getuid()
    assert in_child(unshared) == [[], [], [[7, outside, 1]]]


# --- open files ----------------------------------------------------------------------------------


def test_the_ends_of_a_pipe_are_told_apart_and_every_holder_is_found() -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")

    def keep_write_end() -> None:
        os.close(read_fd)
        signal.pause()

    own = os.getpid()
    with Child(keep_write_end) as pid:
        wait_until(lambda: read_fd not in (procfs.fds(pid) or {read_fd: ""}))
        assert procfs.holders_of(target, [own, pid]) == [
            (own, read_fd, "read"),
            (own, write_fd, "write"),
            (pid, write_fd, "write"),
        ]
        assert procfs.holders_of("pipe:[1]", [own, pid]) == []
    os.close(read_fd)
    os.close(write_fd)


def test_fdinfo_tells_flags_position_and_inode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(path, flags)
    os.lseek(fd, 3, os.SEEK_SET)
    info = procfs.fdinfo(os.getpid(), fd)
    os.set_inheritable(fd, True)
    inheritable = procfs.fdinfo(os.getpid(), fd)
    os.close(fd)
    assert info is not None
    assert inheritable is not None
    assert info.flags & flags == flags
    assert info.access == "both"
    assert info.cloexec
    assert not inheritable.cloexec
    assert (info.pos, info.inode, info.locks) == (3, path.stat().st_ino, ())
    assert procfs.fdinfo(os.getpid(), fd) is None


def test_an_eventfd_shows_its_counter() -> None:
    parsed = procfs.parse_fdinfo(b"pos:\t0\nflags:\t02000002\nmnt_id:\t9\neventfd-count:   5\n")
    assert parsed == procfs.FdInfo(
        flags=0o2000002,
        access="both",
        cloexec=True,
        pos=0,
        mnt_id=9,
        inode=None,
        locks=(),
        fields={"eventfd-count": "5"},
    )


@needs_root
def test_what_may_not_be_read_is_unknown_and_not_empty() -> None:
    own = os.getpid()

    def look() -> Any:
        become(NOBODY)
        return [
            procfs.fds(own),
            procfs.unreadable_fds([own]),
            procfs.holders_of("/dev/null", [own]),
            procfs.environ(own),
            procfs.executable(own),
            procfs.namespaces(own, ["net"]),
            procfs.read_process(own) is not None,
            bool(procfs.cmdline(own)),
        ]

    assert in_child(look) == [None, [own], [], None, None, {"net": None}, True, True]


# --- credentials, signals, program ---------------------------------------------------------------


def test_signal_state_is_what_the_process_set() -> None:
    def arrange() -> None:
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR1, signal.SIGRTMIN + 3})
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.pause()

    expected = procfs.SignalState(
        blocked=frozenset({"SIGUSR1", "SIGRTMIN+3"}),
        ignored=frozenset({"SIGUSR2"}),
        caught=frozenset({"SIGTERM"}),
        pending=frozenset({"SIGUSR1"}),
    )
    with Child(arrange) as pid:
        # The pending signal is what comes last.
        wait_until(lambda: (s := procfs.signal_state(pid)) and s.pending)
        assert procfs.signal_state(pid) == expected


def test_signals_of_the_c_library_are_nobodys() -> None:
    # Bit 0 is signal 1: SIGHUP, the two that glibc keeps to itself, and the first that it does not.
    assert procfs.signal_names(1 | 1 << 31 | 1 << 32 | 1 << 33) == {"SIGHUP", "SIGRTMIN"}


@pytest.mark.parametrize(
    ("number", "name"), [(1, "SIGHUP"), (34, "SIGRTMIN"), (35, "SIGRTMIN+1"), (32, "SIG32")]
)
def test_signals_have_names(number: int, name: str) -> None:
    assert procfs.signal_name(number) == name


def test_no_new_privs_and_pids_come_from_status() -> None:
    def restrict() -> Any:
        before = procfs.read_status(os.getpid())
        kernel.set_no_new_privileges()
        after = procfs.read_status(os.getpid())
        assert before is not None
        assert after is not None
        return [
            [before.no_new_privs, after.no_new_privs, after.threads],
            list(after.uids) == [*os.getresuid(), os.geteuid()],
            after.nspid[-1] == os.getpid(),
        ]

    assert in_child(restrict) == [[False, True, 1], True, True]


def test_a_status_of_an_older_kernel_has_unknown_fields() -> None:
    status = procfs.parse_status(b"Name:\tx\nPid:\t5\nPPid:\t1\nSigIgn:\t0000000000000001\n")
    assert status is not None
    assert (status.no_new_privs, status.seccomp, status.nspid) == (None, -1, ())
    assert status.signals.ignored == {"SIGHUP"}
    assert procfs.parse_status(b"") is None


def test_arguments_and_environment_survive_line_breaks_and_empty_strings() -> None:
    arguments = ["-c", "echo up; read x", "", "a\nb", "\udcff"]
    with subprocess.Popen(
        ["/bin/sh", *arguments],
        env={"A": "x\ny=z", "EMPTY": "", "TWICE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert procfs.cmdline(child.pid) == ["/bin/sh", *arguments]
        assert procfs.environ(child.pid) == {"A": "x\ny=z", "EMPTY": "", "TWICE": "1"}
        assert procfs.executable(child.pid) == os.path.realpath("/bin/sh")
        child.communicate(b"\n")


def test_of_a_name_that_occurs_twice_the_first_value_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(procfs, "read_bytes", lambda _path: b"A=1\0B\0A=2\0")
    assert procfs.environ(1) == {"A": "1", "B": ""}


# --- waiting -------------------------------------------------------------------------------------


def test_a_reader_is_blocked_on_its_pipe_and_on_no_other() -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    with Child(lambda: os.read(read_fd, 1)) as pid:
        wait_until(lambda: procfs.blocked_reading(pid, {target}))
        assert procfs.blocked_reading(pid, {"pipe:[1]"}) is False
        channel = procfs.wait_channel(pid)
        assert channel is not None
        assert (channel.syscall, channel.args[0]) == ("read", read_fd)
    assert procfs.blocked_reading(pid, {target}) is False
    os.close(read_fd)
    os.close(write_fd)


def test_one_who_waits_otherwise_is_not_reading_though_it_holds_the_pipe() -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    with Child(signal.pause) as pid:
        wait_until(lambda: (p := procfs.read_process(pid)) and p.state == "S")
        wait_until(lambda: procfs.wait_channel(pid).syscall != "running")  # type: ignore[union-attr]
        assert procfs.blocked_reading(pid, {target}) is False
    os.close(read_fd)
    os.close(write_fd)


def test_a_stopped_reader_is_not_blocked_reading() -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    with Child(lambda: os.read(read_fd, 1)) as pid:
        wait_until(lambda: procfs.blocked_reading(pid, {target}))
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: (p := procfs.read_process(pid)) and p.state == "T")
        assert procfs.blocked_reading(pid, {target}) is False
    os.close(read_fd)
    os.close(write_fd)


@needs_root
def test_a_refused_syscall_file_is_unknown_not_false() -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")

    def look() -> Any:
        become(NOBODY)
        channel = procfs.wait_channel(pid)
        assert channel is not None
        return [procfs.blocked_reading(pid, {target}), channel.syscall]

    with Child(lambda: os.read(read_fd, 1)) as pid:
        wait_until(lambda: procfs.blocked_reading(pid, {target}))
        assert in_child(look) == [None, None]
    os.close(read_fd)
    os.close(write_fd)


def test_a_syscall_file_has_three_forms() -> None:
    number = next(n for n, name in procfs._SYSCALL_NAMES.items() if name == "read")
    line = f"{number} 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffe 0x7fff\n".encode()
    assert procfs.parse_syscall(line) == ("read", number, (3, 0x7F, 1, 0, 0, 0), "")
    assert procfs.parse_syscall(b"running\n") == ("running", -1, (), "")
    assert procfs.parse_syscall(b"-1 0x7ffe 0x7fff\n") == ("none", -1, (), "")
    assert procfs.parse_syscall(b"9999 0 0 0 0 0 0 0 0\n", "f") == ("unknown", 9999, (0,) * 6, "f")
    assert procfs.parse_syscall(b"") is None


@each_bwrap
@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(
    ("gate", "blocked"), [("--block-fd", "child"), ("--userns-block-fd", "monitor")]
)
@needs_root
def test_the_process_that_waits_at_the_gate_is_seen_from_outside(
    bwrap: str, uid: int, gate: str, blocked: str
) -> None:
    read_fd, write_fd = os.pipe()
    info_read, info_write = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    command = [bwrap, "--ro-bind", "/", "/", "--unshare-user", "--unshare-pid"]
    command += ["--info-fd", str(info_write), gate, str(read_fd), "true"]
    with subprocess.Popen(
        command, pass_fds=(read_fd, info_write), user=uid, group=uid, extra_groups=[]
    ) as monitor:
        os.close(info_write)
        with os.fdopen(info_read, "rb") as stream:
            data = b""
            while b"}" not in data:
                data += stream.read1()
        child = json.loads(data)["child-pid"]
        waiting, other = (child, monitor.pid) if blocked == "child" else (monitor.pid, child)
        assert wait_until(lambda: procfs.blocked_reading(waiting, {target}))
        assert procfs.blocked_reading(other, {target}) is False

        def as_owner() -> Any:
            become(uid)
            return procfs.blocked_reading(waiting, {target})

        assert in_child(as_owner) is True
        # In this order the monitor lives to reap its child, which would be left as a zombie.
        os.kill(child, signal.SIGKILL)
        os.close(write_fd)
        monitor.wait(DEADLINE_S)
    os.close(read_fd)
    assert procfs.read_process(child) is None


# --- the kernel's calls --------------------------------------------------------------------------


def test_a_parent_death_signal_is_kept_and_cleared() -> None:
    def set_and_clear() -> Any:
        kernel.set_parent_death_signal(signal.SIGTERM)
        first = kernel.parent_death_signal()
        kernel.set_parent_death_signal(0)
        return [first, kernel.parent_death_signal()]

    assert in_child(set_and_clear) == [signal.SIGTERM, 0]


def test_subreaper_is_set_for_this_process_only() -> None:
    def set_and_fork() -> Any:
        kernel.set_child_subreaper()
        return [kernel.child_subreaper(), in_child(kernel.child_subreaper)]

    assert in_child(set_and_fork) == [True, False]
    assert not kernel.child_subreaper()


def test_a_process_fd_signals_its_process_and_then_nobody() -> None:
    with Child(signal.pause) as pid:
        fd = kernel.pidfd_open(pid)
        assert not os.get_inheritable(fd)
        kernel.pidfd_send_signal(fd, 0)
        kernel.pidfd_send_signal(fd, signal.SIGTERM)
        wait_until(lambda: procfs.is_zombie(pid))
    with pytest.raises(ProcessLookupError):
        kernel.pidfd_send_signal(fd, signal.SIGTERM)
    os.close(fd)
    with pytest.raises(ProcessLookupError):
        kernel.pidfd_open(pid)


def test_inotify_reports_names_in_order(tmp_path: Path) -> None:
    fd = kernel.inotify_init()
    kernel.inotify_add_watch(fd, str(tmp_path), kernel.IN_CREATE | kernel.IN_DELETE)
    (tmp_path / "first").touch()
    (tmp_path / "a longer name of a file").mkdir()
    (tmp_path / "first").unlink()
    data = os.read(fd, 4096)
    os.close(fd)
    assert kernel.parse_inotify(data) == [
        (kernel.IN_CREATE, "first"),
        (kernel.IN_CREATE | kernel.IN_ISDIR, "a longer name of a file"),
        (kernel.IN_DELETE, "first"),
    ]
    for cut in (len(data) - 1, 5):
        with pytest.raises(ValueError, match="truncated"):
            kernel.parse_inotify(data[:cut])
    with pytest.raises(OSError, match="inotify_add_watch"):
        kernel.inotify_add_watch(fd, str(tmp_path), kernel.IN_CREATE)


@pytest.mark.parametrize("with_call", [True, False])
def test_a_range_of_fds_is_closed_or_marked(with_call: bool) -> None:
    def close_some() -> Any:
        if not with_call:
            kernel._SYS_CLOSE_RANGE = 100000  # ENOSYS: the fallback has to do it.
        for fd in (100, 101, 102):
            os.dup2(0, fd)
        kernel.close_range(101, 101, cloexec=True)
        marked = [os.get_inheritable(fd) for fd in (100, 101, 102)]
        kernel.close_range(100, 101)
        return [marked, sorted(fd for fd in procfs.fds(os.getpid()) or {} if 100 <= fd < 110)]

    assert in_child(close_some) == [[True, False, True], [102]]


def test_pipe_sizes_are_rounded_up_and_unread_bytes_counted() -> None:
    read_fd, write_fd = os.pipe()
    assert kernel.set_pipe_size(write_fd, 5000) == 8192
    assert kernel.pipe_size(read_fd) == 8192
    os.write(write_fd, b"abc")
    assert kernel.unread_bytes(read_fd) == 3
    os.close(read_fd)
    os.close(write_fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.pipe_size(read_fd)


def test_the_agent_runs_on_the_oldest_python(tmp_path: Path) -> None:
    old = Path.home() / ".pyenv/versions/3.9.18/bin/python3"
    if not old.exists():
        pytest.skip("no Python 3.9 here")
    code = (
        "import os, json\n"
        "from harness.agent import procfs, kernel, locks, observe, facts\n"
        "p = procfs.read_process(os.getpid()); s = procfs.read_status(os.getpid())\n"
        "assert p and s and procfs.fds(os.getpid()) and procfs.descendants_of(os.getppid())\n"
        "open('f', 'w').close(); fd = locks.hold('f', 'read'); locks.locks_on('f')\n"
        "json.dumps(facts.collect_facts(None)); print(len(observe.OBSERVE_SCRIPT) > 0)\n"
    )
    root = Path(procfs.__file__).resolve().parents[2]
    done = subprocess.run(
        [old, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("True\n", ""), sys.version
