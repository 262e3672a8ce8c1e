"""The supervision loop: from fork to nothing left, in one thread, woken only by facts.

The life of a run, in order::

    bwrap forked, gate shut -> child-pid line -> pidfds held -> network prepared
    -> provider started -> provider ready (and the caller's readiness byte)
    -> provider checked once more -> gate opened -> command runs, provider watched
    -> exit-code line -> watch disarmed -> bwrap and pid 1 gone -> provider stopped

Any failure on the way leads through the same end: the child is killed while the gate is still
held, then bwrap, and the gate is shut last (``sandbox``).

*Thread rule.*  ``--die-with-parent`` and the parent death signal follow the *thread* that forked
(prctl(2); bubblewrap #692).  ``supervise`` forks from the thread that calls it and returns to that
thread only when everything is over, so the rule is kept as long as the thread is not destroyed
from outside.

*Ties.*  Facts that arrive in one wake-up have no known order.  Each wake-up first reaps bwrap,
then drains the status stream, and only then asks whether the provider lives: a failure caused by
the loss is written after the loss, so whoever has read the failure finds the loss too.
``outcome.decide`` is the written rule for what such a wake-up amounts to.

*Killed supervisor.*  Whenever it is SIGKILLed, a held gate stays shut, the provider ends by its
exit descriptor, bwrap and its pid 1 by their death signals, and what those miss - all of it before
the gate opens - by the guard (``guard``).

*Speed.*  From the provider's SIGKILL until bwrap and pid 1 are gone: median 2.0 to 2.7 ms, at most
12 ms in 220 runs on two busy cores, bwrap 0.8.0, as root and unprivileged.

*Limits.*  A provider that is alive but wedged is not detected.  Without ``Launch.guard``, or when
the guard is killed too, a supervisor killed at the gate leaves the waiting child behind.  bwrap
must not be set-user-ID: the kernel clears death signals, and hides the child from us.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any

from harness.supervise.errors import SuperviseError
from harness.supervise.events import OnEvent
from harness.supervise.launch import Launch, check_launch
from harness.supervise.outcome import ExitStatus, Outcome, OutcomeKind, ProviderReport, Stop, decide
from harness.supervise.processes import close_fds, find_program, pipe, wait_readable
from harness.supervise.provider import Provider, loopback_is_up, start_provider
from harness.supervise.sandbox import Sandbox

__all__ = ["LAST_BREATH_S", "cancel_on_signals", "supervise"]

LAST_BREATH_S = 0.5
"""How long a provider may take from the hang-up of its liveness pipe to being waitable.  The
kernel closes the descriptors of a dying process one by one, and the tap device takes it 20 to
60 ms (measured); the hang-up comes first.  Past this, the provider closed the pipe and lives: it
is killed and its exit status is reported as unknown."""


def supervise(
    launch: Launch, *, on_event: OnEvent | None = None, cancel_fd: int | None = None
) -> Outcome:
    """Run one sandbox from start to nothing left, and say what became of it.

    ``on_event`` gets every lifecycle fact (``events``).  ``cancel_fd`` ends the run when it
    becomes readable or hangs up; it is not read and stays the caller's.

    Blocks the calling thread; no other thread, no timer and no signal handler is used.  On
    return, and also when an exception leaves it, every process it started is dead and reaped
    (pid 1 of the sandbox too when the caller is its subreaper) and every descriptor is closed.

    Raises ProgramMissing and LaunchRefused, mostly before anything is started, LostTrack,
    SandboxSurvived, OSError when the system has no descriptors or processes left, and whatever
    ``on_event`` raises.  What bwrap, the command and the provider do is never an exception.
    """
    check_launch(launch)
    program = find_program(launch.bwrap)
    if launch.provider is not None:
        find_program(launch.provider.program)  # Missing is told before a sandbox is made.
    run = _Run(launch, program, on_event, cancel_fd)
    try:
        return run.to_the_end()
    finally:
        run.close()


class _Run:
    def __init__(
        self, launch: Launch, program: str, on_event: OnEvent | None, cancel_fd: int | None
    ) -> None:
        self._launch = launch
        self._on_event = on_event
        self._cancel_fd = cancel_fd
        self._provider: Provider | None = None
        self._mounts_fd = -1
        self._network_prepared = False
        self._caller_ready = launch.ready_fd is None
        self._caller_failed = False
        self._gate_deadline = time.monotonic() + launch.gate_deadline_s
        self._workload_deadline: float | None = None
        self._looked_at = 0.0
        self._sandbox = Sandbox(launch, program, self._emit)

    def _emit(self, event: str, /, **fields: Any) -> None:
        if self._on_event is not None:
            self._on_event(event, fields)

    def to_the_end(self) -> Outcome:
        self._emit("monitor-started", pid=self._sandbox.monitor.pid)
        while True:
            woken = self._wait()
            monitor = self._sandbox.monitor.reap()
            self._sandbox.read_status()
            # After the drain, never before: see the module's word on ties.
            stop = self._reason_to_stop(woken)
            exit_code = self._sandbox.status.exit_code
            kind = decide(
                stop=stop,
                exit_code=exit_code,
                monitor=monitor,
                child_known=self._sandbox.status.child_pid is not None,
            )
            if kind is not None:
                return self._conclude(kind, exit_code)
            self._advance()

    # --- waiting -----------------------------------------------------------------------------

    def _wait(self) -> set[int]:
        """Sleep until a descriptor says something or a real deadline passes."""
        poll = select.poll()
        fds = [self._sandbox.status_fd, self._sandbox.monitor.pidfd]
        if self._cancel_fd is not None:
            fds.append(self._cancel_fd)
        if not self._caller_ready and not self._caller_failed:
            fds.append(self._launch.ready_fd if self._launch.ready_fd is not None else -1)
        if self._provider is not None:
            provider = self._provider
            fds += [provider.pidfd, provider.liveness_fd, provider.ready_fd, provider.stderr_fd]
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        if self._mounts_fd >= 0:
            poll.register(self._mounts_fd, select.POLLPRI)  # Always readable; a change is PRI.
        deadline = self._workload_deadline if self._sandbox.gate_opened else self._gate_deadline
        # Taken before the look, so that a deadline passes only when a look *after* it showed
        # nothing: whoever was stopped (SIGSTOP, suspend) first sees what came meanwhile.
        self._looked_at = time.monotonic()
        timeout_ms = None
        if deadline is not None:
            # Rounded up, or the last millisecond would be spent in a busy loop.
            timeout_ms = max(0, int((deadline - self._looked_at) * 1000) + 1)
        return {fd for fd, _ in poll.poll(timeout_ms)}

    # --- reasons to stop ---------------------------------------------------------------------

    def _reason_to_stop(self, woken: set[int]) -> Stop | None:
        if self._provider_is_lost():
            return Stop.PROVIDER_LOST
        self._read_caller_readiness(woken)
        if self._caller_failed:
            return Stop.READINESS_FAILED
        if self._cancel_fd is not None and self._cancel_fd in woken:
            return Stop.CANCELLED
        if self._sandbox.gate_opened:
            deadline = self._workload_deadline
            late = deadline is not None and self._looked_at >= deadline
            return Stop.WORKLOAD_TIMEOUT if late else None
        # The deadline bounds the wait; with everything ready there is nothing left to wait for.
        late = self._looked_at >= self._gate_deadline and not self._may_open()
        return Stop.GATE_TIMEOUT if late else None

    def _provider_is_lost(self) -> bool:
        provider = self._provider
        if provider is None:
            return False
        provider.read_stderr()
        if not provider.ready:
            answer = provider.read_ready()
            if answer:
                self._emit("provider-ready")
            elif answer is False:
                return True
        return not provider.alive()

    def _read_caller_readiness(self, woken: set[int]) -> None:
        fd = self._launch.ready_fd
        if fd is None or fd not in woken or self._caller_ready:
            return
        try:
            data = os.read(fd, 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._caller_ready, self._caller_failed = bool(data), not data
        self._emit("readiness-reported" if data else "readiness-failed")

    # --- going forward -----------------------------------------------------------------------

    def _advance(self) -> None:
        if self._sandbox.gate_opened or self._sandbox.child is None:
            return
        if self._launch.provider is not None and self._provider is None:
            self._approach_network()
        if self._may_open():
            self._open_gate()

    def _approach_network(self) -> None:
        """Start the provider once bwrap is done with the loopback interface, not before.

        The child-pid line comes *before* bwrap gives ``lo`` its address, exclusively; slirp4netns
        also brings ``lo`` up, whereupon the kernel adds the same address, and bwrap dies of
        finding it taken (network.c; bubblewrap #745).  Measured with the child at nice 19 on two
        busy cores: 3 of 100 set-ups failed without this wait, 0 of 100 with it.

        bwrap's first mount comes after the loopback, and a mount table is pollable (proc(5),
        /proc/PID/mounts).  The table is opened before ``lo`` is looked at: either ``lo`` is up by
        now, or the mounts are yet to come and will wake us.  That the table changed is no proof
        by itself: until bwrap cuts it off, what the host mounts under a shared mount appears
        there too (mount_namespaces(7), "Shared subtrees").
        """
        child = self._sandbox.child
        if child is None:
            return
        if not self._network_prepared:
            if self._mounts_fd < 0:
                with contextlib.suppress(OSError):  # The child is gone; bwrap's exit will tell.
                    self._mounts_fd = os.open(f"/proc/{child.pid}/mountinfo", os.O_RDONLY)
            if not loopback_is_up(child.pid):
                return
            self._network_prepared = True
            close_fds([self._mounts_fd])
            self._mounts_fd = -1
            self._emit("network-prepared")
        self._start_provider(child.pid)

    def _start_provider(self, child_pid: int) -> None:
        spec = self._launch.provider
        child = self._sandbox.child
        if spec is None or child is None or child.ended():
            return
        try:
            self._provider = start_provider(
                spec,
                child_pid=child_pid,
                parent_death_signal=self._launch.parent_death_signal,
            )
        except OSError as error:
            # A process that is dying has given its namespaces up (ENOENT) a moment before its pidfd
            # tells; then bwrap's set-up failed, which the next round finds out.
            dying = error.errno in (errno.ENOENT, errno.ESRCH)
            if child.ended() or (dying and wait_readable([child.pidfd], LAST_BREATH_S)):
                return
            raise SuperviseError(
                f"could not open the network namespace of process {child_pid}: {error}"
            ) from error
        self._emit("provider-started", pid=self._provider.pid, name=self._provider.name)

    def _may_open(self) -> bool:
        if self._sandbox.child is None or not self._caller_ready:
            return False
        if self._launch.provider is None:
            return True
        return self._provider is not None and self._provider.ready

    def _open_gate(self) -> None:
        # Nothing stands between the check and the byte, not even the caller's callback.  A dead
        # provider leaves the gate shut; its descriptors wake the next round at once.
        alive = self._provider is None or self._provider.alive()
        if alive:
            self._sandbox.open_gate()
        if self._provider is not None:
            self._emit("provider-checked", alive=alive)
        if not alive:
            return
        if self._launch.workload_deadline_s is not None:
            self._workload_deadline = time.monotonic() + self._launch.workload_deadline_s
        self._emit("gate-opened")

    # --- the end -----------------------------------------------------------------------------

    def _conclude(self, kind: OutcomeKind, exit_code: int | None) -> Outcome:
        phase = self._announce(kind, exit_code)
        if kind is OutcomeKind.EXITED:
            self._sandbox.await_monitor()
        opened = self._sandbox.gate_opened
        monitor = self._sandbox.end()
        if not opened and kind is not OutcomeKind.SETUP_FAILED:
            self._emit("gate-aborted")
        report = self._end_provider(phase)
        child_pid = self._sandbox.status.child_pid
        if kind is OutcomeKind.EXITED and exit_code is None:
            exit_code = 0  # Rule 3 of decide.
        return Outcome(
            kind=kind,
            exit_code=exit_code,
            monitor=monitor,
            child_pid=child_pid,
            gate_opened=opened,
            status_objects=tuple(self._sandbox.status.objects),
            provider=report,
        )

    def _announce(self, kind: OutcomeKind, exit_code: int | None) -> str | None:
        """Emit what was decided; return the phase of a loss."""
        if exit_code is not None:
            self._emit("workload-exited", exit_code=exit_code)
        provider = self._provider
        if kind is OutcomeKind.PROVIDER_LOST and provider is not None:
            opened = self._sandbox.gate_opened
            phase = "workload" if opened else "before-gate" if provider.ready else "start"
            self._emit("provider-lost", phase=phase, name=provider.name)
            return phase
        if provider is not None:
            # From here on the provider may end whenever it likes.
            self._emit("watch-disarmed")
        if kind is OutcomeKind.CANCELLED:
            self._emit("cancel-requested")
        if kind is OutcomeKind.GATE_TIMEOUT or kind is OutcomeKind.WORKLOAD_TIMEOUT:
            self._emit("deadline-passed", phase=kind.value.partition("-")[0])
        return None

    def _end_provider(self, phase: str | None) -> ProviderReport | None:
        provider = self._provider
        if provider is None:
            return None
        own_end: ExitStatus | None = None
        if phase is not None:
            wait_readable([provider.pidfd], LAST_BREATH_S)
            own_end = provider.process.reap()
            self._emit("provider-exited", **_exit_fields(own_end))
        stopped = provider.stop()
        self._emit("provider-stopped", **_exit_fields(stopped))
        return provider.report(phase, stopped if phase is None else own_end)

    def close(self) -> None:
        """Leave nothing, also on the way out of an exception; silent, may be repeated."""
        self._on_event = None
        try:
            self._sandbox.close()
        finally:
            try:
                if self._provider is not None:
                    self._provider.close()
            finally:
                close_fds([self._mounts_fd])
                self._mounts_fd = -1


def _exit_fields(status: ExitStatus | None) -> dict[str, int | None]:
    if status is None:
        return {"code": None, "signal": None}
    return {"code": status.code, "signal": status.signal}


@contextlib.contextmanager
def cancel_on_signals(
    numbers: Iterable[int] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
) -> Iterator[int]:
    """Yield a descriptor for ``supervise``'s ``cancel_fd`` that these signals make readable.

    Only in the main thread (signal(7) handlers of Python run there).  Handlers are put back and
    the descriptor closed at the end.  A handler that writes, rather than set_wakeup_fd, so that
    other signals with Python handlers (SIGCHLD) do not cancel.  In a process with more threads,
    block these signals there (``signal.pthread_sigmask``): of two that come at once another thread
    may take both, and the main thread would not be woken to run the handler.
    """
    read_end, write_end = pipe()
    os.set_blocking(write_end, False)

    def note(number: int, _frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(write_end, bytes([number]))

    previous: dict[int, Any] = {}
    try:
        for number in numbers:
            previous[number] = signal.signal(number, note)
        yield read_end
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        close_fds([read_end, write_end])
