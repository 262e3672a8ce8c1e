"""The reference supervisor as a member of the cast.

A forked process runs ``harness.supervise`` on one sandbox and tells the recorder every fact that
the library reports, with a pidfd for every process it names, and in the end its outcome.  The
recorder can kill it, stop it or signal it as it can any supervisor.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Mapping
from typing import Any, NoReturn

from harness.agent import kernel
from harness.agent.channels import STREAMS, Channel
from harness.agent.launch import bwrap_environment, bwrap_options, command_argv, fd_sources
from harness.agent.spawn import drop_identity, open_session
from harness.agent.talk import hear, say
from harness.supervise import (
    Launch,
    ProviderSpec,
    SpecConflict,
    SuperviseError,
    cancel_on_signals,
    supervise,
)

#: Which of the library's facts name a process, and what that process is called in the cast.
_PROCESS_FACTS = {
    "guard-started": "guard",
    "monitor-started": "monitor",
    "child-identified": "child",
}


def become_reference_supervisor(
    sock: _socket.socket,
    plan: dict[str, Any],
    name: str,
    channels: dict[str, Channel],
    scratch: str,
    ports: dict[str, int],
) -> NoReturn:
    """What the forked process runs: wait for the word to launch, supervise, report, end."""
    try:
        open_session(-1)
        drop_identity(plan["uid"], plan["gid"])
        os.chdir(scratch)
        with cancel_on_signals() as cancel_fd:
            message, _ = hear(sock)
            if message is not None:
                _report(sock, plan, name, channels, scratch, ports, cancel_fd)
    except BaseException as fault:
        reason = f"{type(fault).__name__}: {fault}"
        say(sock, {"said": "crashed", "reason": reason})
    finally:
        os._exit(0)


def _report(
    sock: _socket.socket,
    plan: dict[str, Any],
    name: str,
    channels: dict[str, Channel],
    scratch: str,
    ports: dict[str, int],
    cancel_fd: int,
) -> None:
    prefix = name + "." if len(plan["sandboxes"]) > 1 else ""
    providers = {
        lane: spec for lane, spec in plan.get("providers", {}).items() if spec["for"] == name
    }

    def on_event(fact: str, fields: Mapping[str, Any]) -> None:
        _pass_on(sock, prefix, fact, dict(fields), next(iter(providers), "provider"))

    try:
        launch = make_launch(plan, name, channels, scratch, ports, providers)
        outcome = supervise(launch, on_event=on_event, cancel_fd=cancel_fd).as_json()
    except (SuperviseError, SpecConflict) as refused:
        outcome = {"kind": "refused", "reason": str(refused), "error": type(refused).__name__}
    say(sock, {"said": "outcome", "outcome": outcome})


def _pass_on(
    sock: _socket.socket, prefix: str, fact: str, fields: dict[str, Any], provider: str
) -> None:
    lane = prefix + _PROCESS_FACTS[fact] if fact in _PROCESS_FACTS else ""
    if fact == "provider-started":
        lane = provider
    if lane:
        said = "provider-started" if lane == provider else "started"
        # The library always adds --unshare-pid, so there is always a reaper.
        more = {"argv": ["--unshare-pid"]} if fact == "monitor-started" else {}
        try:
            pidfd = kernel.pidfd_open(fields["pid"])
        except ProcessLookupError:
            # bwrap has waited for its child already: there is nothing left to watch.
            say(sock, {"said": "event", "name": fact, "fields": fields})
            return
        try:
            say(sock, {"said": said, "lane": lane, "pid": fields["pid"], **more}, (pidfd,))
        finally:
            os.close(pidfd)
    if fact in ("monitor-exited", "provider-exited", "provider-stopped"):
        ended = {key: fields[key] for key in ("code", "signal") if fields.get(key) is not None}
        lane = prefix + "monitor" if fact == "monitor-exited" else provider
        if ended:
            say(sock, {"said": "exited", "lane": lane, "pid": None, **ended})
    say(sock, {"said": "event", "name": fact, "fields": fields})


def make_launch(
    plan: dict[str, Any],
    name: str,
    channels: dict[str, Channel],
    scratch: str,
    ports: dict[str, int],
    providers: Mapping[str, dict[str, Any]],
) -> Launch:
    """The plan's sandbox as the library wants it.  ``SpecConflict`` when its spec is refused."""
    sandbox = plan["sandboxes"][name]
    supervisor = plan["supervisor"]
    environment = bwrap_environment(sandbox, scratch, ports)
    sources = fd_sources(channels)
    ready = channels.get(supervisor.get("ready_when", ""))
    passed = []
    for channel in channels.values():
        if channel.option not in STREAMS and channel is not ready and channel.near_fd >= 0:
            os.dup2(channel.near_fd, channel.number, inheritable=False)
            passed.append(channel.number)
    chosen = None
    for lane, spec in providers.items():
        chosen = ProviderSpec(
            program=spec.get("program") or "slirp4netns",
            name=lane,
            extra_arguments=tuple(spec.get("options", ())),
        )
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    return Launch(
        command=command_argv(sandbox["command"]),
        options=bwrap_options(sandbox, channels, scratch, environment),
        bwrap=plan["bwrap"],
        env=environment,
        cwd=scratch,
        stdin=sources.get(0, null),
        stdout=sources.get(1),
        stderr=sources.get(2),
        pass_fds=tuple(passed),
        provider=chosen,
        ready_fd=ready.near_fd if ready is not None else None,
        gate_deadline_s=supervisor["gate_deadline"] / 1e9,
    )


__all__ = ["become_reference_supervisor", "make_launch"]
