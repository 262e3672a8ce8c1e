"""The scripted supervisor: a process that does what it is told and nothing else.

It is forked for one recording (never executed: an interpreter start would cost more than the whole
launch), drops to the user of the scenario, and from then on obeys messages from the recorder:
launch this sandbox, write, close, start a provider, end a launcher.  It holds the fds that a real
supervisor would hold, so that killing it does what killing a real one does.  It also waits for its
children, as only a parent can, and tells the recorder their status.

Messages are JSON over a SOCK_SEQPACKET pair, one message a packet, with fds as SCM_RIGHTS.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from harness.agent import kernel, procfs
from harness.agent.channels import Channel
from harness.agent.launch import (
    bwrap_environment,
    bwrap_options,
    command_argv,
    open_session,
    start_bwrap,
)

if TYPE_CHECKING:
    from harness.supervise.provider import Provider

#: The longest message: an argv of 9000 words (bwrap's own limit) fits.
MESSAGE_BYTES = 1 << 20
#: The most fds with one message: those of a provider are four.
MESSAGE_FDS = 8


def say(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message; the fds stay the caller's."""
    socket.send_fds(sock, [json.dumps(message).encode()], list(fds))


def hear(sock: socket.socket, flags: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its fds, which are the caller's then; None at the end.

    BlockingIOError when there is none and ``flags`` has MSG_DONTWAIT.
    """
    # Not socket.recv_fds: that one takes flags and ignores them (CPython 3.9 to 3.13).
    fds = array.array("i")
    space = socket.CMSG_LEN(MESSAGE_FDS * fds.itemsize)
    data, ancillary, _flags, _address = sock.recvmsg(MESSAGE_BYTES, space, flags)
    for level, kind, passed in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(passed[: len(passed) - len(passed) % fds.itemsize])
    if not data:
        return None, fds.tolist()
    message: dict[str, Any] = json.loads(data)
    return message, fds.tolist()


def drop_identity(uid: int, gid: int) -> None:
    """Become an unprivileged user for good; a no-op when already that user.

    A process that changed its uid is not dumpable, and then its own /proc entries belong to root:
    a provider of the same user could not open ``/proc/SUPERVISOR/fd/N`` (prctl(2),
    PR_SET_DUMPABLE).
    """
    if os.getuid() == uid:
        return
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)


class ScriptedSupervisor:
    """One scripted supervisor.  Lives in its own process; ``serve`` does not return."""

    def __init__(
        self,
        sock: socket.socket,
        plan: dict[str, Any],
        channels: dict[str, dict[str, Channel]],
        scratch: str,
        ports: dict[str, int],
    ) -> None:
        self._sock = sock
        self._plan = plan
        self._channels = channels
        self._scratch = scratch
        self._ports = ports
        self._poll = select.poll()
        self._children: dict[int, tuple[str, int]] = {}  # pidfd -> lane, pid
        self._providers: dict[str, Provider] = {}
        self._enders: dict[str, int] = {}  # lane of a launcher -> write end that ends it

    def serve(self) -> NoReturn:
        """Obey until the recorder goes away."""
        self._poll.register(self._sock, select.POLLIN)
        while True:
            for fd, _events in self._poll.poll():
                if fd == self._sock.fileno():
                    message, _ = hear(self._sock)
                    if message is None:
                        os._exit(0)
                    self._obey(message)
                elif fd in self._children:
                    self._collect(fd)

    def _obey(self, message: dict[str, Any]) -> None:
        actions: dict[str, Callable[[dict[str, Any]], None]] = {
            "launch": self._launch,
            "end-launcher": self._end_launcher,
            "write": self._write,
            "close": self._close,
            "start-provider": self._start_provider,
            "stop-provider": self._stop_provider,
        }
        answer = {"do": message["do"], "order": message["order"]}
        try:
            actions[message["do"]](message)
        except Exception as fault:  # said to the recorder, which decides what it means
            say(self._sock, {"said": "failed", "reason": _reason(fault), **answer})
        else:
            say(self._sock, {"said": "done", **answer})

    def _collect(self, pidfd: int) -> None:
        lane, pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if lane in self._providers:
            provider = self._providers[lane]
            ended = provider.exit or provider.process.reap()
            status: dict[str, Any] = dict(ended.as_json()) if ended is not None else {}
            if "signal" in status:
                status = {"signal": procfs.signal_name(status["signal"])[3:]}
        else:
            status = decode_status(os.waitpid(pid, 0)[1])
        say(self._sock, {"said": "exited", "lane": lane, "pid": pid, **status})

    def _watch(self, lane: str, pid: int, **more: Any) -> None:
        pidfd = kernel.pidfd_open(pid)
        self._children[pidfd] = (lane, pid)
        self._poll.register(pidfd, select.POLLIN)
        say(self._sock, {"said": "started", "lane": lane, "pid": pid, **more}, (pidfd,))

    # -- launching -------------------------------------------------------------------------------

    def _launch(self, message: dict[str, Any]) -> None:
        name, prefix = message["sandbox"], message["prefix"]
        sandbox = self._plan["sandboxes"][name]
        channels = self._channels[name]
        environment = bwrap_environment(sandbox, self._scratch, self._ports)
        options = bwrap_options(sandbox, channels, self._scratch, environment)
        argv = [self._plan["bwrap"], *options, *command_argv(sandbox["command"])]

        def start() -> int:
            return start_bwrap(argv, environment, channels, sandbox)

        how = sandbox.get("launched_by", "supervisor")
        if how == "thread":
            self._launch_from_thread(prefix, start, argv)
        elif how == "process":
            self._launch_from_process(prefix, start, argv)
        else:
            self._watch(prefix + "monitor", start(), argv=argv)
        for channel in channels.values():
            if "supervisor" not in channel.spec.get("copy_kept_by", ()):
                channel.close_near()

    def _launch_from_thread(self, prefix: str, start: Callable[[], int], argv: list[str]) -> None:
        end_r, end_w = os.pipe()
        started = threading.Event()
        pids: list[int] = []
        faults: list[BaseException] = []

        def body() -> None:
            try:
                pids.append(start())
            except BaseException as fault:
                faults.append(fault)
            started.set()
            os.read(end_r, 1)  # until the end step, or until this process ends
            os.close(end_r)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        started.wait()
        if faults:
            os.close(end_w)
            raise faults[0]
        self._enders[prefix + "launcher"] = end_w
        self._watch(prefix + "monitor", pids[0], argv=argv)

    def _launch_from_process(self, prefix: str, start: Callable[[], int], argv: list[str]) -> None:
        end_r, end_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(end_w)
            _serve_launcher(self._sock, prefix, start, argv, end_r)
        os.close(end_r)
        self._enders[prefix + "launcher"] = end_w
        self._watch(prefix + "launcher", pid)

    def _end_launcher(self, message: dict[str, Any]) -> None:
        end_w = self._enders.pop(message["lane"])
        # A byte, not only an end of file: that one comes from our own death as well, which a
        # launcher process is to outlive.
        os.write(end_w, b"e")
        os.close(end_w)

    # -- fds and providers -----------------------------------------------------------------------

    def _channel(self, lane: str) -> Channel:
        return next(
            c for group in self._channels.values() for c in group.values() if c.lane == lane
        )

    def _write(self, message: dict[str, Any]) -> None:
        os.write(self._channel(message["channel"]).far_fd, message["text"].encode())

    def _close(self, message: dict[str, Any]) -> None:
        self._channel(message["channel"]).close_far()

    def _start_provider(self, message: dict[str, Any]) -> None:
        from harness.supervise.provider import ProviderSpec, start_provider  # see load_library

        name = message["name"]
        spec = self._plan["providers"][name]
        provider = start_provider(
            ProviderSpec(
                program=spec.get("program") or "slirp4netns",
                extra_arguments=tuple(spec.get("options", ())),
            ),
            child_pid=message["child_pid"],
        )
        self._providers[name] = provider
        pidfd = kernel.pidfd_open(provider.pid)
        self._children[pidfd] = (name, provider.pid)
        self._poll.register(pidfd, select.POLLIN)
        say(
            self._sock,
            {"said": "provider-started", "lane": name, "pid": provider.pid},
            (provider.pidfd, provider.ready_fd, provider.liveness_fd, provider.stderr_fd),
        )

    def _stop_provider(self, message: dict[str, Any]) -> None:
        self._providers[message["name"]].stop()


def _serve_launcher(
    sock: socket.socket, prefix: str, start: Callable[[], int], argv: list[str], end_r: int
) -> NoReturn:
    """The launcher process between supervisor and bwrap: start it, wait for it, end when told.

    It outlives its supervisor: whether the sandbox does is what scenarios ask.
    """
    try:
        pid = start()
    except Exception as fault:
        say(sock, {"said": "failed", "do": "launch", "reason": _reason(fault)})
        os._exit(1)
    pidfd = kernel.pidfd_open(pid)
    say(sock, {"said": "started", "lane": prefix + "monitor", "pid": pid, "argv": argv}, (pidfd,))
    poll = select.poll()
    poll.register(end_r, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    while True:
        for fd, _events in poll.poll():
            if fd == end_r:
                if os.read(end_r, 1):
                    os._exit(0)
                poll.unregister(end_r)  # the supervisor is gone, and nobody said to end
                continue
            _, status = os.waitpid(pid, 0)
            poll.unregister(pidfd)
            say(
                sock,
                {"said": "exited", "lane": prefix + "monitor", "pid": pid, **decode_status(status)},
            )


def decode_status(status: int) -> dict[str, Any]:
    """A wait status as ``code`` or ``signal`` (its name): never one integer for both."""
    if os.WIFSIGNALED(status):
        return {"signal": procfs.signal_name(os.WTERMSIG(status))[3:]}
    return {"code": os.WEXITSTATUS(status)}


def _reason(fault: BaseException) -> str:
    if isinstance(fault, OSError) and fault.filename:
        return f"{fault.filename}: {fault.strerror}"
    return f"{type(fault).__name__}: {fault}"


def become_supervisor(
    sock: socket.socket,
    plan: dict[str, Any],
    channels: dict[str, dict[str, Channel]],
    scratch: str,
    ports: dict[str, int],
) -> NoReturn:
    """What the forked process runs; never returns, whatever happens."""
    try:
        # Forking from a thread is the very thing some scenarios are about.
        warnings.simplefilter("ignore", DeprecationWarning)
        terminals = [
            channel.near_fd
            for group in channels.values()
            for channel in group.values()
            if channel.option == "terminal"
        ]
        open_session(terminals[0] if terminals else -1)
        if terminals:
            # ^C is for bwrap and its command; a handler, unlike SIG_IGN, is not inherited by exec.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP):
                signal.signal(number, lambda *_: None)
        drop_identity(plan["uid"], plan["gid"])
        os.chdir(scratch)
        ScriptedSupervisor(sock, plan, channels, scratch, ports).serve()
    except BaseException as fault:
        say(sock, {"said": "crashed", "reason": _reason(fault)})
    finally:
        os._exit(70)
