"""What the environment allows: the facts behind ``doctor``, skips and remedies.

Whether something works is found out by trying it in a forked child, not by reading settings;
settings only tell *who* refused. Each refusal names its layer and one sentence on what to do.
Nothing is left: the child's namespaces end with it, and it is reaped before the answer is given.

Takes about 25 ms, half of it for the trials and half for the versions of tools, which are run side
by side. Forks, so call it before starting threads. Longer than most modules: one short function
for each thing that can be in the way.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypedDict

from harness.agent import kernel, procfs

# How long all tools together may take to print their versions, in seconds; they take about 0.01.
_TOOL_DEADLINE_S = 2.0

_TOOLS = ("bwrap", "slirp4netns", "pasta", "strace")

# Not asked for a version: sh has no option for it, and the start of an interpreter, or of the
# script that chooses one, takes longer than everything else together (0.1 s for a pyenv shim).
_INTERPRETERS = ("sh", "python3")

_SYSCTLS = (
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.yama.ptrace_scope",
)

# Trial step -> flag. The order is that of the trial: without a user namespace the rest is moot.
_NAMESPACES = {
    "mount-namespace": kernel.CLONE_NEWNS,
    "network-namespace": kernel.CLONE_NEWNET,
    "ipc-namespace": kernel.CLONE_NEWIPC,
    "uts-namespace": kernel.CLONE_NEWUTS,
    "cgroup-namespace": kernel.CLONE_NEWCGROUP,
    "pid-namespace": kernel.CLONE_NEWPID,
}
_STEPS = ("user-namespaces", "id-maps", *_NAMESPACES, "proc-mount")


# Sends one step's name and errno; a trial is given it and calls it for each step.
_Report = Callable[[str, int], None]
_Trial = Callable[[_Report], None]


class Fact(TypedDict):
    """One fact. ``value`` is JSON-able; ``ok`` is false for what makes scenarios skip.

    ``layer`` is who decides: kernel, sysctl, apparmor, seccomp, procfs, device, tool, identity.
    ``detail`` says what was seen; ``remedy`` what to do about it, empty when ``ok``.
    """

    name: str
    value: Any
    ok: bool
    layer: str
    detail: str
    remedy: str


def _fact(
    name: str, value: Any, layer: str, *, ok: bool = True, detail: str = "", remedy: str = ""
) -> Fact:
    return {
        "name": name,
        "value": value,
        "ok": ok,
        "layer": layer,
        "detail": detail,
        "remedy": "" if ok else remedy,
    }


def collect_facts(uid: int | None = None) -> dict[str, Fact]:
    """Collect all facts for sandboxes that run as ``uid`` (None: as this process), by name.

    Another uid than one's own needs root; without it the fact ``identity`` is not ok and the
    trials run as this process. Never raises for a refusal: that is what the facts are about.
    """
    target = os.geteuid() if uid is None else uid
    switch = os.geteuid() == 0 and target != 0
    settings = read_sysctls()
    confinement = _confinement()
    results = _in_child(target if switch else None, _trial)
    tun = _in_child(target if switch else None, _try_tun)
    found = [
        _identity(target),
        _fact("kernel", platform.release(), "kernel", detail=platform.machine()),
        *(_fact(name, value, "sysctl") for name, value in settings.items()),
        *confinement,
        *judge_trial(results, settings, str(confinement[0]["value"]), int(confinement[1]["value"])),
        _tun(tun),
        *_tools(),
        *_kernel_features(),
        _wait_channels(settings),
        _cgroup(),
        _container(),
    ]
    return {fact["name"]: fact for fact in found}


# --- trials in a child ---------------------------------------------------------------------------


def _become(uid: int) -> None:
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = uid
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # The change of uid gave /proc/self to root, and then this process could not write its id maps.
    kernel.set_dumpable(True)


def _code(call: Callable[..., object], *args: object) -> int:
    """Run a call and return its errno, 0 for success."""
    try:
        call(*args)
    except OSError as problem:
        return problem.errno or errno.EIO
    return 0


def _in_child(uid: int | None, trial: _Trial) -> dict[str, int]:
    """Run ``trial(report)`` as ``uid`` in a forked child; collect what it reported.

    ``report(name, errno)`` sends at once, so that a child which is killed half-way, as a seccomp
    filter may do, still tells how far it got. Its death by a signal is ``{"killed": signal}``.
    """
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(uid, trial, write_fd)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as stream:
        lines = stream.read().splitlines()
    status = _reap(pid)
    results: dict[str, int] = {}
    for line in lines:
        results.update(json.loads(line))
    if os.WIFSIGNALED(status):
        results["killed"] = os.WTERMSIG(status)
    return results


def _reap(pid: int) -> int:
    """Wait for a child; its wait status, or 0 where none is kept since SIGCHLD is ignored."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def _run_child(uid: int | None, trial: _Trial, write_fd: int) -> NoReturn:
    def report(name: str, code: int) -> None:
        os.write(write_fd, json.dumps({name: code}).encode() + b"\n")

    # Whatever happens, the child must not return into the caller's stack.
    try:
        kernel.set_parent_death_signal(signal.SIGKILL)
        if uid is not None:
            _become(uid)
        trial(report)
    except OSError as problem:
        report("identity", problem.errno or errno.EIO)
    finally:
        os._exit(0)


def _write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _map_ids(uid: int, gid: int) -> None:
    _write_file("/proc/self/setgroups", "deny")
    _write_file("/proc/self/uid_map", f"0 {uid} 1")
    _write_file("/proc/self/gid_map", f"0 {gid} 1")


def _mount_proc() -> None:
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("proc", "/proc", "proc")


def _trial(report: _Report) -> None:
    uid, gid = os.geteuid(), os.getegid()
    code = _code(kernel.unshare, kernel.CLONE_NEWUSER)
    report("user-namespaces", code)
    if code:
        return
    report("id-maps", _code(_map_ids, uid, gid))
    codes = {name: _code(kernel.unshare, flag) for name, flag in _NAMESPACES.items()}
    for name, code in codes.items():
        report(name, code)
    if codes["mount-namespace"] or codes["pid-namespace"]:
        return
    # The new pid namespace applies to children only, and the first is its pid 1.
    pid = os.fork()
    if pid == 0:
        try:
            report("proc-mount", _code(_mount_proc))
        finally:
            os._exit(0)
    _reap(pid)


def _try_tun(report: _Report) -> None:
    report("tun", _code(lambda: os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))))


# --- verdicts on trials --------------------------------------------------------------------------


def judge_trial(
    results: dict[str, int], settings: dict[str, str | None], apparmor: str, seccomp: int
) -> list[Fact]:
    """Turn the errnos of a trial into facts; pure.

    ``results`` maps a step to its errno, and ``killed`` to the signal that ended the trial. A
    step without an entry was not reached. ``apparmor`` is the profile, empty when disabled.
    """
    facts = []
    failed = ""
    for step in _STEPS:
        code = results.get(step)
        if code == 0:
            facts.append(_fact(step, True, "kernel", detail="tried, and it works"))
            continue
        if code is not None:
            layer, remedy = explain(step, code, settings, apparmor, seccomp)
            detail = f"{errno.errorcode.get(code, code)}: {os.strerror(code)}"
        elif "killed" in results and not failed:
            layer = "seccomp"
            detail = f"the trial was killed by {procfs.signal_name(results['killed'])}"
            remedy = _SECCOMP_REMEDY
        else:
            layer = "kernel"
            reason = failed or ("identity" if "identity" in results else "the trial")
            detail = f"not tried, since {reason} failed"
            remedy = f"See {reason}."
        failed = failed or step
        facts.append(_fact(step, False, layer, ok=False, detail=detail, remedy=remedy))
    return facts


_SECCOMP_REMEDY = (
    "Start the container with a seccomp profile that allows unshare, clone and mount "
    "(docker: --security-opt seccomp=unconfined)."
)
_APPARMOR_REMEDY = (
    "Give bwrap an AppArmor profile with the 'userns' permission, or run "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0; in a container add "
    "--security-opt apparmor=unconfined."
)


def explain(
    step: str, code: int, settings: dict[str, str | None], apparmor: str, seccomp: int
) -> tuple[str, str]:
    """Name the layer that most likely refused ``step`` with errno ``code``, and the remedy; pure.

    Errnos as in user_namespaces(7), unshare(2) and mount_namespaces(7). Where several layers give
    the same errno, the one whose setting is known to refuse is named first.
    """
    user = step == "user-namespaces"
    if code in (errno.ENOSPC, errno.EUSERS):
        limit = "user" if user else step.partition("-")[0].replace("mount", "mnt")
        limit = limit.replace("network", "net")
        return "sysctl", f"Raise the limit: sysctl user.max_{limit}_namespaces=10000."
    if code == errno.ENOSYS and seccomp:
        return "seccomp", _SECCOMP_REMEDY
    if code in (errno.EINVAL, errno.ENOSYS):
        return "kernel", f"Use a kernel that is built with support for {step}."
    if step == "proc-mount" and code == errno.EPERM:
        return "procfs", (
            "The visible /proc is partly masked: start the container with "
            "--security-opt systempaths=unconfined (podman: unmask=ALL)."
        )
    if user and settings.get("kernel.unprivileged_userns_clone") == "0":
        return "sysctl", "Allow them: sysctl kernel.unprivileged_userns_clone=1."
    if settings.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return "apparmor", _APPARMOR_REMEDY
    if seccomp:
        return "seccomp", _SECCOMP_REMEDY
    if apparmor not in ("", "unconfined"):
        return "apparmor", _APPARMOR_REMEDY
    return "kernel", (
        "Run outside a chroot, with ids that are mapped in this user namespace, or give the "
        "container --privileged."
    )


# --- settings and confinement --------------------------------------------------------------------


def _text(path: str) -> str | None:
    data = procfs.read_bytes(path)
    return None if data is None else data.decode("utf-8", "replace").strip("\0\n ")


def read_sysctls() -> dict[str, str | None]:
    """Read the settings that bear on unprivileged sandboxes; None where the kernel has none."""
    return {name: _text("/proc/sys/" + name.replace(".", "/")) for name in _SYSCTLS}


def _confinement() -> list[Fact]:
    enabled = _text("/sys/module/apparmor/parameters/enabled") == "Y"
    current = _text("/proc/self/attr/apparmor/current") or _text("/proc/self/attr/current") or ""
    # "docker-default (enforce)": the mode is not part of the profile's name.
    profile = current.partition(" (")[0] if enabled else ""
    status = procfs.read_status(os.getpid())
    seccomp = 0 if status is None else max(status.seccomp, 0)
    no_new_privs = bool(status and status.no_new_privs)
    return [
        _fact("apparmor", profile, "apparmor", detail=current if enabled else "not enabled"),
        _fact("seccomp", seccomp, "seccomp", detail=("off", "strict", "filter")[min(seccomp, 2)]),
        _fact("no-new-privs", no_new_privs, "kernel", detail="set-user-ID programs gain nothing"),
    ]


def _identity(target: int) -> Fact:
    own = os.geteuid()
    return _fact(
        "identity",
        target,
        "identity",
        ok=own in (0, target),
        detail=f"running as uid {own}, sandboxes as uid {target}",
        remedy=f"Run as root, or as uid {target}.",
    )


# --- devices, tools, features --------------------------------------------------------------------


def _tun(results: dict[str, int]) -> Fact:
    try:
        mode = f"{stat.S_IMODE(os.stat('/dev/net/tun').st_mode):04o}"
    except OSError as problem:
        return _fact(
            "tun",
            False,
            "device",
            ok=False,
            detail=f"/dev/net/tun: {problem.strerror}",
            remedy="Load the tun module, or start the container with --device /dev/net/tun.",
        )
    code = results.get("tun", errno.EIO)
    return _fact(
        "tun",
        code == 0,
        "device",
        ok=code == 0,
        detail=f"/dev/net/tun has mode {mode}" + (f"; {os.strerror(code)}" if code else ""),
        remedy="chmod 0666 /dev/net/tun, or allow the device in the container's device cgroup.",
    )


def _versions(paths: dict[str, str]) -> dict[str, str]:
    """Run every tool with --version side by side; first line of each, empty on failure."""
    running = {}
    for name, path in paths.items():
        try:
            running[name] = subprocess.Popen(
                [path, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError:
            continue
    found = {}
    for name, process in running.items():
        try:
            output, _ = process.communicate(timeout=_TOOL_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        found[name] = (output.decode("utf-8", "replace").splitlines() or [""])[0].strip()
    return found


def _tools() -> list[Fact]:
    paths = {name: path for name in _TOOLS for path in [shutil.which(name)] if path}
    versions = _versions(paths)
    facts = [
        _fact(
            f"tool:{name}",
            versions.get(name, "") if name in paths else None,
            "tool",
            ok=name in paths,
            detail=paths.get(name, "not in PATH"),
            remedy=f"Install {name}.",
        )
        for name in _TOOLS
    ]
    for name in _INTERPRETERS:
        path = shutil.which(name)
        facts.append(
            _fact(
                f"tool:{name}",
                None if path is None else os.path.basename(os.path.realpath(path)),
                "tool",
                ok=path is not None,
                detail=path or "not in PATH",
                remedy=f"Install {name}.",
            )
        )
    own = ".".join(map(str, sys.version_info[:3]))
    facts.append(_fact("interpreter", own, "tool", detail=sys.executable))
    setuid = []
    for name in ("bwrap", "newuidmap", "newgidmap"):
        path = shutil.which(name)
        if path is not None and os.stat(path).st_mode & stat.S_ISUID:
            setuid.append(name)
    facts.append(_fact("set-user-id", setuid, "tool", detail="helpers that run as their owner"))
    return facts


def _kernel_features() -> list[Fact]:
    def pidfd() -> None:
        fd = kernel.pidfd_open(os.getpid())
        try:
            kernel.pidfd_send_signal(fd, 0)
        finally:
            os.close(fd)

    children = os.path.exists("/proc/thread-self/children")
    facts = []
    for name, code in (("pidfd", _code(pidfd)), ("subreaper", _code(kernel.child_subreaper))):
        facts.append(
            _fact(
                name,
                code == 0,
                "kernel",
                ok=code == 0,
                detail=os.strerror(code) if code else "tried, and it works",
                remedy="Use Linux 5.3 or later, and a seccomp profile that knows its calls.",
            )
        )
    facts.append(_fact("children-files", children, "procfs", detail="/proc/PID/task/TID/children"))
    return facts


def _wait_channels(settings: dict[str, str | None]) -> Fact:
    """Try whether a child's system call can be read, on which ``blocked_reading`` depends."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(write_fd)
            os.read(read_fd, 1)
        finally:
            os._exit(0)
    try:
        found = procfs.read_bytes(f"/proc/{pid}/syscall")
    finally:
        os.close(read_fd)
        os.close(write_fd)
        _reap(pid)
    scope = settings.get("kernel.yama.ptrace_scope")
    return _fact(
        "wait-channels",
        found is not None,
        "procfs" if scope in (None, "0", "1") else "sysctl",
        ok=found is not None,
        detail="/proc/PID/syscall of a child",
        remedy="Give the container --cap-add SYS_PTRACE, or set kernel.yama.ptrace_scope to 1.",
    )


def _cgroup() -> Fact:
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return _fact("cgroup", 2, "kernel", detail="unified hierarchy")
    mounts = procfs.read_bytes("/proc/self/mountinfo") or b""
    if b" - cgroup " in mounts:
        hybrid = b" - cgroup2 " in mounts
        return _fact("cgroup", 1, "kernel", detail="hybrid" if hybrid else "legacy hierarchies")
    return _fact("cgroup", 0, "kernel", detail="none mounted")


def _container() -> Fact:
    value = "none"
    if os.path.exists("/.dockerenv"):
        value = "docker"
    elif os.path.exists("/run/.containerenv"):
        value = "podman"
    elif (procfs.environ(1) or {}).get("container"):
        value = (procfs.environ(1) or {})["container"]
    elif procfs.uid_map(os.getpid()) != [(0, 0, 4294967295)]:
        value = "user namespace"
    return _fact("container", value, "kernel", detail="where this process runs")
