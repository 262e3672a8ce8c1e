"""The vocabulary of ``supervise``'s ``on_event``: past-tense facts, in one place.

``on_event(name, fields)`` is called synchronously, from the thread that called ``supervise``, at
the moment the supervisor learns the fact; what it raises ends the sandbox and propagates.  The
order of calls is the order in which the supervisor *learned*; facts of one wake-up have no other
known order.

=====================  ==================  ======================================================
name                   fields              meaning
=====================  ==================  ======================================================
``guard-started``      pid                 the guard was forked (``Launch.guard``)
``monitor-started``    pid                 bwrap was forked and has executed
``status-line``        line                one line of ``--json-status-fd``, without its line end
``child-identified``   pid                 child-pid is known and held by pidfd
``network-prepared``   -                   bwrap is done with the network; a provider may touch it
``provider-started``   pid, name           the provider was forked and has executed
``provider-ready``     -                   it said "1"
``readiness-reported`` -                   one byte arrived on ``Launch.ready_fd``
``readiness-failed``   -                   ``Launch.ready_fd`` hung up without a byte
``provider-checked``   alive               the check right before the gate opens
``gate-opened``        -                   one byte was written; emitted right after the write
``workload-exited``    exit_code           the ``exit-code`` line was read
``watch-disarmed``     -                   the provider's end no longer matters
``provider-lost``      phase, name         start, before-gate or workload; the sandbox will be ended
``cancel-requested``   -                   the cancel descriptor fired first
``deadline-passed``    phase               gate or workload
``monitor-exited``     code, signal        bwrap was reaped; one of the two is None
``sandbox-ended``      how                 every process is gone; how this is known, see below
``gate-aborted``       -                   emitted after ``sandbox-ended``: the gate stayed shut
``provider-exited``    code, signal        how a lost provider ended by itself; both None: it lived
``provider-stopped``   code, signal        the provider was stopped and reaped
=====================  ==================  ======================================================

``sandbox-ended`` ``how``: ``child-pidfd`` - the sandbox's pid 1 is dead, and the kernel lets the
first process of a pid namespace die only after all others (pid_namespaces(7)); ``pipe-eof`` - no
child was ever identified, and nobody holds the sandbox's end of the sync pipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

__all__ = ["EVENTS", "OnEvent"]

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""``on_event(name, fields)``; the mapping holds plain JSON values."""

EVENTS: Mapping[str, tuple[str, ...]] = {
    "guard-started": ("pid",),
    "monitor-started": ("pid",),
    "status-line": ("line",),
    "child-identified": ("pid",),
    "network-prepared": (),
    "provider-started": ("pid", "name"),
    "provider-ready": (),
    "readiness-reported": (),
    "readiness-failed": (),
    "provider-checked": ("alive",),
    "gate-opened": (),
    "workload-exited": ("exit_code",),
    "watch-disarmed": (),
    "provider-lost": ("phase", "name"),
    "cancel-requested": (),
    "deadline-passed": ("phase",),
    "monitor-exited": ("code", "signal"),
    "sandbox-ended": ("how",),
    "gate-aborted": (),
    "provider-exited": ("code", "signal"),
    "provider-stopped": ("code", "signal"),
}
"""Every event and its fields, for recorders and for the tests."""
