"""Probes: looks at what is, which write what they found and change nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from typing import Any, Callable

from harness.agent import kernel, procfs
from harness.agent.cast import Member
from harness.agent.recorder import Recording
from harness.agent.waiting import StepTimedOut, held, member, state_of
from harness.model.vocabulary import Kind


def probe(recording: Recording, step: dict[str, Any]) -> None:
    what = step["probe"]
    verb = next(key for key in PROBES if key in what)
    name = what.get("name") or verb.replace("_", "-")
    if verb == "census":
        recording.take_census(name)
    elif verb == "locks":
        _probe_locks(recording, name, what["locks"])
    elif verb == "connect":
        _probe_connection(recording, name, what, step["within"])
    else:
        target = member(recording, what[verb], step["within"])
        # A process that runs is on its way: the loader has a library open, a shell the file that it
        # redirects to.  What it has is what it has while it waits.
        if verb == "fds" and not recording.pump(
            lambda: state_of(target) not in "RD", step["within"], looks=True
        ):
            raise StepTimedOut
        PROBES[verb](recording, name, target)


def _probe_locks(recording: Recording, name: str, file: str) -> None:
    by_pid = {p["pid"]: p["member"] for p in recording.cast.census(recording.descendants)}
    found = [
        {
            "api": lock.api,
            "type": lock.kind,
            "pid": lock.pid,
            "member": by_pid.get(lock.pid or 0, "unknown"),
        }
        for lock in held(os.path.join(recording.scratch, file))
    ]
    recording.journal.write(Kind.LOCKS_PROBED, "observer", name=name, file=file, locks=found)


def _probe_fds(recording: Recording, name: str, target: Member) -> None:
    found = procfs.fds(target.pid)
    by_target = {c.target: c.lane for c in recording.channels.values() if c.target}
    recording.journal.write(
        Kind.FDS_PROBED,
        target.lane,
        name=name,
        fds=None if found is None else {str(number): link for number, link in found.items()},
        channels=sorted({by_target[link] for link in (found or {}).values() if link in by_target}),
    )


def _probe_namespaces(recording: Recording, name: str, target: Member) -> None:
    recording.journal.write(
        Kind.NAMESPACES_PROBED, target.lane, name=name, namespaces=procfs.namespaces(target.pid)
    )


def _probe_maps(recording: Recording, name: str, target: Member) -> None:
    recording.journal.write(
        Kind.UID_MAP_PROBED,
        target.lane,
        name=name,
        uid_map=procfs.uid_map(target.pid),
        gid_map=procfs.gid_map(target.pid),
    )


def _probe_signals(recording: Recording, name: str, target: Member) -> None:
    state = procfs.signal_state(target.pid)
    sets: dict[str, Any] = (
        {}
        if state is None
        else {
            kind: sorted(signal_name[3:] for signal_name in getattr(state, kind))
            for kind in ("blocked", "ignored", "caught", "pending")
        }
    )
    recording.journal.write(Kind.SIGNALS_PROBED, target.lane, name=name, **sets)


def _probe_connection(
    recording: Recording, name: str, what: dict[str, Any], within_ns: int
) -> None:
    """Try to reach a helper from a process's network namespace, in a forked child that joins it."""
    target = member(recording, what["from"], within_ns)
    port = recording.ports[what["connect"]]
    result_r, result_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(result_w, _connect_from(target.pid, port).encode())
        finally:
            os._exit(0)
    os.close(result_w)
    answer: list[str] = []

    def on_answer() -> None:
        answer.append(os.read(result_r, 64).decode())
        recording.unwatch(result_r)

    recording.watch(result_r, on_answer)
    try:
        if not recording.pump(lambda: bool(answer), within_ns):
            os.kill(pid, signal.SIGKILL)
            raise StepTimedOut
    finally:
        recording.unwatch(result_r)
        os.close(result_r)
        os.waitpid(pid, 0)
    recording.journal.write(
        Kind.CONNECTION_PROBED, target.lane, name=name, reached=answer[0] == "", errno=answer[0]
    )


def _connect_from(pid: int, port: int) -> str:
    """Empty when the helper was reached, else the name of the errno."""
    try:
        network = procfs.open_namespace(pid, "net")
        with contextlib.suppress(OSError):  # EINVAL: it is the one we are in already
            kernel.setns(kernel.owner_user_namespace(network), 0)
        kernel.setns(network, 0)
        with socket.create_connection(("10.0.2.2", port), timeout=2):
            return ""
    except OSError as fault:
        return errno.errorcode.get(fault.errno or 0, "timed-out")


PROBES: dict[str, Callable[[Recording, str, Member], None]] = {
    "locks": lambda *_: None,
    "fds": _probe_fds,
    "namespaces": _probe_namespaces,
    "uid_map": _probe_maps,
    "signals": _probe_signals,
    "census": lambda *_: None,
    "connect": lambda *_: None,
}
