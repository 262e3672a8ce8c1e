"""The recorder's process: it answers questions and serves plans, one at a time.

Requests come as JSON lines on stdin, answers and timelines go as JSON lines to stdout; that is all
the harness needs to reach an agent here, in a container, or anywhere else.

    {"do": "facts", "uid": N, "tools": [...]}    -> {"reply": "facts", "facts": {...}, ...}
    {"do": "identify", "path": P, "uid", "gid"}  -> {"reply": "identify", ...}
    {"do": "record", "plan": {...}}              -> the lines of a timeline, up to recording-closed;
        or, when the plan names a file as "timeline", {"reply": "recorded"} once they are in there
    anything that goes wrong                     -> {"reply": "fault", "reason", "traceback"}

Who else there is, ``harness.agent.startup`` tells.
"""

from __future__ import annotations

import gc
import json
import marshal
import os
import platform
import shutil
import signal
import sys
from typing import Any, NoReturn

from harness.agent import kernel
from harness.agent.clearing import SWEEP_DEADLINE_S, end_descendants, remove_tree
from harness.agent.journal import write_all
from harness.agent.recorder import record
from harness.agent.relay import COMPLETE
from harness.agent.scripted import ENDING
from harness.agent.zygote import Zygote

#: The longest request: a plan with bwrap's 9000 arguments fits.
_READ_BYTES = 1 << 16


class Terminated(BaseException):
    """SIGTERM: the recording is abandoned, and its clean-up runs."""


def become_recorder(watchdog_pid: int, told_r: int, zygote: Zygote | None) -> NoReturn:
    """Serve until stdin ends.  Where to work comes through ``told_r``; nothing does, nothing is."""
    status, base = 70, ""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        kernel.set_parent_death_signal(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if os.getppid() != watchdog_pid:  # it died before it could be waited for
            raise Terminated
        told = os.read(told_r, _READ_BYTES)
        os.close(told_r)
        if told:
            base, relay = marshal.loads(told)
            # What exists by now lives as long as this process.  A collection that touches it would
            # make every forked process copy those pages.
            gc.collect()
            gc.freeze()
            if zygote is not None:
                zygote.prepare()
            _serve(base, relay, zygote)
        status = 0
    except (Terminated, BrokenPipeError):
        end_descendants(SWEEP_DEADLINE_S)
        if base:
            remove_tree(base)
    except BaseException as fault:
        _reply_fault(fault)
    finally:
        os._exit(status)


def _terminate(*_: Any) -> None:
    raise Terminated


def _serve(base: str, relay: int, zygote: Zygote | None) -> None:
    reachable: dict[tuple[str, int], str] = {}
    buffered = b""
    while True:
        data = os.read(0, _READ_BYTES)
        if not data:
            return
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            try:
                _answer(json.loads(line), base, reachable, zygote)
            except BrokenPipeError:
                raise
            except Exception as fault:  # one bad request is no reason to lose those that follow
                _reply_fault(fault)
            if relay:
                os.kill(relay, COMPLETE)


def _answer(
    request: dict[str, Any],
    base: str,
    reachable: dict[tuple[str, int], str],
    zygote: Zygote | None,
) -> None:
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
        _record_to_file(plan, base, zygote)
    else:
        record(plan, 1, base, zygote)


def _record_to_file(plan: dict[str, Any], base: str, zygote: Zygote | None) -> None:
    """Record into a file of the harness's choice: beside the harness, nothing lies between.

    Each event reaches the kernel as it happens, so what was recorded survives both of us; and
    nobody is woken up for it.
    """
    out = os.open(plan["timeline"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        record(plan, out, base, zygote)
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
