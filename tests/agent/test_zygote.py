"""Supervisors that a small process forks: whose children they are, what they have, who knows."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_client import NOBODY, make_plan, wait_until
from agent_processes import in_child

import harness
from harness.agent import kernel, procfs
from harness.agent.clearing import end_descendants
from harness.agent.recorder import record
from harness.agent.talk import hear, say
from harness.agent.zygote import Zygote, start_zygote
from harness.model.timeline import Timeline, read_timelines
from harness.signature import signature

ROOT = Path(harness.__file__).parent.parent


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    """One of this process's own; nothing of it is left when a test is over."""
    kernel.set_child_subreaper()
    started = start_zygote()
    assert started is not None, "clone3 is refused here"
    try:
        yield started
    finally:
        started._sock.close()
        if started._next is not None:
            started._next[1].close()
        for pid in procfs.children_of(os.getpid()):
            os.waitpid(pid, kernel.WALL)
        kernel.set_child_subreaper(False)


@pytest.fixture
def base() -> Iterator[str]:
    """A folder for scratch directories that everybody can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder


def told(scratch: str, *held: int) -> dict[str, Any]:
    return {
        "held": list(held),
        "terminal": -1,
        "uid": NOBODY,
        "gid": NOBODY,
        "scratch": scratch,
    }


def test_a_supervisor_is_a_child_of_the_recorder_and_has_only_what_it_was_given(
    zygote: Zygote, base: str
) -> None:
    pid, sock = zygote.take()
    read_end, write_end = os.pipe()
    target = os.readlink(f"/proc/self/fd/{write_end}")
    say(sock, told(base, write_end), (write_end,))
    say(sock, {"do": "write", "order": 1, "fd": write_end, "text": "from it"})
    assert hear(sock) == ({"said": "done", "do": "write", "order": 1}, [])
    assert os.read(read_end, 64) == b"from it"
    process = procfs.read_process(pid)
    assert process is not None
    assert (process.ppid, process.pgrp) == (os.getpid(), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == base
    assert os.stat(f"/proc/{pid}").st_uid == NOBODY
    fds = procfs.fds(pid) or {}
    assert len(fds) == 5
    assert fds[1] == fds[2]
    assert [fd for fd in fds if fds[fd] == target]
    say(sock, {"do": "close", "order": 2, "fd": write_end})
    assert hear(sock)[0] == {"said": "done", "do": "close", "order": 2}
    os.close(write_end)
    assert os.read(read_end, 64) == b"", "nobody else has it"
    os.close(read_end)
    sock.close()


def test_only_who_asks_for_it_by_pid_is_told_that_a_supervisor_ended(zygote: Zygote) -> None:
    pid, sock = zygote.take()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    sock.close()
    assert os.waitpid(pid, kernel.WALL) == (pid, 0)


def test_the_next_supervisor_is_forked_once_and_is_in_no_recording(zygote: Zygote) -> None:
    (own,) = zygote.pids
    zygote.prepare()
    zygote.prepare()
    zygote.fetch()
    zygote.fetch()
    (prepared,) = zygote.pids - {own}
    assert procfs.children_of(os.getpid()) == sorted([own, prepared])
    assert procfs.descendants_by_children(os.getpid(), without=zygote.pids) == []
    pid, sock = zygote.take()
    assert pid == prepared
    assert zygote.pids == {own}
    sock.close()


def test_a_spared_process_lives_and_all_others_are_reaped(zygote: Zygote) -> None:
    pid, sock = zygote.take()
    ordinary = os.fork()
    if ordinary == 0:
        signal.pause()
    killed, reaped, leaks = end_descendants(5.0, spared=zygote.pids, unheard={pid})
    assert (killed, set(reaped), leaks) == ({pid, ordinary}, {pid, ordinary}, [])
    assert procfs.children_of(os.getpid()) == sorted(zygote.pids)
    sock.close()


def test_a_zygote_that_is_gone_is_told_by_what_needs_it(zygote: Zygote) -> None:
    (pid,) = zygote.pids
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: procfs.is_zombie(pid))
    for _ in range(2):
        zygote.prepare()
        with pytest.raises(OSError, match="the process that forks supervisors is gone") as told:
            zygote.take()
        assert told.value.errno == errno.ESRCH


def recorded(plan: dict[str, Any], base: str, zygote: Zygote | None) -> Timeline:
    path = os.path.join(base, "timeline")
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        record(plan, out, base, zygote)
    finally:
        os.close(out)
    with open(path, encoding="utf-8") as file:
        (timeline,) = read_timelines(file)
    return timeline


def said(timeline: Timeline) -> dict[str, str]:
    """What it comes to; under which numbers the supervisor holds its fds is nobody's business."""
    whole = signature(timeline)
    name = "fds of supervisor at fds"
    return {**whole, name: f"{whole[name].count(',') + 1} fds"}


def test_recordings_say_the_same_without_a_zygote(base: str, each_bwrap: str) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={
            "args": ["--unshare-pid"],
            "command": {"shell": "read x; echo $x; ls /proc/self/fd; exit 3"},
            "channels": {
                "status": {"option": "json-status-fd"},
                "input": {"option": "stdin", "held_by": "supervisor"},
            },
        },
        steps=[
            {"wait": {"object": "status", "has": "child-pid"}},
            {"probe": {"fds": "supervisor"}},
            {"write": {"to": "input", "text": "hello\n"}, "trigger": True},
            {"wait": {"exit": "monitor"}},
            {"settle": "2s"},
        ],
    )

    def be_a_recorder() -> list[dict[str, str]]:
        kernel.set_child_subreaper()
        without = said(recorded(plan, base, None))
        zygote = start_zygote()
        assert zygote is not None
        return [without, *(said(recorded(plan, base, zygote)) for _ in range(2))]

    without, first, second = in_child(be_a_recorder)
    assert without["end of monitor"] == "status 3"
    assert without == first == second


def test_what_every_supervisor_has_in_memory_is_little() -> None:
    # Each of these takes half a megabyte or more with what it imports itself.
    large = {"argparse", "collections", "contextlib", "enum", "functools", "json", "re", "signal"}
    large |= {"socket", "subprocess", "threading", "typing"}
    program = (
        "import sys; before = set(sys.modules); import harness.agent.startup; "
        "print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "harness.agent.zygote" in loaded
    assert loaded & large == set()


@pytest.mark.parametrize("module", ["kernel", "scripted", "spawn", "talk", "zygote"])
def test_a_supervisor_imports_nothing_that_its_user_may_be_unable_to_read(module: str) -> None:
    tree = ast.parse((ROOT / f"harness/agent/{module}.py").read_text())
    late = [
        ast.unparse(inner)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    # The recorder has it in memory when it forks the supervisor that needs it.
    late = [each for each in late if "harness.supervise" not in each]
    assert late == []


@pytest.mark.parametrize("launched_by", ["supervisor", "thread", "process"])
def test_a_supervisor_launches_in_every_way(base: str, bwrap: str, launched_by: str) -> None:
    plan = make_plan(
        bwrap,
        sandbox={"launched_by": launched_by, "command": {"shell": "exit 3"}},
        steps=[{"wait": {"exit": "monitor"}, "trigger": True}],
    )

    def be_a_recorder() -> dict[str, str]:
        kernel.set_child_subreaper()
        return signature(recorded(plan, base, start_zygote()))

    assert in_child(be_a_recorder)["end of monitor"] == "status 3"
