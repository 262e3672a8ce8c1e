"""What locks claims, checked with real holders in other processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_processes import find_bwraps, wait_until

from harness.agent import locks, procfs

APIS = ("fcntl", "ofd", "flock")


class Holder:
    """A process that holds a lock until the end of the block, or until ``release``."""

    def __init__(self, path: Path, kind: str, *, api: str = "fcntl", wait: bool = False) -> None:
        self.ready_fd, write_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.ready_fd)
                locks.hold(str(path), kind, api=api, wait=wait)
                os.write(write_fd, b"+")
                signal.pause()
            finally:
                os._exit(1)
        os.close(write_fd)

    def holds(self) -> bool:
        """Wait for the holder's word; False when it ended without the lock."""
        return os.read(self.ready_fd, 1) == b"+"

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.ready_fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = procfs.fds(os.getpid())
    yield
    assert procfs.fds(os.getpid()) == before, "a test left an fd open"
    assert procfs.children_of(os.getpid()) == [], "a test left a child"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "lock file"
    made.touch()
    return made


def lock_of(path: Path, api: str, kind: str, pid: int | None, *, waiting: bool = False) -> Any:
    status = path.stat()
    return locks.Lock(
        api=api,
        kind=kind,
        pid=pid,
        major=os.major(status.st_dev),
        minor=os.minor(status.st_dev),
        inode=status.st_ino,
        start=0,
        end=None,
        waiting=waiting,
    )


def test_every_form_of_line_is_parsed() -> None:
    text = (
        b"1: FLOCK  ADVISORY  WRITE 6499 fe:00:2146444 0 EOF\n"
        b"2: POSIX  ADVISORY  READ 6499 00:1f:7 10 19\n"
        b"2: -> POSIX  ADVISORY  WRITE 6500 00:1f:7 0 EOF\n"
        b"2:  -> POSIX  ADVISORY  WRITE 6501 00:1f:7 0 EOF\n"
        b"3: OFDLCK ADVISORY  READ -1 fe:00:2146444 0 EOF\n"
        b"4: LEASE  ACTIVE    READ 12 08:01:9 0 EOF\n"
        b"5: POSIX  ADVISORY  READ 6499 <none>:0 0 EOF\n"
        b"\n"
    )
    assert locks.parse_locks(text) == [
        ("flock", "write", 6499, 0xFE, 0, 2146444, 0, None, False),
        ("fcntl", "read", 6499, 0, 0x1F, 7, 10, 19, False),
        ("fcntl", "write", 6500, 0, 0x1F, 7, 0, None, True),
        ("fcntl", "write", 6501, 0, 0x1F, 7, 0, None, True),
        ("ofd", "read", None, 0xFE, 0, 2146444, 0, None, False),
        ("lease", "read", 12, 8, 1, 9, 0, None, False),
    ]


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("api", APIS)
def test_a_held_lock_is_listed_with_its_holder_and_gone_with_it(
    path: Path, api: str, kind: str
) -> None:
    with Holder(path, kind, api=api) as holder:
        assert holder.holds()
        pid = None if api == "ofd" else holder.pid
        expected = [lock_of(path, api, kind, pid)]
        assert locks.locks_on(str(path)) == expected
        assert locks.locks_on(path.stat()) == expected
    assert locks.locks_on(str(path)) == []


def test_the_lock_of_a_file_that_lost_its_name_is_found_by_its_stat(path: Path) -> None:
    status = path.stat()
    with Holder(path, "read") as holder:
        assert holder.holds()
        expected = [lock_of(path, "fcntl", "read", holder.pid)]
        path.unlink()
        assert locks.locks_on(status) == expected
    with pytest.raises(FileNotFoundError):
        locks.locks_on(str(path))


def test_a_file_on_another_file_system_is_found() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm to write to")
    path = Path(f"/dev/shm/harness-test-{os.getpid()}")
    path.touch()
    try:
        with Holder(path, "write") as holder:
            assert holder.holds()
            assert locks.locks_on(str(path)) == [lock_of(path, "fcntl", "write", holder.pid)]
    finally:
        path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_on_an_overlay_the_mount_table_knows_the_device_that_stat_does_not(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    merged = tmp_path / "merged" / "file"
    # With the lower layer on another file system, stat shows a device that is no superblock's.
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = (
        f"mount -t tmpfs none {tmp_path}/lower && touch {tmp_path}/lower/file"
        f" && mount -t overlay none -o {layers} {tmp_path}/merged && exec "
        f'"{sys.executable}" -c "import os; from harness.agent import locks;'
        f"path = '{merged}'; fd = locks.hold(path, 'read');"
        'print(len(locks.locks_on(path)), len(locks.locks_on(os.stat(path))))"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=Path(locks.__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    if "mount" in done.stderr:
        pytest.skip(f"no overlay here: {done.stderr}")
    assert (done.stdout, done.stderr) == ("1 0\n", "")


@pytest.mark.parametrize(
    ("api", "held", "wanted", "refused"),
    [
        ("fcntl", "read", "read", False),
        ("fcntl", "read", "write", True),
        ("fcntl", "write", "read", True),
        ("fcntl", "write", "write", True),
        ("ofd", "read", "read", False),
        ("ofd", "read", "write", True),
        ("ofd", "write", "read", True),
        ("flock", "write", "write", False),
    ],
)
def test_a_probe_foretells_what_taking_the_lock_would_do(
    path: Path, api: str, held: str, wanted: str, refused: bool
) -> None:
    with Holder(path, held, api=api) as holder:
        assert holder.holds()
        pid = -1 if api == "ofd" else holder.pid
        expected = (held, pid) if refused else None
        assert locks.probe_posix_lock(str(path), wanted) == expected
        # The probe left nothing behind, and the real thing agrees with it.
        assert len(locks.locks_on(str(path))) == 1
        if refused:
            with pytest.raises(BlockingIOError, match="lock is held"):
                locks.hold(str(path), wanted)
        else:
            os.close(locks.hold(str(path), wanted))
    assert locks.probe_posix_lock(str(path), "write") is None


def test_a_probe_keeps_the_own_lock_which_closing_a_file_would_lose(path: Path) -> None:
    own = os.getpid()
    fd = locks.hold(str(path), "read")
    expected = [lock_of(path, "fcntl", "read", own)]
    assert locks.probe_posix_lock(str(path), "write") == ("read", own)
    assert locks.probe_posix_lock(str(path), "read") is None
    assert locks.locks_on(str(path)) == expected
    # The trap itself: this is what a careless probe would have done.
    os.close(os.open(path, os.O_RDONLY))
    assert locks.locks_on(str(path)) == []
    os.close(fd)


def test_own_write_lock_refuses_readers(path: Path) -> None:
    fd = locks.hold(str(path), "write")
    assert locks.probe_posix_lock(str(path), "read") == ("write", os.getpid())
    os.close(fd)


@pytest.mark.parametrize("api", APIS)
def test_a_waiter_is_listed_as_waiting_and_then_gets_the_lock(path: Path, api: str) -> None:
    with Holder(path, "write", api=api) as first:
        assert first.holds()
        with Holder(path, "read", api=api, wait=True) as second:
            pids = (None, None) if api == "ofd" else (first.pid, second.pid)
            wait_until(lambda: len(locks.locks_on(str(path))) == 2)
            assert locks.locks_on(str(path)) == [
                lock_of(path, api, "write", pids[0]),
                lock_of(path, api, "read", pids[1], waiting=True),
            ]
            os.kill(first.pid, signal.SIGKILL)
            assert second.holds()
            assert locks.locks_on(str(path)) == [lock_of(path, api, "read", pids[1])]


@pytest.mark.parametrize("api", APIS)
def test_a_refused_holder_says_so_and_keeps_no_fd(path: Path, api: str) -> None:
    with Holder(path, "write", api=api) as holder:
        assert holder.holds()
        with pytest.raises(BlockingIOError, match="read lock is held"):
            locks.hold(str(path), "read", api=api)


def test_an_unknown_kind_or_api_is_refused_before_anything_is_opened(path: Path) -> None:
    with pytest.raises(ValueError, match="'exclusive'"):
        locks.hold(str(path), "exclusive")
    with pytest.raises(ValueError, match="'exclusive'"):
        locks.probe_posix_lock(str(path), "exclusive")
    with pytest.raises(ValueError, match="'lockf'"):
        locks.hold(str(path), "read", api="lockf")
    with pytest.raises(FileNotFoundError):
        locks.hold(str(path) + ".missing", "read")


def test_the_locks_of_an_open_file_are_in_its_fdinfo(path: Path) -> None:
    fd = locks.hold(str(path), "read", api="ofd")
    info = procfs.fdinfo(os.getpid(), fd)
    os.close(fd)
    assert info is not None
    assert [lock.api for lock in locks.parse_locks("\n".join(info.locks).encode())] == ["ofd"]


def test_a_python_lockf_is_a_posix_lock(path: Path) -> None:
    with path.open("r+b") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)
        assert locks.locks_on(str(path)) == [lock_of(path, "fcntl", "write", os.getpid())]


@pytest.mark.parametrize("unshare", [[], ["--unshare-pid"]], ids=["shared", "pid-namespace"])
@pytest.mark.parametrize("bwrap", find_bwraps())
def test_the_lock_of_a_sandbox_is_a_read_lock_of_its_reaper(
    path: Path, bwrap: str, unshare: list[str]
) -> None:
    command = [bwrap, "--dev-bind", "/", "/", *unshare, "--lock-file", str(path), "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as monitor:
        # The reaper takes the lock after it has started the command.
        wait_until(lambda: locks.locks_on(str(path)))
        census = procfs.descendants_of(monitor.pid)
        reaper = census[0]
        assert reaper.ppid == monitor.pid
        assert locks.locks_on(str(path)) == [lock_of(path, "fcntl", "read", reaper.pid)]
        assert locks.probe_posix_lock(str(path), "write") == ("read", reaper.pid)
        assert locks.probe_posix_lock(str(path), "read") is None
        monitor.communicate(b"")
    wait_until(lambda: locks.locks_on(str(path)) == [])


def test_from_within_a_pid_namespace_the_holders_outside_are_hidden(path: Path) -> None:
    """The reason why locks are read from outside."""
    script = (
        "import json, sys; from harness.agent import locks;"
        "print(json.dumps([locks.locks_on(sys.argv[1]),"
        " locks.probe_posix_lock(sys.argv[1], 'write')]))"
    )
    bwraps = find_bwraps()
    if not bwraps:
        pytest.skip("no bwrap")
    with Holder(path, "read") as holder:
        assert holder.holds()
        command = [bwraps[0], "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"]
        command += [sys.executable, "-c", script, str(path)]
        done = subprocess.run(
            command,
            cwd=Path(locks.__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            check=True,
        )
        assert json.loads(done.stdout) == [[], ["read", 0]]
