"""The reference supervisor: what a program that runs bwrap sandboxes has to do, as a library.

::

    from harness.supervise import Launch, ProviderSpec, SandboxSpec, bwrap_arguments, supervise

    options = bwrap_arguments(
        SandboxSpec(network="provider"), environ=os.environ, exists=os.path.exists
    )
    outcome = supervise(Launch(["curl", url], options=options, provider=ProviderSpec()))

What a correct supervisor does, and why:

1. It holds the command behind ``--block-fd`` until everything is in place, with a deadline, and
   opens the gate by a byte.  EOF opens the gate too, so it never lets the pipe end by accident.
2. It aborts a held gate by killing child-pid *first*, then bwrap, and closes the gate last:
   killing bwrap alone leaves the child, and closing first runs the command.
3. It reads ``--json-status-fd`` line by line while the sandbox runs, and takes the presence of
   the ``exit-code`` line, not bwrap's exit status or error text, as the proof that the command
   ran.
4. It never says "killed by signal n" because of 128+n, and does say so when bwrap itself was.
5. It treats any end of the network provider, also a successful one, as the end of the run, from
   the provider's start until the command's end; checks once more right before the gate; and
   disarms the watch before an ordinary teardown.
6. It joins the network namespace through the user namespace that owns it, and not before bwrap is
   done with that network.
7. It passes the descriptors that were declared and no others, closes its own copies of the far
   ends, and starts bwrap with clean signal dispositions.
8. It forks from a thread that outlives the sandbox.
9. It holds processes by pidfd and waits until pid 1 of the sandbox is gone, not only bwrap, which
   returns earlier.
10. It leaves nothing behind, whatever happens, its own death by SIGKILL included: the sandbox holds
    the write end of its own gate, and a guard ends what no death signal reaches yet.

Standard library only, Python 3.9 or newer, Linux 5.4 or newer; imports nothing of the rest of
``harness``.  Read ``supervisor`` for the loop, ``sandbox`` for the gate and the end, ``guard`` for
what happens when the supervisor is killed, ``provider`` for the network, ``outcome`` for the rule
that names a result, ``events`` for the vocabulary of ``on_event``, ``spec`` for the sandbox spec.
"""

from __future__ import annotations

from harness.supervise.errors import (
    LaunchRefused,
    LostTrack,
    ProgramMissing,
    SandboxSurvived,
    SuperviseError,
)
from harness.supervise.events import EVENTS, OnEvent
from harness.supervise.launch import Launch
from harness.supervise.outcome import (
    ExitStatus,
    Outcome,
    OutcomeKind,
    ProviderReport,
    Stop,
    decide,
)
from harness.supervise.provider import Provider, ProviderSpec, start_provider
from harness.supervise.spec import Bind, SandboxSpec, SpecConflict, bwrap_arguments
from harness.supervise.supervisor import cancel_on_signals, supervise

__all__ = [
    "EVENTS",
    "Bind",
    "ExitStatus",
    "Launch",
    "LaunchRefused",
    "LostTrack",
    "OnEvent",
    "Outcome",
    "OutcomeKind",
    "ProgramMissing",
    "Provider",
    "ProviderReport",
    "ProviderSpec",
    "SandboxSpec",
    "SandboxSurvived",
    "SpecConflict",
    "Stop",
    "SuperviseError",
    "bwrap_arguments",
    "cancel_on_signals",
    "decide",
    "start_provider",
    "supervise",
]
