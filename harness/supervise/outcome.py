"""What became of one supervised sandbox, and the pure rule that decides it.

This module touches no process, no descriptor and no clock: ``decide`` is a table, and its tests
spawn nothing.  Read ``supervisor`` for how the facts are collected.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ExitStatus", "Outcome", "OutcomeKind", "ProviderReport", "Stop", "decide"]


class OutcomeKind(str, enum.Enum):
    """How a run ended; the values are stable and appear in ``Outcome.as_json``."""

    EXITED = "exited"
    """The command ended by itself; ``exit_code`` is its status as bwrap tells it.

    128+n may be a death by signal n or an ordinary exit: bwrap folds the two (bwrap(1), EXIT
    STATUS; containers/bubblewrap ``propagate_exit_status``), so nothing is inferred from it.
    """
    SIGNALLED = "signalled"
    """bwrap itself was killed by a signal that the supervisor did not send; see ``monitor``."""
    SETUP_FAILED = "setup-failed"
    """The command never ran, as far as bwrap knows: no ``exit-code`` line, bwrap exited non-zero.

    ``child_pid`` tells the two halves apart: None - nothing was launched (bad option); set - the
    sandbox failed in set-up or at exec.  Not airtight under a seccomp filter that denies
    ``write``: bwrap's proof of exec is a one-byte write behind the filter.
    """
    PROVIDER_LOST = "provider-lost"
    """The network provider ended or never became ready; ``provider.phase`` says when."""
    GATE_TIMEOUT = "gate-timeout"
    """The gate could not be opened within ``gate_deadline_s``; the command never ran."""
    WORKLOAD_TIMEOUT = "workload-timeout"
    """The command ran longer than ``workload_deadline_s`` after the gate opened."""
    READINESS_FAILED = "readiness-failed"
    """The far end of ``Launch.ready_fd`` closed without a byte; the command never ran."""
    CANCELLED = "cancelled"
    """The cancel descriptor became readable or hung up."""


class Stop(enum.Enum):
    """Why the supervisor itself ends a sandbox that has not ended."""

    PROVIDER_LOST = OutcomeKind.PROVIDER_LOST
    READINESS_FAILED = OutcomeKind.READINESS_FAILED
    CANCELLED = OutcomeKind.CANCELLED
    GATE_TIMEOUT = OutcomeKind.GATE_TIMEOUT
    WORKLOAD_TIMEOUT = OutcomeKind.WORKLOAD_TIMEOUT


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: exactly one of ``code`` and ``signal`` is set, never one integer."""

    code: int | None = None
    signal: int | None = None

    def as_json(self) -> dict[str, int]:
        """Return ``{"code": n}`` or ``{"signal": n}``."""
        if self.signal is not None:
            return {"signal": self.signal}
        return {"code": self.code if self.code is not None else -1}

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit status {self.code}"


@dataclass(frozen=True)
class ProviderReport:
    """The network provider's part in a run.

    ``phase`` is None unless the provider was lost; then ``"start"`` (it never said ready),
    ``"before-gate"`` (the command never ran) or ``"workload"``.  ``stderr_tail`` holds the last
    bytes of its stderr, decoded with replacement, at most ``provider.STDERR_TAIL_BYTES``.
    ``exit`` is None when a lost provider closed its liveness pipe and had to be killed.
    """

    name: str
    pid: int
    exit: ExitStatus | None
    stderr_tail: str
    phase: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "name": self.name,
            "pid": self.pid,
            "exit": None if self.exit is None else self.exit.as_json(),
            "stderr-tail": self.stderr_tail,
            "phase": self.phase,
        }


@dataclass(frozen=True)
class Outcome:
    """The result of ``supervise``.

    ``exit_code`` is the ``exit-code`` of the status stream; under ``provider-lost`` it is set only
    when the command had already ended in the wake-up that showed the loss.  ``monitor`` is how
    bwrap itself ended, also when the supervisor killed it.  ``child_pid`` is in the caller's pid
    namespace and names the sandbox's pid 1, not the command (containers/bubblewrap #553).
    """

    kind: OutcomeKind
    exit_code: int | None
    monitor: ExitStatus
    child_pid: int | None
    gate_opened: bool
    status_objects: tuple[Mapping[str, Any], ...] = ()
    provider: ProviderReport | None = None

    @property
    def succeeded(self) -> bool:
        """Tell whether the command ran to its end and its status is 0."""
        return self.kind is OutcomeKind.EXITED and self.exit_code == 0

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values, keys in kebab-case."""
        return {
            "kind": self.kind.value,
            "exit-code": self.exit_code,
            "monitor": self.monitor.as_json(),
            "child-pid": self.child_pid,
            "gate-opened": self.gate_opened,
            "status-objects": [dict(each) for each in self.status_objects],
            "provider": None if self.provider is None else self.provider.as_json(),
        }


def decide(
    *,
    stop: Stop | None,
    exit_code: int | None,
    monitor: ExitStatus | None,
    child_known: bool,
) -> OutcomeKind | None:
    """Return the kind that the facts of one wake-up amount to, or None to go on waiting.

    The facts are those that were true together, after the status stream was drained and *then*
    everything else was looked at: ``exit_code`` and ``monitor`` are what the workload and bwrap
    have already said, ``stop`` is the reason for ending the sandbox that was seen besides.

    The rule for ties, in order:

    1. An ``exit-code`` on record is the command's own end: it beats a cancellation and every
       deadline, which could no longer have changed anything.
    2. Against a lost provider only success counts.  Exit code 0: ``exited``, the loss could not
       have hurt it.  Anything else in the same wake-up: ``provider-lost`` with the exit code
       attached, because the failure may be the effect of the loss, and losing the provider must
       fail the run.
    3. bwrap exiting 0 after a ``child-pid`` line but without an ``exit-code`` line is success:
       under a filter that denies ``write`` bwrap cannot prove the exec to itself, but only the
       command's own status makes it exit 0.
    4. bwrap killed by a signal is ``signalled`` - read from its wait status, never from 128+n.
    5. bwrap exiting otherwise without an ``exit-code`` line is ``setup-failed`` (the three-way
       rule of containers/bubblewrap #257: both lines, the first line only, no line).
    """
    code = exit_code
    if code is None and child_known and monitor == ExitStatus(code=0):
        code = 0
    if stop is Stop.PROVIDER_LOST and code != 0:
        return OutcomeKind.PROVIDER_LOST
    if code is not None:
        return OutcomeKind.EXITED
    if monitor is not None:
        return OutcomeKind.SETUP_FAILED if monitor.signal is None else OutcomeKind.SIGNALLED
    return None if stop is None else stop.value
