"""One launched bwrap: its processes, its status stream and its gate, owned until they are gone.

The one rule that everything here serves: *a gate opens by a byte and by nothing else*.  bwrap
takes EOF on ``--block-fd`` for a go (bubblewrap #753), so

- the sandbox holds the write end of its own gate: the pipe behind ``--block-fd`` is also the
  ``--sync-fd``.  However the supervisor dies, the waiting child sees no EOF, and the ``guard``
  finds it by that pipe;
- an aborted gate is shut last: first the child is killed, then bwrap, then the pipe is closed.
  Killing bwrap alone leaves the child waiting, also with ``--die-with-parent``, because that
  signal is set only after the gate.

The same pipe tells when the sandbox is gone: bwrap's pid 1 keeps the sync fd while the command
closes it, and so the supervisor's read end hangs up when pid 1 is dead.  The supervisor never
reads it: the byte in it is the child's.

This module decides nothing about outcomes; see ``supervisor``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Callable

from harness.supervise.errors import LostTrack, SandboxSurvived
from harness.supervise.guard import Guard
from harness.supervise.launch import Launch, bwrap_command
from harness.supervise.outcome import ExitStatus
from harness.supervise.processes import (
    Process,
    children_of,
    close_fds,
    holders_of_pipe,
    parent_of,
    pipe,
    spawn,
    wait_readable,
)
from harness.supervise.status import StatusStream

__all__ = ["END_DEADLINE_S", "MONITOR_EXIT_S", "Sandbox"]

END_DEADLINE_S = 10.0
"""How long killed processes may take to be gone.  Normal is 2 to 10 ms, most of it the kernel
ending the pid namespace; only a process stuck inside the kernel takes longer."""

MONITOR_EXIT_S = 5.0
"""How long bwrap may take to exit after its ``exit-code`` line.  It writes the line and returns
(``report_child_exit_status``): under 1 ms measured.  Past this it is stopped or wedged: killed."""

Emit = Callable[..., None]


class Sandbox:
    """A running bwrap.  ``end`` or ``close`` must be called; both leave no process behind.

    ``monitor`` is the bwrap process, our child.  ``child`` is the process of the ``child-pid``
    line, the sandbox's pid 1, in the caller's view; None until identified.  ``status_fd`` is -1
    after the stream's EOF.
    """

    def __init__(self, launch: Launch, program: str, emit: Emit) -> None:
        self._emit = emit
        self._program = program
        self.status = StatusStream()
        self.child: Process | None = None
        self.gate_opened = False
        self._strays: list[Process] = []
        self.status_fd, status_theirs = pipe()
        try:
            self._gate_read, self._gate_write = pipe()
        except OSError:
            close_fds([self.status_fd, status_theirs])
            raise
        os.set_blocking(self.status_fd, False)
        self._guard: Guard | None = None
        try:
            if launch.guard:
                self._guard = Guard(sync_fd=self._gate_read, program=program)
                emit("guard-started", pid=self._guard.pid)
            self.monitor = spawn(
                bwrap_command(
                    launch,
                    status_fd=status_theirs,
                    sync_fd=self._gate_write,
                    block_fd=self._gate_read,
                ),
                program=program,
                env=os.environ if launch.env is None else launch.env,
                cwd=launch.cwd,
                stdio=(launch.stdin, launch.stdout, launch.stderr),
                pass_fds=(status_theirs, self._gate_read, self._gate_write, *launch.pass_fds),
                parent_death_signal=launch.parent_death_signal,
            )
        except BaseException:
            close_fds([self.status_fd, self._gate_read, self._gate_write])
            if self._guard is not None:
                self._guard.stop()  # Nothing was started that it could guard.
            raise
        finally:
            # Our copy would keep the stream from ever ending (flatpak #3770).
            close_fds([status_theirs])

    def read_status(self) -> None:
        """Drain the status stream without waiting; learn the child as soon as it is named."""
        while self.status_fd >= 0:
            try:
                data = os.read(self.status_fd, 65536)
            except BlockingIOError:
                return
            if not data:
                close_fds([self.status_fd])
                self.status_fd = -1
            for line in self.status.feed(data):
                self._emit("status-line", line=line)
            if self.child is None and self.status.child_pid is not None:
                self._identify(self.status.child_pid)

    def _identify(self, pid: int) -> None:
        process = Process.open(pid)
        if process is None:
            return
        # Held first, then checked: bwrap is not reaped yet, so its child still names it as parent.
        # A reused number, or a line that something else wrote, does not.
        if parent_of(pid) == self.monitor.pid or self._is_orphan(pid):
            self.child = process
            self._emit("child-identified", pid=pid)
        else:
            process.close()

    def _is_orphan(self, pid: int) -> bool:
        # bwrap may be dead before its first line is read; its child is then known by our pipe.
        if not self.monitor.ended():
            return False
        holders = holders_of_pipe(self._gate_read, program=self._program)
        for each in holders:
            each.close()
        return pid in [each.pid for each in holders]

    def open_gate(self) -> None:
        """Let the command run: one byte, then our write end is closed, so that the pipe can end."""
        # A pipe with room and a reader (ourselves) takes one byte without blocking or SIGPIPE.
        os.write(self._gate_write, b"1")
        self.gate_opened = True
        self._close_gate()

    def _close_gate(self) -> None:
        close_fds([self._gate_write])
        self._gate_write = -1

    def await_monitor(self) -> None:
        """Give bwrap MONITOR_EXIT_S to exit by itself, after the command has."""
        wait_readable([self.monitor.pidfd], MONITOR_EXIT_S)

    def end(self) -> ExitStatus:
        """End whatever still lives, wait until all of it is gone, reap; return bwrap's status.

        Harmless after an ordinary end, where it closes the gaps that ``--die-with-parent`` leaves
        (bubblewrap #633: pid 1 may set its death signal too late).  Raises SandboxSurvived,
        LostTrack.
        """
        deadline = time.monotonic() + END_DEADLINE_S
        self.read_status()
        self._kill()
        self._await(self.monitor, deadline)
        status = self.monitor.reap()
        if status is None:
            raise LostTrack(f"expected bwrap {self.monitor.pid} to be waitable")
        self._emit("monitor-exited", code=status.code, signal=status.signal)
        self.read_status()
        how = "child-pidfd"
        if self.child is None:
            how = "pipe-eof"
            self._close_gate()  # Safe: whoever still waits holds the write end itself.
            self._end_strays(deadline)
        for process in self._processes():
            process.kill()
            self._await(process, deadline)
            process.reap_if_inherited()
        self._emit("sandbox-ended", how=how)
        self._close_gate()
        return status

    def _processes(self) -> list[Process]:
        return self._strays if self.child is None else [self.child, *self._strays]

    def _kill(self) -> None:
        """Kill the child while the gate is still held, and only then bwrap."""
        if self.child is not None:
            self.child.kill()
        elif not self.monitor.ended():
            # No line yet: bwrap may be about to fork.  Stopped, its children are all there are.
            self.monitor.kill(signal.SIGSTOP)
            os.waitid(os.P_PIDFD, self.monitor.pidfd, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            for pid in children_of(self.monitor.pid):
                process = Process.open(pid)
                if process is not None and parent_of(pid) == self.monitor.pid:
                    process.kill()
                    self._strays.append(process)
                elif process is not None:
                    process.close()
        self.monitor.kill()

    def _end_strays(self, deadline: float) -> None:
        """Find and kill the child of a bwrap that died before it named it."""
        if not self._pipe_ended(0.0):
            found = holders_of_pipe(self._gate_read, program=self._program)
            self._strays += found
            for process in found:
                process.kill()
            if not self._pipe_ended(max(0.0, deadline - time.monotonic())):
                raise SandboxSurvived(
                    f"bwrap {self.monitor.pid} is gone, but something still holds its sync fd"
                )

    def _pipe_ended(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._gate_read, 0)  # Hang-up only: a byte may lie in it, unread.
        return poll.poll(timeout_s * 1000) != []

    def _await(self, process: Process, deadline: float) -> None:
        if not wait_readable([process.pidfd], max(0.0, deadline - time.monotonic())):
            raise SandboxSurvived(
                f"process {process.pid} of the sandbox outlived SIGKILL by {END_DEADLINE_S} s; "
                "look at /proc/PID/stack"
            )

    def close(self) -> None:
        """End the sandbox if need be, in silence, and close every descriptor; may be repeated."""
        self._emit = _ignore
        try:
            if self.monitor.pidfd >= 0 and self.monitor.exit is None:
                with contextlib.suppress(LostTrack):
                    self.end()
        finally:
            for process in [self.monitor, *self._processes()]:
                process.close()
            close_fds([self.status_fd, self._gate_read, self._gate_write])
            self.status_fd = self._gate_read = self._gate_write = -1
            # Last: until here it is the one that would notice our own death.
            if self._guard is not None:
                self._guard.stop()


def _ignore(*_args: Any, **_fields: Any) -> None:
    """Stand in for the caller's callback while an exception is on its way to the caller."""
