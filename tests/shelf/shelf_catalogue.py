"""Which scenario catches which fake: the table that the tests hold the harness to.

A fake is named by its defect and is caught by the scenario that names the clause which it breaks;
``rule`` is the expectation that fails there for that clause.  ``held_against`` is the fake that is
made in the same way and has no defect: it must come out as the real bwrap does, so that it is the
defect which is caught and not the disguise.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from shelf_place import SHELF, name_of

from harness.model.verdict import Status

FAITHFUL = "faithful"
RELAY = "faithful-relay"
WAITER = "faithful-waiter"
CONTROLS = (FAITHFUL, RELAY, WAITER)


@dataclass(frozen=True)
class Caught:
    """One line of the table.

    ``rule`` is the telling expectation's name without its number (``exit``, ``order``); it is empty
    where nothing fails, because a known deviation vanished.
    """

    fake: str
    scenario: str
    clause: str
    rule: str
    held_against: str = FAITHFUL
    status: Status = Status.FAIL


CAUGHT = (
    # --- the status stream
    Caught(
        "child-pid-comes-late",
        "status-order.two-objects-then-the-end",
        "STATUS-3",
        "order",
        held_against=RELAY,
    ),
    Caught(
        "exit-code-comes-first",
        "status-order.two-objects-then-the-end",
        "STATUS-3",
        "order",
        held_against=RELAY,
    ),
    Caught(
        "last-newline-is-missing",
        "status-order.two-objects-then-the-end",
        "STATUS-1",
        "objects",
        held_against=RELAY,
    ),
    Caught(
        "text-comes-before-the-status",
        "status-order.two-objects-then-the-end",
        "STATUS-1",
        "objects",
        held_against=RELAY,
    ),
    Caught(
        "status-objects-span-lines",
        "howto-claim.status-is-json-lines",
        "STATUS-1",
        "gap",
        held_against=RELAY,
    ),
    Caught(
        "no-exit-code",
        "status-order.command-that-returns-1",
        "STATUS-3",
        "field",
        held_against=RELAY,
    ),
    Caught(
        "exit-code-is-always-0",
        "status-order.exit-code-255",
        "STATUS-4",
        "field",
        held_against=RELAY,
    ),
    Caught(
        "exit-code-is-a-wait-status",
        "exit-status.shell-conventions-pass-through",
        "STATUS-4",
        "field",
        held_against=RELAY,
    ),
    Caught(
        "exit-code-of-what-never-ran",
        "status-order.command-that-cannot-be-executed",
        "STATUS-5",
        "objects",
        held_against=RELAY,
    ),
    Caught("ignores-unknown-options", "exit-status.unknown-option", "STATUS-6", "objects"),
    Caught("keeps-the-status-fd", "status-order.monitor-killed", "STATUS-7", "order"),
    Caught(
        "no-namespace-ids",
        "status-order.namespace-ids-of-shared-namespaces",
        "STATUS-8",
        "field",
        held_against=RELAY,
    ),
    Caught("leaks-the-status-fd", "fd-leak.option-fds", "STATUS-12", "fds"),
    Caught("fills-the-status-pipe", "status-order.nobody-reads", "STATUS-13", "exit"),
    # --- the info object
    Caught("keeps-the-info-fd", "info-fd.reaches-its-end", "INFO-1", "reached", held_against=RELAY),
    Caught(
        "info-object-is-cut-off", "info-fd.no-exit-code", "INFO-1", "objects", held_against=RELAY
    ),
    Caught("info-says-how-it-ended", "info-fd.no-exit-code", "INFO-1", "field", held_against=RELAY),
    # --- child-pid and the first process inside
    Caught(
        "child-pid-is-the-inner-pid",
        "howto-claim.child-pid-is-the-callers-view",
        "CHILD-1",
        "field",
        held_against=RELAY,
    ),
    Caught("drops-as-pid-1", "pid-1.as-pid-1-ignores-its-own-signals", "PID1-3", "exit"),
    Caught("never-keeps-an-init", "pid-1.init-reaps-orphans", "PID1-6", "zombies"),
    # --- the sync fd
    Caught("drops-sync-fd", "sync-eof.daemon-in-a-pid-namespace", "SYNC-1", "gap"),
    Caught("keeps-the-sync-fd", "sync-eof.alone", "SYNC-2", "gap"),
    Caught("leaks-the-sync-fd", "sync-eof.not-visible-to-the-command", "SYNC-4", "fds"),
    # --- gates
    Caught("drops-block-fd", "block-timeout.never-opened", "BLOCK-1", "reached"),
    Caught("opens-the-gate-itself", "block-timeout.never-opened", "BLOCK-1", "reached"),
    Caught("ignores-the-byte-at-the-gate", "block-timeout.byte-before-the-start", "BLOCK-2", "ran"),
    Caught(
        "end-of-file-keeps-the-gate-closed",
        "block-timeout.eof-before-the-start",
        "BLOCK-3",
        "",
        status=Status.UNEXPECTED_PASS,
    ),
    Caught(
        "refuses-a-closed-gate",
        "block-timeout.bad-fd-is-refused",
        "BLOCK-4",
        "",
        status=Status.UNEXPECTED_PASS,
    ),
    Caught("gives-up-at-the-gate", "block-timeout.never-opened", "BLOCK-5", "exit"),
    Caught("drops-userns-block-fd", "block-timeout.userns.bad-fd-fails-closed", "UBLOCK-2", "exit"),
    # --- locks
    Caught("drops-lock-file", "lock-contention.held-while-running", "LOCK-1", "locks"),
    Caught("locks-exclusively", "lock-contention.shared-with-other-readers", "LOCK-2", "locks"),
    Caught("waits-for-the-lock", "lock-contention.refused-with-a-pid-namespace", "LOCK-3", "exit"),
    Caught("creates-a-missing-lock-file", "lock-contention.missing-file", "LOCK-4", "survivors"),
    Caught("locks-only-the-first-file", "lock-contention.several-files", "LOCK-5", "locks"),
    Caught("lock-ends-with-bwrap", "lock-contention.monitor-killed", "LOCK-6", "locks"),
    # --- who dies with whom
    Caught("only-bwrap-dies-with-parent", "die-with-parent.supervisor-killed", "DWP-1", "eof"),
    Caught("drops-die-with-parent", "die-with-parent.bwrap-terminated", "DWP-2", "survivors"),
    Caught(
        "leaves-a-daemon-behind", "die-with-parent.daemon-killed-with-bwrap", "DWP-7", "survivors"
    ),
    Caught(
        "always-dies-with-parent",
        "die-with-parent.bwrap-terminated-not-given",
        "DWP-8",
        "survivors",
    ),
    # --- bwrap's exit status
    Caught("exits-0", "exit-status.codes-pass-through", "EXIT-1", "exit", held_against=WAITER),
    Caught(
        "dies-of-the-commands-signal",
        "exit-status.signal-deaths-become-128-plus-n",
        "EXIT-2",
        "exit",
        held_against=WAITER,
    ),
    Caught(
        "exits-127-for-a-missing-command",
        "exit-status.cannot-execute",
        "EXIT-3",
        "exit",
        held_against=WAITER,
    ),
    Caught(
        "waits-for-daemons",
        "die-with-parent.daemon-survives-without-the-option",
        "EXIT-4",
        "exit",
        held_against=WAITER,
    ),
    # --- signals
    Caught("ignores-sigterm", "signals.term-to-bwrap-only", "SIG-1", "exit"),
    Caught(
        "forwards-sigterm", "status-order.monitor-terminated", "SIG-1", "exit", held_against=WAITER
    ),
    Caught("resets-signals", "signals.ignored-term-makes-bwrap-deaf", "SIG-4", "exit"),
    # --- fds
    Caught("keeps-stray-fds", "fd-leak.only-the-command-holds-a-stray-fd", "FD-5", "order"),
    Caught("closes-stray-fds", "fd-leak.stray-fd", "FD-2", "fds"),
    Caught("accepts-a-data-fd-twice", "data-fd.same-fd-twice", "FD-3", "exit"),
    Caught("does-not-wait-for-the-end-of-args", "data-fd.args-write-end-open", "FD-4", "order"),
    # --- terminals
    Caught("drops-new-session", "terminal.has-no-terminal-with-new-session", "TTY-1", "exit"),
    Caught("always-starts-a-session", "terminal.has-the-supervisors-terminal", "TTY-4", "exit"),
    # --- what the sandbox specification relies on
    Caught("drops-clearenv", "sandbox-spec.environment", "SPEC-1", "observed"),
    Caught("mounts-read-only-paths-writable", "sandbox-spec.paths", "SPEC-2", "text"),
    Caught("shares-the-network", "sandbox-spec.network-none-or-host", "SPEC-4", "text"),
    Caught("drops-unshare-pid", "sandbox-spec.own-processes", "SPEC-7", "observed"),
)

#: Fakes that no scenario fails, with the reason.
NOT_CAUGHT: dict[str, str] = {}


def names_of_fakes() -> list[str]:
    """Every fake that there is a file for."""
    return sorted(map(name_of, (SHELF / "fakes").glob("*.py")))


def defect_of(fake: str) -> str:
    """The defect of a fake in words: what its file says first."""
    text = (SHELF / "fakes" / (fake.replace("-", "_") + ".py")).read_text()
    return ast.get_docstring(ast.parse(text)) or ""
