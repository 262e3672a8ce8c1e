"""The payload is run for real, in the shells and in the sandboxes that it has to work in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_processes import find_bwraps

from harness.agent import observe, procfs
from harness.agent.observe import OBSERVE_SCRIPT, parse_observation

SHELLS = [
    [path, *rest]
    for name, *rest in (["dash"], ["bash"], ["bash", "--posix"], ["busybox", "sh"])
    for path in [shutil.which(name)]
    if path
]
# Values that break careless encodings: line breaks, marks, bytes that are no text.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PLAIN": "x",
    "EMPTY": "",
    "LINES": "first\n\nenviron-end\n" + observe.END_MARK + "\nlast\n",
    "EQUALS": "a=b=c",
    "BYTES": "\udcff\udcfe\x01\x0c",
}
ALL_KEYS = {
    *("pid", "ppid", "pgrp", "session", "nspid", "proc_is_own", "tty", "tty_nr", "fds", "signals"),
    *("capabilities", "no_new_privs", "seccomp", "namespaces", "uid", "gid", "uid_map", "gid_map"),
    *("environment", "mounts", "cwd", "umask", "hostname", "missing"),
}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = procfs.fds(os.getpid())
    yield
    assert procfs.fds(os.getpid()) == before, "a test left an fd open"
    assert procfs.children_of(os.getpid()) == [], "a test left a child"


def run(argv: list[str], **options: Any) -> dict[str, Any]:
    """Run the payload and parse it; its stderr has to stay empty."""
    options = {"stdin": subprocess.DEVNULL, "env": ENVIRONMENT, **options}
    with subprocess.Popen(
        [*argv, "-c", OBSERVE_SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        pipes = [os.readlink(f"/proc/self/fd/{s.fileno()}") for s in (child.stdout, child.stderr)]
        out, err = child.communicate()
    assert (child.returncode, err) == (0, b"")
    seen = parse_observation(out.decode("utf-8", "surrogateescape"))
    assert set(seen) == ALL_KEYS
    assert json.loads(json.dumps(seen)).keys() == seen.keys()
    if seen["fds"].get(1, "?") != "?":
        assert [seen["fds"].pop(1), seen["fds"].pop(2)] == pipes
    return seen


# --- shells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: " ".join(shell))
def test_each_shell_reports_the_same_truth(shell: list[str], tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    seen = run(shell, pass_fds=(read_fd,), cwd=tmp_path, start_new_session=True, umask=0o027)
    os.close(read_fd)
    os.close(write_fd)
    status = procfs.read_status(os.getpid())
    assert status is not None
    pid = seen["pid"]
    inodes = {k: v for k, v in procfs.namespaces(os.getpid()).items() if v is not None}
    assert {key: seen[key] for key in ALL_KEYS - {"signals", "mounts"}} == {
        "pid": pid,
        "ppid": os.getpid(),
        "pgrp": pid,
        "session": pid,
        "nspid": [*status.nspid[:-1], pid],
        "proc_is_own": len(status.nspid) == 1,
        "tty": False,
        "tty_nr": 0,
        "fds": {0: "/dev/null", read_fd: target},
        "capabilities": {
            "inheritable": status.cap_inheritable,
            "permitted": status.cap_permitted,
            "effective": status.cap_effective,
            "bounding": status.cap_bounding,
            "ambient": status.cap_ambient,
        },
        "no_new_privs": status.no_new_privs,
        "seccomp": status.seccomp,
        "namespaces": inodes,
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "uid_map": [list(row) for row in procfs.uid_map(os.getpid())],
        "gid_map": [list(row) for row in procfs.gid_map(os.getpid())],
        "environment": ENVIRONMENT,
        "cwd": str(tmp_path),
        "umask": 0o027,
        "hostname": os.uname().nodename,
        "missing": [],
    }
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    assert seen["mounts"] == [observe.parse_mount(line) for line in lines]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: " ".join(shell))
def test_inherited_dispositions_and_masks_are_seen_through_the_shell(shell: list[str]) -> None:
    def arrange() -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR1})

    signals = run(shell, preexec_fn=arrange)["signals"]
    assert signals["blocked"] == ["SIGUSR1"]
    # Besides SIGQUIT, which bash and busybox sh ignore of their own accord, and the C library's own
    # 32 and 33, which whatever posix_spawn(3) started ignores: make, and so these tests.
    others = {"SIGQUIT", "SIG32", "SIG33"}
    assert set(signals["ignored"]) - others == {"SIGUSR2"}
    assert set(run(shell)["signals"]["ignored"]) - others == set()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: " ".join(shell))
def test_missing_programs_are_named_and_the_rest_is_still_reported(
    shell: list[str], tmp_path: Path
) -> None:
    if "busybox" in shell[0]:
        pytest.skip("its programs are inside the shell")
    seen = run(shell, env={"PATH": str(tmp_path)})
    assert seen["missing"] == ["readlink", "tr"]
    assert seen["environment"] is None
    assert seen["namespaces"] == {}
    assert seen["fds"] == {0: "?", 1: "?", 2: "?"}
    assert seen["uid"] == os.geteuid()
    assert seen["mounts"]


def test_a_controlling_terminal_is_reported_through_itself() -> None:
    pid, terminal_fd = os.forkpty()
    if pid == 0:
        try:
            # Whatever started the tests may have left fds open for its children.
            os.closerange(3, 1024)
            os.execve("/bin/sh", ["sh", "-c", OBSERVE_SCRIPT], ENVIRONMENT)
        finally:
            os._exit(1)
    data = b""
    # Reading a terminal whose last user has gone is an error, not an end.
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal_fd, 65536):
            data += chunk
    os.close(terminal_fd)
    assert os.waitpid(pid, 0)[1] == 0
    seen = parse_observation(data.decode("utf-8", "surrogateescape"))
    assert (seen["tty"], seen["pid"], seen["session"]) == (True, pid, pid)
    # Unix98 terminals have major numbers 136 to 143.
    assert os.major(seen["tty_nr"]) in range(136, 144)
    assert set(seen["fds"]) == {0, 1, 2}
    assert seen["fds"][0].startswith("/dev/pts/")
    assert seen["environment"] == ENVIRONMENT


def test_the_payload_can_be_followed_by_more() -> None:
    script = OBSERVE_SCRIPT + "\necho after; exit 7"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 7
    assert done.stdout.endswith(observe.END_MARK + "\nafter\n")
    assert parse_observation("before, no line end" + done.stdout)["ppid"] == os.getpid()


# --- sandboxes -----------------------------------------------------------------------------------


each_bwrap = pytest.mark.parametrize("bwrap", find_bwraps())


def sandboxed(bwrap: str, *options: str, **others: Any) -> dict[str, Any]:
    return run([bwrap, "--dev-bind", "/", "/", *options, "sh"], **others)


@each_bwrap
@pytest.mark.parametrize(
    ("options", "pid", "ppid", "own_proc"),
    [
        (["--unshare-pid"], 2, 1, False),
        (["--unshare-pid", "--proc", "/proc"], 2, 1, True),
        (["--unshare-pid", "--proc", "/proc", "--dev", "/dev"], 2, 1, True),
        (["--unshare-pid", "--as-pid-1"], 1, 0, False),
        (["--unshare-pid", "--as-pid-1", "--proc", "/proc", "--dev", "/dev"], 1, 0, True),
        (["--unshare-user", "--unshare-pid"], 2, 1, False),
        (["--unshare-all", "--proc", "/proc", "--dev", "/dev"], 2, 1, True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_pids_are_those_of_the_sandbox_whoevers_proc_it_sees(
    bwrap: str, options: list[str], pid: int, ppid: int, own_proc: bool
) -> None:
    seen = sandboxed(bwrap, *options)
    assert (seen["pid"], seen["ppid"], seen["nspid"][-1]) == (pid, ppid, pid)
    assert (seen["proc_is_own"], len(seen["nspid"]) == 1) == (own_proc, own_proc)
    # The leaders of its group and session are outside, where it has no number for them.
    assert (seen["pgrp"], seen["session"]) == (0, 0)
    assert seen["fds"] == {0: "/dev/null"}
    assert seen["environment"]["LINES"] == ENVIRONMENT["LINES"]
    assert seen["no_new_privs"] is True
    assert seen["missing"] == []
    assert seen["namespaces"]["pid"] != procfs.namespaces(os.getpid())["pid"]
    assert ("/dev" in {m["mount_point"] for m in seen["mounts"] if m["fstype"] == "tmpfs"}) == (
        "--dev" in options
    )


@each_bwrap
def test_without_a_pid_namespace_pids_are_those_outside(bwrap: str) -> None:
    seen = sandboxed(bwrap)
    assert seen["nspid"][-1] == seen["pid"] > 2
    assert (seen["pgrp"], seen["session"]) == (os.getpgrp(), os.getsid(0))
    assert seen["namespaces"]["pid"] == procfs.namespaces(os.getpid())["pid"]


@each_bwrap
def test_ids_and_names_are_those_within(bwrap: str) -> None:
    options = ["--unshare-user", "--uid", "77", "--gid", "78", "--unshare-uts"]
    options += ["--hostname", "inside", "--new-session", "--chdir", "/tmp"]
    options += ["--setenv", "ADDED", "a\nb", "--unsetenv", "PLAIN"]
    seen = sandboxed(bwrap, *options)
    assert (seen["uid"], seen["gid"]) == (77, 78)
    assert seen["uid_map"] == [[77, os.geteuid(), 1]]
    assert seen["gid_map"] == [[78, os.getegid(), 1]]
    assert (seen["hostname"], seen["cwd"]) == ("inside", "/tmp")
    assert seen["session"] == seen["pgrp"] == seen["pid"]
    added = seen["environment"]
    assert added["ADDED"] == "a\nb"
    assert "PLAIN" not in added


@each_bwrap
def test_a_stray_fd_is_seen_and_a_fd_of_bwraps_own_is_not(bwrap: str) -> None:
    read_fd, write_fd = os.pipe()
    target = os.readlink(f"/proc/self/fd/{read_fd}")
    options = ["--unshare-pid", "--sync-fd", str(write_fd)]
    seen = sandboxed(bwrap, *options, pass_fds=(read_fd, write_fd))
    os.close(read_fd)
    os.close(write_fd)
    assert seen["fds"] == {0: "/dev/null", read_fd: target}


@each_bwrap
def test_without_proc_everything_else_is_reported(bwrap: str) -> None:
    seen = sandboxed(bwrap, "--unshare-pid", "--tmpfs", "/proc", "--chdir", "/")
    assert (seen["pid"], seen["ppid"], seen["cwd"]) == (2, 1, "/")
    assert {"/proc", "/proc/self/status", "/proc/self/environ"} <= set(seen["missing"])
    unknown = ["environment", "uid", "signals", "capabilities", "session", "tty", "proc_is_own"]
    assert [seen[key] for key in unknown] == [None] * len(unknown)
    assert (seen["fds"], seen["mounts"], seen["namespaces"]) == ({}, [], {})


# --- the parser ----------------------------------------------------------------------------------


def test_output_without_the_first_mark_is_no_observation() -> None:
    with pytest.raises(ValueError, match="the payload did not start"):
        parse_observation("sh: not found\n")


def test_a_report_that_was_cut_off_is_refused() -> None:
    done = subprocess.run(["sh", "-c", OBSERVE_SCRIPT], capture_output=True, text=True, check=True)
    assert parse_observation(done.stdout)
    with pytest.raises(ValueError, match="cut off"):
        parse_observation(done.stdout.replace(observe.END_MARK, ""))


def test_an_escaped_mount_is_read_back() -> None:
    line = (
        "36 35 98:0 /a\\040b /mnt\\011\\134x rw,noatime shared:1 master:2 - ext3 /dev/r\\043 rw,e"
    )
    assert observe.parse_mount(line) == {
        "mount_id": 36,
        "parent_id": 35,
        "root": "/a b",
        "mount_point": "/mnt\t\\x",
        "options": ["rw", "noatime"],
        "propagation": ["shared:1", "master:2"],
        "fstype": "ext3",
        "source": "/dev/r#",
        "super_options": ["rw", "e"],
    }


def test_a_mount_without_source_or_propagation_is_read() -> None:
    seen = observe.parse_mount("1 0 0:1 / / rw - rootfs  rw")
    assert (seen["fstype"], seen["source"], seen["super_options"]) == ("rootfs", "", ["rw"])
    assert seen["propagation"] == []
