"""What bwrap is started with: its arguments, environment, fds and dispositions.

A plan and its open channels in, what ``harness.agent.spawn`` is to do out; nothing happens here.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from typing import Any

from harness.agent.channels import STREAMS, Channel
from harness.agent.observe import OBSERVE_SCRIPT

#: bwrap starts with this and nothing else, so that a run does not depend on who runs it.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
#: --dev-bind, not --bind: the latter mounts nodev, and then even /dev/null cannot be opened.
HOST_BASE = ["--dev-bind", "/", "/"]
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9-]*)\}")


def needs_library(plan: Mapping[str, Any]) -> bool:
    """Whether its supervisors need ``harness.supervise``."""
    specs = [sandbox for sandbox in plan["sandboxes"].values() if sandbox.get("spec") is not None]
    return bool(specs or plan.get("providers") or plan["supervisor"]["kind"] == "reference")


def command_argv(command: Mapping[str, Any]) -> list[str]:
    """What bwrap is told to execute."""
    if "argv" in command:
        return list(command["argv"])
    if "shell" in command:
        return ["/bin/sh", "-c", command["shell"]]
    script = OBSERVE_SCRIPT
    if command.get("then"):
        script = script.rstrip("\n") + "\n" + command["then"]
    return ["/bin/sh", "-c", script]


def fill_placeholders(text: str, scratch: str, channels: Mapping[str, Channel]) -> str:
    """Replace ``{scratch}`` and ``{channel}``; anything else in braces is left as it is."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "scratch":
            return scratch
        return str(channels[match[1]].number) if match[1] in channels else match[0]

    return _PLACEHOLDER.sub(value, text)


def spec_arguments(spec: Mapping[str, Any], scratch: str, environ: Mapping[str, str]) -> list[str]:
    """A small spec as bwrap arguments; ``SpecConflict`` when it contradicts itself."""
    from harness.supervise.spec import SandboxSpec, bwrap_arguments  # see recorder.record

    def fill(path: str) -> str:
        return fill_placeholders(path, scratch, {})

    socket_path = spec.get("control_socket")
    return bwrap_arguments(
        SandboxSpec(
            read_only=tuple(fill(path) for path in spec.get("read_only", ())),
            read_write=tuple(fill(path) for path in spec.get("read_write", ())),
            environment=tuple(spec.get("environment", ())),
            network=spec.get("network", "none"),
            control_socket=fill(socket_path) if socket_path else None,
        ),
        environ=environ,
        exists=os.path.exists,
    )


def bwrap_options(
    sandbox: Mapping[str, Any],
    channels: Mapping[str, Channel],
    scratch: str,
    environ: Mapping[str, str],
) -> list[str]:
    """Everything between ``bwrap`` and the command: base, spec, raw arguments, fd options."""
    options: list[str] = []
    if sandbox.get("spec") is not None:
        options += spec_arguments(sandbox["spec"], scratch, environ)
    elif sandbox.get("base", "host") == "host":
        options += HOST_BASE
    options += [fill_placeholders(arg, scratch, channels) for arg in sandbox.get("args", ())]
    for channel in channels.values():
        if channel.option and channel.option not in STREAMS and channel.option != "terminal":
            options += ["--" + channel.option, str(channel.number)]
    return options


def bwrap_environment(
    sandbox: Mapping[str, Any], scratch: str, ports: Mapping[str, int]
) -> dict[str, str]:
    """bwrap's environment: the base, HOME, SCRATCH, one NAME_PORT per listener, then its own."""
    environment = dict(BASE_ENVIRONMENT, HOME="/nonexistent", SCRATCH=scratch)
    for name, port in ports.items():
        environment[name.upper().replace("-", "_") + "_PORT"] = str(port)
    own = sandbox.get("env", {})
    environment.update({key: fill_placeholders(value, scratch, {}) for key, value in own.items()})
    return environment


def fd_sources(channels: Mapping[str, Channel]) -> dict[int, int]:
    """Number for bwrap -> near end here.  A number that must stay closed is left out."""
    sources: dict[int, int] = {}
    for channel in channels.values():
        if channel.option == "terminal":
            sources.update({0: channel.near_fd, 1: channel.near_fd, 2: channel.near_fd})
        elif channel.near_fd >= 0:
            sources.setdefault(channel.number, channel.near_fd)
    return sources


def launch_order(
    plan: Mapping[str, Any],
    name: str,
    prefix: str,
    channels: Mapping[str, Channel],
    scratch: str,
    ports: Mapping[str, int],
) -> dict[str, Any]:
    """What ``harness.agent.spawn.start_bwrap`` needs to know to launch one sandbox."""
    sandbox = plan["sandboxes"][name]
    environment = bwrap_environment(sandbox, scratch, ports)
    options = bwrap_options(sandbox, channels, scratch, environment)
    signals = sandbox.get("signals", {})
    numbers = {name: int(getattr(signal, "SIG" + name)) for name in signals}
    ignored = [numbers[name] for name, what in signals.items() if what == "ignore"]
    # Python ignores the first two from its start, and an ignored signal stays ignored across exec.
    defaults = {int(signal.SIGPIPE), int(signal.SIGXFSZ)}
    defaults |= {numbers[name] for name, what in signals.items() if what == "default"}
    return {
        "prefix": prefix,
        "argv": [plan["bwrap"], *options, *command_argv(sandbox["command"])],
        "environment": environment,
        "fds": fd_sources(channels),
        "closed_here": [
            channel.near_fd
            for channel in channels.values()
            if channel.near_fd >= 0 and "supervisor" not in channel.spec.get("copy_kept_by", ())
        ],
        "launched_by": sandbox.get("launched_by", "supervisor"),
        "session": sandbox.get("session"),
        "defaults": sorted(defaults - set(ignored)),
        "ignored": ignored,
        "blocked": [numbers[name] for name, what in signals.items() if what == "block"],
    }
