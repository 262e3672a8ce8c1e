"""The scripted supervisor: a process that does what it is told and nothing else.

It is forked for one recording (never executed: an interpreter start would cost more than the whole
launch), drops to the user of the scenario, and from then on obeys messages from the recorder:
launch this sandbox, write, close, start a provider, end a launcher.  It holds the fds that a real
supervisor would hold, so that killing it does what killing a real one does.  It also waits for its
children, as only a parent can, and tells the recorder their status.

It is told everything and works nothing out: most are forked from ``harness.agent.zygote``, where
no more is in memory than what is imported here.  Nothing can be imported later: where Python itself
is may be out of reach for the user of the scenario.
"""

from __future__ import annotations

import _signal
import _socket
import _thread
import errno
import os
import select

from harness.agent import kernel
from harness.agent.spawn import drop_identity, open_session, start_bwrap
from harness.agent.talk import hear, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from harness.supervise.provider import Provider

    Message = dict[str, Any]


#: What is blocked while the agent's processes are made, and a supervisor can be ended with.
ENDING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)


class ScriptedSupervisor:
    """One scripted supervisor.  Lives in its own process; ``serve`` does not return.

    ``held`` are the fds that it holds, by what the recorder calls them.  ``prepare`` makes a launch
    out of what a message says of it, where that could not be done beforehand.
    """

    def __init__(
        self,
        sock: _socket.socket,
        held: dict[int, int],
        prepare: Callable[[Message], Message],
    ) -> None:
        self._sock = sock
        self._held = held
        self._prepare = prepare
        self._poll = select.poll()
        self._children: dict[int, tuple[str, int]] = {}  # pidfd -> lane, pid
        self._providers: dict[str, Provider] = {}
        self._enders: dict[str, int] = {}  # lane of a launcher -> write end that ends it

    def serve(self) -> NoReturn:
        """Obey until the recorder goes away."""
        own = self._sock.fileno()
        self._poll.register(own, select.POLLIN)
        while True:
            for fd, _events in self._poll.poll():
                if fd == own:
                    message, _ = hear(self._sock)
                    if message is None:
                        os._exit(0)
                    self._obey(message)
                elif fd in self._children:
                    self._collect(fd)

    def _obey(self, message: Message) -> None:
        actions = {
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
            say(self._sock, {"said": "failed", "reason": describe(fault), **answer})
        else:
            say(self._sock, {"said": "done", **answer})

    def _collect(self, pidfd: int) -> None:
        lane, pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if lane in self._providers:
            provider = self._providers[lane]
            ended = provider.exit or provider.process.reap()
            more = dict(ended.as_json()) if ended is not None else {}
        else:
            more = {"status": os.waitpid(pid, 0)[1]}
        say(self._sock, {"said": "exited", "lane": lane, "pid": pid, **more})

    def _watch(self, lane: str, pid: int, **more: Any) -> None:
        pidfd = kernel.pidfd_open(pid)
        self._children[pidfd] = (lane, pid)
        self._poll.register(pidfd, select.POLLIN)
        say(self._sock, {"said": "started", "lane": lane, "pid": pid, **more}, (pidfd,))

    # -- launching -------------------------------------------------------------------------------

    def _launch(self, message: Message) -> None:
        launch = self._prepare(message["launch"])
        held = self._held
        launch["fds"] = {number: held[fd] for number, fd in launch["fds"].items() if fd in held}
        prefix, how = launch["prefix"], launch["launched_by"]
        if how == "thread":
            self._launch_from_thread(prefix, launch)
        elif how == "process":
            self._launch_from_process(prefix, launch)
        else:
            self._watch(prefix + "monitor", start_bwrap(launch), argv=launch["argv"])
        for fd in launch["closed_here"]:
            self._drop(fd)

    def _launch_from_thread(self, prefix: str, launch: Message) -> None:
        end_r, end_w = os.pipe()
        started = _thread.allocate_lock()
        started.acquire()
        pids: list[int] = []
        faults: list[BaseException] = []

        def body() -> None:
            try:
                pids.append(start_bwrap(launch))
            except BaseException as fault:
                faults.append(fault)
            started.release()
            os.read(end_r, 1)  # until the end step, or until this process ends
            os.close(end_r)

        _thread.start_new_thread(body, ())
        started.acquire()
        if faults:
            os.close(end_w)
            raise faults[0]
        self._enders[prefix + "launcher"] = end_w
        self._watch(prefix + "monitor", pids[0], argv=launch["argv"])

    def _launch_from_process(self, prefix: str, launch: Message) -> None:
        end_r, end_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(end_w)
            _serve_launcher(self._sock, prefix, launch, end_r)
        os.close(end_r)
        self._enders[prefix + "launcher"] = end_w
        self._watch(prefix + "launcher", pid)

    def _end_launcher(self, message: Message) -> None:
        end_w = self._enders.pop(message["lane"])
        # A byte, not only an end of file: that one comes from our own death as well, which a
        # launcher process is to outlive.
        os.write(end_w, b"e")
        os.close(end_w)

    # -- fds and providers -----------------------------------------------------------------------

    def _drop(self, fd: int) -> None:
        if fd in self._held:
            os.close(self._held.pop(fd))

    def _write(self, message: Message) -> None:
        if message["fd"] not in self._held:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.write(self._held[message["fd"]], message["text"].encode())

    def _close(self, message: Message) -> None:
        self._drop(message["fd"])

    def _start_provider(self, message: Message) -> None:
        # The recorder has imported it, and has forked this process itself.
        from harness.supervise.provider import ProviderSpec, start_provider

        name = message["name"]
        spec = message["spec"]
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

    def _stop_provider(self, message: Message) -> None:
        self._providers[message["name"]].stop()


def _serve_launcher(sock: _socket.socket, prefix: str, launch: Message, end_r: int) -> NoReturn:
    """The launcher process between supervisor and bwrap: start it, wait for it, end when told.

    It outlives its supervisor: whether the sandbox does is what scenarios ask.
    """
    try:
        pid = start_bwrap(launch)
    except Exception as fault:
        say(sock, {"said": "failed", "do": "launch", "reason": describe(fault)})
        os._exit(1)
    pidfd = kernel.pidfd_open(pid)
    lane = prefix + "monitor"
    say(sock, {"said": "started", "lane": lane, "pid": pid, "argv": launch["argv"]}, (pidfd,))
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
            say(sock, {"said": "exited", "lane": lane, "pid": pid, "status": status})


def describe(fault: BaseException) -> str:
    """A fault as the reason that a timeline gives."""
    if isinstance(fault, OSError) and fault.filename:
        return f"{fault.filename}: {fault.strerror}"
    return f"{type(fault).__name__}: {fault}"


def become_supervisor(
    sock: _socket.socket, prepare: Callable[[Message], Message] = lambda message: message
) -> NoReturn:
    """What the forked process runs; never returns, whatever happens.

    It has no fds but the standard ones and ``sock``, through which it is told whose supervisor it
    is, and given what it holds.
    """
    try:
        os.dup2(2, 1)  # the timeline's own fd must never be in the hands of a scenario
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, ENDING)
        request, fds = hear(sock)
        if request is None:
            os._exit(0)
        try:
            held = dict(zip(request["held"], fds))
            open_session(held.get(request["terminal"], -1))
            drop_identity(request["uid"], request["gid"])
            os.chdir(request["scratch"])
            ScriptedSupervisor(sock, held, prepare).serve()
        except BaseException as fault:
            say(sock, {"said": "crashed", "reason": describe(fault)})
    finally:
        os._exit(70)
