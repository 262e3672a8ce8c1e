"""The agent's process: a watchdog, and below it the recorder that serves plans.

Requests come as JSON lines on stdin, answers and timelines go as JSON lines to stdout; that is all
the harness needs to reach an agent here, in a container, or anywhere else.

    {"do": "facts", "uid": N, "tools": [...]}    -> {"reply": "facts", "facts": {...}, ...}
    {"do": "identify", "path": P, "uid", "gid"}  -> {"reply": "identify", ...}
    {"do": "record", "plan": {...}}              -> the lines of a timeline, up to recording-closed;
        or, when the plan names a file as "timeline", {"reply": "recorded"} once they are in there
    anything that goes wrong                     -> {"reply": "fault", "reason", "traceback"}

Two processes, so that nothing outlives the harness (design law 8).  Both are child-subreapers.
When the recorder is killed, its descendants fall to the watchdog, which kills and reaps them; when
the watchdog is killed, the recorder gets SIGTERM (its parent-death signal) and cleans up; when the
harness goes away, stdin hangs up, which the watchdog sees even while the recorder is busy.  With
the argument ``relayed`` there is a third one, between the recorder and stdout.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import select
import shutil
import signal
import stat
import sys
import tempfile
from typing import Any, NoReturn

from harness.agent import kernel
from harness.agent.clearing import close_all_but, end_descendants, remove_tree
from harness.agent.journal import write_all
from harness.agent.recorder import record
from harness.agent.relay import COMPLETE, start_relay

#: How long a recorder may go on after stdin hung up, to finish what it does in good order.
GRACE_S = 0.3
#: How long killed processes may take to be gone when the whole agent ends.
SWEEP_DEADLINE_S = 5.0
#: The argument of an agent whose answers go a long way: ``harness.agent.relay`` says why.
RELAYED = "relayed"
#: Exit status when there is no room to work in; the reason is on stderr.
UNFIT = 4
#: The longest request: a plan with bwrap's 9000 arguments fits.
_READ_BYTES = 1 << 16


#: What ends a process by default, and the watchdog in good order.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


#: Two that nobody can set, and two that Python ignores for us: a write tells what they would.
_LEFT_AS_THEY_ARE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}


class Terminated(BaseException):
    """SIGTERM: the recording is abandoned, and its clean-up runs."""


def main() -> NoReturn:
    """Serve until stdin ends.  Exit status 0, 70 when the recorder died, or UNFIT."""
    # Until there is somebody to hear them: what comes in between would end us with all left behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    kernel.set_child_subreaper()
    # The caller's would be a hidden part of every scenario: nohup(1) ignores SIGHUP, and a shell
    # without job control SIGINT and SIGQUIT in what it starts in the background.
    os.umask(0o022)
    for number in signal.valid_signals() - _LEFT_AS_THEY_ARE:
        signal.signal(number, signal.SIG_DFL)
    try:
        base = tempfile.mkdtemp(prefix="harness-", dir=_temporary_folder())
    except OSError as fault:
        write_all(2, f"no temporary folder can be made: {fault.strerror}\n".encode())
        os._exit(UNFIT)
    os.chmod(base, 0o755)
    relay, answers_fd = start_relay(1) if RELAYED in sys.argv[1:] else (0, 1)
    watchdog_pid = os.getpid()
    recorder = os.fork()
    if recorder == 0:
        _become_recorder(base, watchdog_pid, relay, answers_fd)
    if relay:
        os.close(answers_fd)  # or the relay would wait for us
    try:
        status = _guard(recorder)
        if relay:
            _await_relay(relay)
    finally:
        end_descendants(SWEEP_DEADLINE_S)
        remove_tree(base)
    os._exit(0 if status == 0 else 70)


def _temporary_folder() -> str | None:
    """Where sandboxes of another user can reach their scratch; None: where they are anyway.

    pam_tmpdir(8) gives root a TMPDIR that nobody else can enter.
    """
    given = tempfile.gettempdir()
    if os.geteuid() != 0 or _is_open_to_all(given):
        return None
    return next((path for path in ("/tmp", "/var/tmp") if _is_open_to_all(path)), None)


def _is_open_to_all(path: str) -> bool:
    """Whether every folder on the way to ``path``, and itself, may be entered by everybody."""
    path = os.path.realpath(path)
    while True:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return False
        if not mode & stat.S_IXOTH:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _guard(recorder: int) -> int:
    """Wait for the recorder, or for the harness to go away; the recorder is dead on return."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    pidfd = kernel.pidfd_open(recorder)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(0, 0)  # only hang-ups and errors: what is written there is the recorder's
    poll.register(wake_r, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    if pidfd not in ready:
        if wake_r in ready:  # we were told to end: so is the recorder, which cleans up
            os.kill(recorder, signal.SIGTERM)
        select.select([pidfd], [], [], GRACE_S)
        os.kill(recorder, signal.SIGKILL)
    _, status = os.waitpid(recorder, 0)
    return status


def _await_relay(relay: int) -> None:
    """Let the relay hand on what a dead recorder wrote last, before it is swept up with the rest.

    It does not end while an orphan holds its pipe, so it is told as well.
    """
    pidfd = kernel.pidfd_open(relay)
    os.kill(relay, COMPLETE)
    select.select([pidfd], [], [], GRACE_S)
    os.close(pidfd)


def _become_recorder(base: str, watchdog_pid: int, relay: int, answers_fd: int) -> NoReturn:
    status = 70
    try:
        os.dup2(answers_fd, 1)
        signal.signal(signal.SIGTERM, _terminate)
        kernel.set_parent_death_signal(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        if os.getppid() != watchdog_pid:  # it died before it could be waited for
            raise Terminated
        kernel.set_child_subreaper()
        close_all_but({0, 1, 2})
        # What exists by now lives as long as this process.  A collection that touches it would
        # make every forked supervisor copy those pages.
        gc.collect()
        gc.freeze()
        _serve(base, relay)
        status = 0
    except (Terminated, BrokenPipeError):
        end_descendants(SWEEP_DEADLINE_S)
        remove_tree(base)
    except BaseException as fault:
        _reply_fault(fault)
    finally:
        os._exit(status)


def _terminate(*_: Any) -> None:
    raise Terminated


def _serve(base: str, relay: int) -> None:
    reachable: dict[tuple[str, int], str] = {}
    buffered = b""
    while True:
        data = os.read(0, _READ_BYTES)
        if not data:
            return
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            try:
                _answer(json.loads(line), base, reachable)
            except BrokenPipeError:
                raise
            except Exception as fault:  # one bad request is no reason to lose those that follow
                _reply_fault(fault)
            if relay:
                os.kill(relay, COMPLETE)


def _answer(request: dict[str, Any], base: str, reachable: dict[tuple[str, int], str]) -> None:
    """Record, or have a question answered.  Whatever is raised here is answered with a fault.

    Questions are answered by a child, so that what it takes to answer them (subprocess, glob) is
    not in the memory of every supervisor that is forked from here.
    """
    if request["do"] != "record":
        _in_child(request, base)
        return
    plan = request["plan"]
    key = (plan["bwrap"], plan["uid"])
    if key not in reachable:
        question = {"do": "reach", "path": plan["bwrap"], "uid": plan["uid"], "gid": plan["gid"]}
        reachable[key] = _in_child(question, base, capture=True)["path"]
    plan["bwrap"] = reachable[key]
    if "timeline" in plan:
        _record_to_file(plan, base)
    else:
        record(plan, 1, base)


def _record_to_file(plan: dict[str, Any], base: str) -> None:
    """Record into a file of the harness's choice: beside the harness, nothing lies between.

    Each event reaches the kernel as it happens, so what was recorded survives both of us; and
    nobody is woken up for it.
    """
    out = os.open(plan["timeline"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        record(plan, out, base)
    finally:
        os.close(out)
    _reply("recorded")


def _in_child(request: dict[str, Any], base: str, *, capture: bool = False) -> dict[str, Any]:
    """Have a question answered by a forked child, on stdout or, captured, as the return value."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if capture:
                os.dup2(write_end, 1)
            os.close(read_end)
            _question(request, base)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as answered:
        text = answered.read()
    os.waitpid(pid, 0)
    answer: dict[str, Any] = json.loads(text) if capture else {}
    return answer


def _question(request: dict[str, Any], base: str) -> None:
    from harness.agent.facts import collect_facts
    from harness.agent.identify import NotProven, identify_bwrap, reachable_path

    try:
        if request["do"] == "reach":
            try:
                path = reachable_path(request["path"], request["uid"], request["gid"], base)
            except NotProven:
                path = request["path"]  # the recording will show what comes of it
            _reply("reach", path=path)
        elif request["do"] == "identify":
            found = identify_bwrap(request["path"], request["uid"], request["gid"], base)
            _reply("identify", **found)
        else:
            facts: dict[str, Any] = dict(collect_facts(request["uid"]))
            facts.update({f"tool:{name}": _tool(name) for name in request.get("tools", ())})
            _reply(
                "facts",
                facts=facts,
                python=platform.python_version(),
                kernel=platform.release(),
            )
    except Exception as fault:
        _reply_fault(fault)


def _reply_fault(fault: BaseException) -> None:
    import traceback  # rare, and not for every supervisor's memory

    reason = f"{type(fault).__name__}: {fault}"
    number = fault.errno if isinstance(fault, OSError) else None
    _reply(
        "fault",
        reason=reason,
        errno=number,
        filename=getattr(fault, "filename", None),
        traceback=traceback.format_exc(),
    )


def _tool(name: str) -> dict[str, Any]:
    found = shutil.which(name)
    return {
        "name": f"tool:{name}",
        "value": found,
        "ok": found is not None,
        "layer": "tool",
        "detail": found or f"{name} is not on PATH",
        "remedy": "" if found else f"install {name}",
    }


def _reply(name: str, **members: Any) -> None:
    text = json.dumps(dict(members, reply=name))
    write_all(1, text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stderr.flush()
