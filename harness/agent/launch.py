"""Starting bwrap as a supervisor would: its arguments, environment, fds and dispositions.

``bwrap_argv`` and ``bwrap_environment`` are pure; ``start_bwrap`` forks and executes from whatever
thread calls it, because the thread matters: the parent-death signal of ``--die-with-parent`` is
tied to the thread that forked, not to the process (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import termios
from collections.abc import Mapping
from typing import Any

from harness.agent import kernel
from harness.agent.channels import STREAMS, Channel
from harness.agent.observe import OBSERVE_SCRIPT

#: bwrap starts with this and nothing else, so that a run does not depend on who runs it.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
#: --dev-bind, not --bind: the latter mounts nodev, and then even /dev/null cannot be opened.
HOST_BASE = ["--dev-bind", "/", "/"]
#: Sources of fds are moved up here before they are put on their numbers, so that putting one in
#: place never overwrites the source of the next.
PARKED_FD = 300
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9-]*)\}")


def load_library(plan: Mapping[str, Any]) -> None:
    """Import ``harness.supervise`` in this process if the plan needs it.

    Called before anything is forked: an import in every forked supervisor would take longer than
    bwrap does, and what is imported needlessly makes each fork dearer.
    """
    specs = [sandbox for sandbox in plan["sandboxes"].values() if sandbox.get("spec") is not None]
    if specs or plan.get("providers") or plan["supervisor"]["kind"] == "reference":
        import harness.agent.reference  # noqa: F401  and with it the library


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
    from harness.supervise.spec import SandboxSpec, bwrap_arguments  # see load_library

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


def _take_terminal(near_fd: int) -> None:
    """Make the terminal the controlling one of this session (tty_ioctl(4), TIOCSCTTY)."""
    fcntl.ioctl(near_fd, termios.TIOCSCTTY, 0)


def open_session(terminal_fd: int) -> None:
    """A session of the supervisor's own, with its controlling terminal if there is one.

    So that a signal to a process group never reaches the recorder, and ^C has a group to reach.
    """
    os.setsid()
    if terminal_fd >= 0:
        _take_terminal(terminal_fd)


def fd_sources(channels: Mapping[str, Channel]) -> dict[int, int]:
    """Number for bwrap -> near end here.  A number that must stay closed is left out."""
    sources: dict[int, int] = {}
    for channel in channels.values():
        if channel.option == "terminal":
            sources.update({0: channel.near_fd, 1: channel.near_fd, 2: channel.near_fd})
        elif channel.near_fd >= 0:
            sources.setdefault(channel.number, channel.near_fd)
    return sources


def start_bwrap(
    argv: list[str],
    environment: Mapping[str, str],
    channels: Mapping[str, Channel],
    sandbox: Mapping[str, Any],
) -> int:
    """Start bwrap from this thread, in the current directory; return its pid once it executes.

    posix_spawn(3), since a fork of a Python process costs half as much as all that bwrap does; the
    parent of the new process, for its parent-death signal, is the calling thread just the same.
    The channels' near ends stay the caller's.  OSError with the errno of execve when that failed.
    """
    sources = fd_sources(channels)
    signals = sandbox.get("signals", {})
    numbers = {name: getattr(signal, "SIG" + name) for name in signals}
    # Python ignores the first two from its start, and an ignored signal stays ignored across exec.
    defaults = {signal.SIGPIPE, signal.SIGXFSZ}
    defaults |= {numbers[name] for name, what in signals.items() if what == "default"}
    ignored = [numbers[name] for name, what in signals.items() if what == "ignore"]
    parked = {
        number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PARKED_FD) for number, fd in sources.items()
    }
    actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in parked.items()]
    if 0 not in sources:
        actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
    options: dict[str, Any] = {}
    if sandbox.get("session") == "own-session":
        options["setsid"] = True
    elif sandbox.get("session") == "own-group":
        options["setpgroup"] = 0
    # There is no "ignore" among spawn's attributes: it is inherited.  Only system calls here, no
    # signal module: that one refuses to work outside of the main thread.
    before = [(number, kernel.set_disposition(number, kernel.SIG_IGN)) for number in ignored]
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            dict(environment),
            file_actions=actions,
            setsigdef=sorted(defaults - set(ignored)),
            setsigmask=[numbers[name] for name, what in signals.items() if what == "block"],
            **options,
        )
    finally:
        for number, old in before:
            kernel.set_disposition(number, old)
        for fd in parked.values():
            os.close(fd)
