"""One launch: what to start, and which requests contradict supervision.  No process is started."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.supervise.errors import LaunchRefused
from harness.supervise.provider import ProviderSpec

__all__ = ["GATE_DEADLINE_S", "OWNED_OPTIONS", "Launch", "bwrap_command", "check_launch"]

GATE_DEADLINE_S = 30.0
"""Default bound on the time until the gate opens.  Launch and provider together take about 40 ms
on an idle machine; the default is what a loaded one may need, not what is normal."""

OWNED_OPTIONS = frozenset({"--json-status-fd", "--sync-fd", "--block-fd", "--pidns", "--"})
"""Options that a launch must not hold.  The first three are the supervisor's own channels; with
``--pidns`` the sandbox's processes could outlive its child-pid; ``--`` ends the options."""


@dataclass(frozen=True)
class Launch:
    """Everything that ``supervise`` starts and waits for.

    ``options``: bwrap arguments without the supervisor's own (``OWNED_OPTIONS``), such as the
    result of ``bwrap_arguments``.  ``--die-with-parent`` and ``--unshare-pid`` are always added:
    without a pid namespace descendants survive every kill (bubblewrap #529), and the end of the
    sandbox could not be told from the end of its first process.

    ``stdin``, ``stdout``, ``stderr``: descriptors for the sandbox, None for the caller's own.
    ``pass_fds``: further descriptors, at their own numbers, for options such as ``--seccomp``.
    ``ready_fd``: one byte on it is required before the gate opens, and EOF instead of the byte
    fails the run.  All these descriptors stay the caller's, who closes them, its copies of write
    ends before ``supervise`` where an EOF is meant to be seen.

    ``gate_deadline_s`` runs from the start until the gate opens, ``workload_deadline_s`` from the
    gate's opening until the command ends.

    ``parent_death_signal``: ask the kernel to kill bwrap and the provider when the calling thread
    ends, from before the exec on; bwrap's own ``--die-with-parent`` starts only later.

    ``guard``: fork one more process that ends the sandbox when this one is killed (``guard``).
    """

    command: Sequence[str]
    options: Sequence[str] = ()
    bwrap: str = "bwrap"
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    pass_fds: Sequence[int] = ()
    provider: ProviderSpec | None = None
    ready_fd: int | None = None
    gate_deadline_s: float = GATE_DEADLINE_S
    workload_deadline_s: float | None = None
    parent_death_signal: bool = True
    guard: bool = True


def bwrap_command(launch: Launch, *, status_fd: int, sync_fd: int, block_fd: int) -> list[str]:
    """Return bwrap's whole argument list for a launch; pure.  The numbers are bwrap's own."""
    return [
        launch.bwrap,
        "--die-with-parent",
        "--unshare-pid",
        *("--json-status-fd", str(status_fd)),
        *("--sync-fd", str(sync_fd)),
        *("--block-fd", str(block_fd)),
        *launch.options,
        "--",
        *launch.command,
    ]


def check_launch(launch: Launch) -> None:
    """Raise LaunchRefused, naming every contradiction, before anything is started.

    A descriptor that is not open is refused because bwrap does not notice: a closed block-fd lets
    the command run at once (bubblewrap #635), a closed status fd strands a child for ever.
    """
    problems = [
        f"option {option!r} belongs to the supervisor; remove it"
        for option in sorted(OWNED_OPTIONS.intersection(launch.options))
    ]
    if not launch.command:
        problems.append("expected a command, got none")
    for fd in launch.pass_fds:
        if fd <= 2:
            problems.append(f"pass_fds holds {fd}; name stdio by stdin, stdout and stderr")
    given = (launch.stdin, launch.stdout, launch.stderr, launch.ready_fd, *launch.pass_fds)
    problems += [
        f"descriptor {fd} is not open" for fd in given if fd is not None and not _is_open(fd)
    ]
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # The kernel would reap bwrap itself and throw its exit status away (wait(2), NOTES).
        problems.append("SIGCHLD is ignored; set it to SIG_DFL, or bwrap's exit status is lost")
    if problems:
        raise LaunchRefused("; ".join(problems))


def _is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except (OSError, ValueError):
        return False
    return True
