"""The network provider of one sandbox: slirp4netns, started, watched and stopped by identity.

A private network namespace has the provider as its only route, so losing it must fail the run.
Nothing here decides that: ``supervisor`` does.  What slirp4netns promises is in slirp4netns(1);
that it ends with its namespace is *not* among it (it holds the namespace; slirp4netns #5, #9).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass

from harness.supervise.errors import LaunchRefused
from harness.supervise.outcome import ExitStatus, ProviderReport
from harness.supervise.processes import (
    Process,
    close_fds,
    find_program,
    pipe,
    spawn,
    wait_readable,
)

__all__ = [
    "STDERR_TAIL_BYTES",
    "STOP_DEADLINE_S",
    "Provider",
    "ProviderSpec",
    "loopback_is_up",
    "provider_arguments",
    "start_provider",
]

STDERR_TAIL_BYTES = 4096
"""How much of the provider's stderr is kept: its last words, whatever it chattered before."""

STOP_DEADLINE_S = 1.0
"""How long a provider may take to end after its exit descriptor hung up.  slirp4netns took 20 to
55 ms in 120 runs on two busy cores, most of it the kernel removing the tap device; one that is
stopped or wedged never ends and is killed."""

_NS_GET_USERNS = 0xB701
"""ioctl_ns(2): a descriptor for the user namespace that owns a namespace."""

_READ_BYTES = 65536


@dataclass(frozen=True)
class ProviderSpec:
    """What to start as the network provider.

    ``program`` is a path or a name on PATH; anything that takes slirp4netns's options will do.
    ``name`` is only for reports.  ``mtu`` is in bytes (slirp4netns accepts up to 65521).  The
    workload reaches the *host's* loopback at 10.0.2.2 unless ``disable_host_loopback`` is set.
    ``extra_arguments`` go before the namespace path.
    """

    program: str = "slirp4netns"
    name: str = "slirp4netns"
    tap_name: str = "tap0"
    mtu: int = 65520
    disable_host_loopback: bool = False
    extra_arguments: Sequence[str] = ()


def provider_arguments(
    spec: ProviderSpec, *, netns_fd: int, userns_fd: int | None, ready_fd: int, exit_fd: int
) -> list[str]:
    """Return the provider's arguments without its own name; pure.

    The descriptors are the provider's own numbers.  The namespaces are named through
    ``/proc/self/fd``: the provider inherits them, so no pid is looked up a second time and the
    supervisor need not be inspectable by it.
    """
    arguments = ["--configure", f"--mtu={spec.mtu}"]
    arguments += [f"--ready-fd={ready_fd}", f"--exit-fd={exit_fd}"]
    if spec.disable_host_loopback:
        arguments.append("--disable-host-loopback")
    arguments += spec.extra_arguments
    arguments.append("--netns-type=path")
    if userns_fd is not None:
        arguments.append(f"--userns-path=/proc/self/fd/{userns_fd}")
    return [*arguments, f"/proc/self/fd/{netns_fd}", spec.tap_name]


class Provider:
    """A started provider.  Owns its descriptors and its process until ``close``.

    ``pidfd`` is readable once it is dead; ``liveness_fd`` is the read end of a pipe whose write
    end only the provider (and what it forks) inherited and nobody writes to, so a hang-up means
    that all of them are gone.  ``ready_fd`` gives "1" once the interface is configured.
    """

    def __init__(
        self, name: str, process: Process, *, liveness: int, ready: int, stderr: int, exiting: int
    ) -> None:
        self.name = name
        self.process = process
        self.liveness_fd = liveness
        self.ready_fd = ready
        self.stderr_fd = stderr
        self.ready = False
        self._exit_fd = exiting
        self._tail = b""
        for fd in (ready, stderr):
            os.set_blocking(fd, False)

    @property
    def pid(self) -> int:
        """The provider's pid in the caller's pid namespace."""
        return self.process.pid

    @property
    def pidfd(self) -> int:
        """The descriptor that becomes readable when the provider ends."""
        return self.process.pidfd

    @property
    def exit(self) -> ExitStatus | None:
        """How the provider ended, once it was reaped."""
        return self.process.exit

    def alive(self) -> bool:
        """Tell, without waiting, whether the provider still stands behind the network.

        Both witnesses are asked: the hang-up comes a moment before the process can be reaped, and
        a provider that leaked its pipe to a daemon of its own must still count as dead.
        """
        return wait_readable([self.liveness_fd, self.pidfd], 0.0) == []

    def read_ready(self) -> bool | None:
        """Read the ready descriptor without waiting: True ready, False never will be, None not yet.

        EOF without "1" is a failed start (podman #1735 waited for ever).  After "1" the
        descriptor is closed here: slirp4netns closes its own end, which would wake the loop.
        """
        if self.ready:
            return True
        try:
            data = os.read(self.ready_fd, 16)
        except BlockingIOError:
            return None
        self.ready = data.startswith(b"1")
        if self.ready:
            close_fds([self.ready_fd])
            self.ready_fd = -1
        return self.ready

    def read_stderr(self) -> bool:
        """Drain stderr into the bounded tail without waiting; return False at its end.

        At the end the descriptor is closed here, so that it does not keep waking the loop.
        """
        while self.stderr_fd >= 0:
            try:
                data = os.read(self.stderr_fd, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                close_fds([self.stderr_fd])
                self.stderr_fd = -1
            self._tail = (self._tail + data)[-STDERR_TAIL_BYTES:]
        return False

    def stderr_tail(self) -> str:
        """Return the last STDERR_TAIL_BYTES of what the provider wrote to its stderr."""
        return self._tail.decode("utf-8", "replace")

    def stop(self, *, deadline_s: float = STOP_DEADLINE_S) -> ExitStatus | None:
        """End the provider: hang up its exit descriptor, wait, then kill by pidfd; reap it.

        Returns its exit status; a second call returns the same.  Takes at most ``deadline_s``
        plus the time the kernel needs for a SIGKILL.
        """
        close_fds([self._exit_fd])
        self._exit_fd = -1
        if self.exit is None and not wait_readable([self.pidfd], deadline_s):
            self.process.kill()
            wait_readable([self.pidfd], None)
        status = self.process.reap()
        self.read_stderr()
        return status

    def report(self, phase: str | None, status: ExitStatus | None) -> ProviderReport:
        """Return what an outcome says about this provider."""
        return ProviderReport(self.name, self.pid, status, self.stderr_tail(), phase)

    def close(self) -> None:
        """Stop the provider if it still runs and close every descriptor; may be called twice."""
        try:
            if self.pidfd >= 0:
                self.stop()
        finally:
            self.process.close()
            close_fds([self._exit_fd, self.liveness_fd, self.ready_fd, self.stderr_fd])
            self._exit_fd = self.liveness_fd = self.ready_fd = self.stderr_fd = -1


def start_provider(
    spec: ProviderSpec, *, child_pid: int, parent_death_signal: bool = True
) -> Provider:
    """Start the provider for the network namespace of ``child_pid``, whose gate must be shut.

    The namespace is opened here, while the caller knows that the pid is still the sandbox's.  Its
    *owning* user namespace is asked for with NS_GET_USERNS rather than taken from the child: with
    ``--dev``, or ``--disable-userns``, bwrap moves the child into a second user namespace that has
    no power over the network (slirp4netns #311, bubblejail #65).  A namespace owned by our own
    user namespace is joined without ``--userns-path``, since setns(2) refuses to join what one is
    in already.

    If the supervisor is killed the provider ends too: its exit descriptor hangs up, and with
    ``parent_death_signal`` the kernel kills it even when it is wedged.

    Raises ProgramMissing, LaunchRefused when the sandbox shares the caller's network (a tap
    device would appear on the host), SuperviseError, OSError when the namespace cannot be opened.
    The caller owns the returned object.
    """
    program = find_program(spec.program)
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        netns = _own(theirs, os.open(f"/proc/{child_pid}/ns/net", os.O_RDONLY))
        if os.path.samestat(os.fstat(netns), os.stat("/proc/self/ns/net")):
            raise LaunchRefused(
                "expected the sandbox to have a network namespace of its own for its provider; "
                "add --unshare-net or drop --share-net"
            )
        userns: int | None = _own(theirs, fcntl.ioctl(netns, _NS_GET_USERNS))
        if os.path.samestat(os.fstat(userns or 0), os.stat("/proc/self/ns/user")):
            userns = None
        ready, ready_theirs = _pipe(ours, theirs)
        liveness, liveness_theirs = _pipe(ours, theirs)
        stderr, stderr_theirs = _pipe(ours, theirs)
        exit_theirs, exiting = _pipe(theirs, ours)
        null = _own(theirs, os.open(os.devnull, os.O_RDWR))
        arguments = provider_arguments(
            spec, netns_fd=netns, userns_fd=userns, ready_fd=ready_theirs, exit_fd=exit_theirs
        )
        passed = [netns, ready_theirs, exit_theirs, liveness_theirs]
        process = spawn(
            [spec.program, *arguments],
            program=program,
            env=os.environ,
            stdio=(null, null, stderr_theirs),
            pass_fds=passed if userns is None else [*passed, userns],
            parent_death_signal=parent_death_signal,
        )
        ours.pop_all()
    return Provider(
        spec.name, process, liveness=liveness, ready=ready, stderr=stderr, exiting=exiting
    )


def _own(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    # Each end belongs to one side: ours survive a successful start, theirs never outlive this call.
    read_end, write_end = pipe()
    return _own(reader, read_end), _own(writer, write_end)


def loopback_is_up(pid: int) -> bool:
    """Tell whether ``lo`` in the network namespace of ``pid`` has its address and is up.

    Read from proc(5) /proc/PID/net/fib_trie, where the local route appears when both are true.
    True when it cannot be told, so that nobody waits for what will not come.
    """
    try:
        with open(f"/proc/{pid}/net/fib_trie", "rb") as file:
            return b"127.0.0.1" in file.read()
    except OSError:
        return True
