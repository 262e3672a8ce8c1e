"""The recorder: one plan in, one timeline out.

It makes the scratch directory, the channels, the bystanders and the supervisor, carries out the
steps of the plan (``harness.agent.steps``), watches everything with one poll loop, and in the end
kills, reaps and removes all that it started.  It is told no expectations (design law 3).

The loop reads every ready source exactly once per wake-up; ``harness.model.timeline`` says what
that proves.  Processes end where they end: zombies that fall to the recorder stay zombies until
the clean-up, so that a census can see them.
"""

from __future__ import annotations

import _socket
import contextlib
import functools
import json
import os
import platform
import select
import socket
import time
from collections.abc import Collection
from typing import Any, Callable

from harness.agent import kernel, procfs
from harness.agent.bystander import listen_on
from harness.agent.cast import Cast, Member, has_reaper
from harness.agent.channels import Channel, make_channels
from harness.agent.clearing import (
    clear_scratch,
    decode_status,
    descends_from,
    end_descendants,
    scratch_directory,
)
from harness.agent.forking import Forked, Forks
from harness.agent.journal import Journal
from harness.agent.launch import needs_library
from harness.agent.observe import BEGIN_MARK, END_MARK, parse_observation
from harness.agent.talk import hear, say
from harness.agent.zygote import Zygote
from harness.model.vocabulary import FORMAT, Kind, Plan

#: How often /proc is looked at while a step waits for what no fd can tell (a process's state).
LOOK_INTERVAL_S = 0.001
#: How long killed processes may take to be gone before that is a leak: SIGKILL is delivered within
#: a scheduler tick unless the process is in uninterruptible sleep.
CLEANUP_DEADLINE_S = 5.0
#: What a channel, helper or provider is told apart from inside the poll loop.
Handler = Callable[[], None]


class StepFailed(Exception):
    """A step could not be carried out at all; the message says why."""


class Recording:
    """One recording in the making.  Use :func:`record`."""

    def __init__(
        self, plan: Plan, journal: Journal, scratch: str, zygote: Zygote | None = None
    ) -> None:
        self._zygote = zygote
        self._fds_before = self._count_fds()
        self.plan = plan
        self.journal = journal
        self.scratch = scratch
        several = len(plan["sandboxes"]) > 1
        self.prefixes = {name: name + "." if several else "" for name in plan["sandboxes"]}
        self._not_ours: Collection[int] = () if zygote is None else zygote.pids
        self.forks = Forks(plan, scratch, zygote)
        self.cast = Cast(self.prefixes)
        self.groups: dict[str, dict[str, Channel]] = {}
        self.channels: dict[str, Channel] = {}
        self.markers: set[str] = set()
        self.ready: set[str] = set()
        self.failed: dict[str, str] = {}  # provider or helper -> why it never became ready
        self.said: list[str] = []
        self.reports: set[str] = set()
        self.supervisors: dict[str, _socket.socket] = {}  # lane -> its socket
        self.bystanders: dict[str, _socket.socket] = {}
        self.replies: list[dict[str, Any]] = []  # done and failed messages not yet taken
        self._orders = 0  # how many orders the scripted supervisor was given
        self.ports: dict[str, int] = {}
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._owned: set[int] = set()  # fds of ours that are neither channels nor sockets
        self._observations: set[str] = set()

    # -- setting up ------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Make everything the plan declares; nothing of bwrap runs yet."""
        self._watch_scratch()
        for name, spec in self.plan.get("files", {}).items():
            self._make_file(name, spec)
        for name, sandbox in self.plan["sandboxes"].items():
            self.groups[name] = make_channels(self.prefixes[name], sandbox)
            self.channels.update({c.lane: c for c in self.groups[name].values()})
        for group in self.groups.values():
            for channel in group.values():
                if "same_number_as" not in channel.spec:
                    channel.open(self.scratch)
                    if channel.option == "terminal":
                        os.fchown(channel.near_fd, self.plan["uid"], -1)
        listeners = self._open_listeners()
        for name in self.plan.get("helpers", {}):
            self._meet(name, self.forks.bystander(name, self.channels, listeners.get(name)))
        if self.plan["supervisor"]["kind"] == "reference":
            for name, prefix in self.prefixes.items():
                forked = self.forks.reference(name, self.groups[name], self.ports)
                self._meet(prefix + "supervisor", forked)
        else:
            forked = self.forks.scripted(self.groups, self.prefixes, self.ports)
            self._meet("supervisor", forked)
            self.forks.brief(forked.sock, self.channels)
        for listener in listeners.values():
            listener.close()
        for channel in self.channels.values():
            channel.close_near()
            if channel.held_by != "observer":
                channel.close_far()
            if channel.is_read:
                os.set_blocking(channel.far_fd, False)
                self.watch(channel.far_fd, self._channel_reader(channel))
        for name, spec in self.plan.get("helpers", {}).items():
            if spec.get("started", "at-once") == "at-once":
                self.start_bystander(name)
                self.pump(functools.partial(self.is_decided, name), 5_000_000_000)

    def _watch_scratch(self) -> None:
        fd = _markers_fd()
        kernel.inotify_add_watch(fd, self.scratch, kernel.IN_CREATE | kernel.IN_MOVED_TO)
        self.watch(fd, lambda: self._read_markers(fd))

    def _make_file(self, name: str, spec: dict[str, Any]) -> None:
        path = os.path.join(self.scratch, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as made:
            made.write(spec.get("content", ""))
        os.chmod(path, int(spec.get("mode", "0644"), 8))
        # A folder that had to be made for it is no marker of the command's either.
        self.markers |= {name, name.partition("/")[0]}

    def _open_listeners(self) -> dict[str, socket.socket]:
        listeners = {}
        for name, spec in self.plan.get("helpers", {}).items():
            if spec.get("listen"):
                listeners[name] = listen_on(spec, self.scratch)
                if spec["listen"] == "tcp":
                    self.ports[name] = listeners[name].getsockname()[1]
                else:
                    self.markers.add(spec["file"])
        return listeners

    def _meet(self, lane: str, forked: Forked) -> None:
        """Take in a process of our own that was just forked, and listen to it."""
        self.take_in(lane, forked.pid, kernel.pidfd_open(forked.pid), Kind.PROCESS_STARTED)
        if lane in self.plan.get("helpers", {}):
            self.bystanders[lane] = forked.sock
            self.watch(forked.sock.fileno(), lambda: self._hear_bystander(lane))
        else:
            self.supervisors[lane] = forked.sock
            self.watch(forked.sock.fileno(), lambda: self._hear_supervisor(lane))

    # -- the loop --------------------------------------------------------------------------------

    def watch(self, fd: int, handler: Handler) -> None:
        """Have ``handler`` called when ``fd`` is readable or hung up."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """The inverse of :meth:`watch`; nothing happens when it is not watched."""
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):  # a closed fd has left the set by itself
                self._epoll.unregister(fd)

    def pump(self, done: Callable[[], bool], within_ns: int, *, looks: bool = False) -> bool:
        """Handle events until ``done()`` or the deadline; True when done.

        ``looks``: ``done`` also looks at /proc, so it is asked every LOOK_INTERVAL_S.
        """
        deadline = time.monotonic() + within_ns / 1e9
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.wake_up(min(left, LOOK_INTERVAL_S) if looks else left)
        return True

    def wake_up(self, timeout_s: float) -> None:
        """Wait once and read every ready source once.  A wake-up without events has no number."""
        # epoll counts whole milliseconds and Python rounds up; 0 must stay 0.
        ready = self._epoll.poll(timeout_s, maxevents=max(1, len(self._handlers)))
        if not ready:
            return
        self.journal.wake += 1
        for fd, _events in ready:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()

    def look(self) -> None:
        """Read what has happened so far: the last thing to do before an action."""
        self.wake_up(0)

    def act(self, event_kind: Kind, lane: str, **data: Any) -> None:
        """Write down something the recorder just did, as a wake-up of its own."""
        self.journal.wake += 1
        self.journal.write(event_kind, lane, **data)

    # -- sources ---------------------------------------------------------------------------------

    def _channel_reader(self, channel: Channel) -> Handler:
        fd = channel.far_fd

        def handler() -> None:
            before = len(channel.objects)
            channel.read_once(self.journal, lambda: self.unwatch(fd))
            for value in channel.objects[before:]:
                self._learn_child(channel, value)
            if channel.option == "stdout" or channel.option == "terminal":
                self._find_observation(channel)

        return handler

    def _learn_child(self, channel: Channel, value: dict[str, Any]) -> None:
        pid = value.get("child-pid")
        sandbox = next(name for name, group in self.groups.items() if channel in group.values())
        lane = self.prefixes[sandbox] + "child"
        if isinstance(pid, int) and pid > 0 and lane not in self.cast.members:
            self.identify(lane, pid)

    def identify(self, lane: str, pid: int) -> Member | None:
        """Take in a process that was pointed out; None, and nothing written, when it is gone.

        A pid that does not descend from the recorder is refused: nothing outside of the recording
        is ever watched or signalled, whatever a bwrap says.
        """
        if procfs.read_process(pid) is None:
            return None
        try:
            pidfd = kernel.pidfd_open(pid)
        except OSError:
            return None
        # Asked once it is held: before that, the pid may pass from one of ours to a stranger.
        if not descends_from(pid, os.getpid()):
            os.close(pidfd)
            return None
        return self.take_in(lane, pid, pidfd, Kind.PROCESS_IDENTIFIED)

    def take_in(self, lane: str, pid: int, pidfd: int, event_kind: Kind, **data: Any) -> Member:
        """A new member of the cast; the pidfd is the recording's from here on.

        ``data`` are more members of the event, and ``late``.
        """
        self._owned.add(pidfd)
        process = procfs.read_process(pid)
        member = self.cast.add(lane, pid, pidfd, -1 if process is None else process.starttime)
        ppid = process.ppid if process is not None else 0
        comm = process.comm if process is not None else ""
        self.journal.write(event_kind, lane, pid=pid, ppid=ppid, comm=comm, **data)
        self.watch(pidfd, lambda: self._note_exit(member))
        return member

    def _note_exit(self, member: Member) -> None:
        self.unwatch(member.pidfd)
        member.exited = True
        self.journal.write(Kind.PROCESS_EXITED, member.lane, pid=member.pid)
        # WNOWAIT: the zombie stays for the census.  ECHILD: its parent is another process.
        with contextlib.suppress(ChildProcessError):
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT | kernel.WALL
            ended = os.waitid(os.P_PID, member.pid, how)
            if ended is not None:
                self.collect(member.lane, member.pid, _decode_siginfo(ended))

    def collect(
        self, lane: str, pid: int | None, status: dict[str, Any], *, late: bool = False
    ) -> None:
        """Write down how a process ended, once."""
        member = self.cast.members.get(lane)
        if member is None or pid not in (member.pid, None) or member.status is not None:
            return
        member.status = status
        self.journal.write(Kind.STATUS_COLLECTED, lane, late=late, pid=member.pid, **status)

    def _read_markers(self, fd: int) -> None:
        late = False
        for _mask, name in kernel.parse_inotify(os.read(fd, 65536)):
            if name and name not in self.markers and not name.startswith("."):
                self.markers.add(name)
                self.journal.write(Kind.MARKER_SEEN, "observer", late=late, marker=name)
            late = True

    def _find_observation(self, channel: Channel) -> None:
        if channel.lane in self._observations:
            return
        lines = channel.lines
        if BEGIN_MARK in lines and END_MARK in lines:
            start = lines.index(BEGIN_MARK)
            if END_MARK not in lines[start:]:
                return
            end = lines.index(END_MARK, start)
            self._observations.add(channel.lane)
            try:
                observation = parse_observation("\n".join(lines[start : end + 1]) + "\n")
            except (ValueError, LookupError, TypeError):
                return  # somebody else's words between our marks: nothing was observed
            prefix = channel.lane.rpartition(".")[0]
            lane = prefix + ".command" if prefix else "command"
            self.journal.write(Kind.COMMAND_OBSERVED, lane, observation=observation)

    def _hear_bystander(self, lane: str) -> None:
        sock = self.bystanders[lane]
        data = sock.recv(65536)
        if not data:
            self.unwatch(sock.fileno())
            self.failed.setdefault(lane, "it ended")
            return
        said = json.loads(data)
        if said["ready"]:
            self.ready.add(lane)
            extra: dict[str, Any] = {"port": self.ports[lane]} if lane in self.ports else {}
            self.journal.write(Kind.HELPER_READY, lane, **extra)
        else:
            self.failed[lane] = said["reason"]

    def _hear_supervisor(self, lane: str) -> None:
        """Take every message that is there: what is left for the next wake-up would look later.

        Those behind the first are late: they may have come while the first was read.
        """
        sock = self.supervisors[lane]
        late = False
        while True:
            try:
                message, fds = hear(sock, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it was killed with a message of ours unread
                message, fds = None, []
            if message is None:
                self.unwatch(sock.fileno())
                return
            self._take_message(lane, message, fds, late=late)
            late = True

    def _take_message(
        self, lane: str, message: dict[str, Any], fds: list[int], *, late: bool
    ) -> None:
        said = message["said"]
        if said == "started":
            self._take_in_started(message, fds[0], late=late)
        elif said == "exited":
            status = _status_in(message)
            self.collect(message["lane"], message["pid"], status, late=late)
        elif said == "provider-started":
            self._take_in_provider(message, fds, late=late)
        elif said == "event":
            self.said.append(message["name"])
            self._write_said(lane, message["name"], message["fields"], late=late)
        elif said == "outcome":
            self.reports.add(lane)
            outcome = message["outcome"]
            self.journal.write(Kind.SUPERVISOR_REPORTED, lane, late=late, outcome=outcome)
        else:  # done, failed, crashed
            if said == "crashed":  # a fault of ours or of the library: never to be lost
                self._write_said(lane, "crashed", message, late=late)
            self.replies.append(message)

    def _write_said(self, lane: str, name: str, fields: dict[str, Any], *, late: bool) -> None:
        self.journal.write(Kind.SUPERVISOR_SAID, lane, late=late, name=name, fields=fields)

    def _take_in_started(self, message: dict[str, Any], pidfd: int, *, late: bool) -> None:
        lane, argv = message["lane"], message.get("argv")
        sandbox = self.cast.sandbox_of(lane)
        if argv is not None and sandbox is not None:
            self.cast.reaped_inside[sandbox] = has_reaper(argv)
        more = {} if argv is None else {"argv": argv}
        self.take_in(lane, message["pid"], pidfd, Kind.PROCESS_STARTED, late=late, **more)

    def _take_in_provider(
        self, message: dict[str, Any], fds: list[int], *, late: bool = False
    ) -> None:
        lane = message["lane"]
        self.take_in(lane, message["pid"], fds[0], Kind.PROCESS_STARTED, late=late)
        self._owned.update(fds[1:3])
        if len(fds) < 4:
            return  # the reference supervisor watches its own provider
        ready_fd, liveness_fd, stderr_fd = fds[1:4]

        def on_ready() -> None:
            data = os.read(ready_fd, 16)
            self.unwatch(ready_fd)
            if data.startswith(b"1"):
                self.ready.add(lane)
                self.journal.write(Kind.PROVIDER_READY, lane)
            else:
                self.failed[lane] = "its ready descriptor ended without a 1"
                self.journal.write(Kind.PROVIDER_FAILED, lane, reason=self.failed[lane])

        def on_liveness() -> None:
            if not os.read(liveness_fd, 1):
                self.unwatch(liveness_fd)
                self.journal.write(Kind.PROVIDER_LOST, lane)

        stderr = Channel(lane + ".stderr", {"option": "stderr"}, 2)
        # The fd itself, no duplicate: a channel closes its far end, and nobody else's.
        stderr.far_fd = stderr_fd
        os.set_blocking(stderr.far_fd, False)
        self.channels[stderr.lane] = stderr
        self.watch(ready_fd, on_ready)
        self.watch(liveness_fd, on_liveness)
        self.watch(stderr.far_fd, self._channel_reader(stderr))

    # -- asking others ---------------------------------------------------------------------------

    def order(self, lane: str, message: dict[str, Any], within_ns: int) -> None:
        """Have the scripted supervisor do something; StepFailed when it cannot."""
        sock = self.supervisors[lane]
        self._orders += 1
        number = self._orders
        try:
            say(sock, dict(message, order=number))
        except OSError as fault:
            raise StepFailed(f"the supervisor is gone: {fault.strerror}") from fault

        def answered() -> bool:
            # The answer to an order that was given up may come late; it is not the one to this.
            self.replies = [r for r in self.replies if r.get("order", number) == number]
            return bool(self.replies)

        if not self.pump(answered, within_ns):
            raise StepFailed("the supervisor did not answer: it is stopped or gone")
        reply = self.replies.pop(0)
        if reply["said"] != "done":
            raise StepFailed(reply["reason"])

    def start_bystander(self, name: str) -> None:
        """Tell a bystander to do its one thing; it says when it is ready."""
        self.bystanders[name].send(b"start")

    def launchers(self) -> list[str]:
        """The lanes of processes between the supervisor and bwrap."""
        return [prefix + "launcher" for prefix in self.prefixes.values()]

    @property
    def providers(self) -> dict[str, Any]:
        """The providers of the plan, by name."""
        found: dict[str, Any] = self.plan.get("providers", {})
        return found

    def is_decided(self, name: str) -> bool:
        """Whether a helper or provider is ready or has failed to become so."""
        return name in self.ready or name in self.failed

    def descendants(self) -> list[procfs.Process]:
        """Every process of this recording, as far as one walk finds them."""
        return procfs.descendants_by_children(os.getpid(), without=self._not_ours)

    # -- the end ---------------------------------------------------------------------------------

    def take_census(self, name: str) -> list[dict[str, Any]]:
        """Write down every process there is."""
        processes = self.cast.census(self.descendants)
        self.journal.write(Kind.CENSUS_TAKEN, "observer", name=name, processes=processes)
        return processes

    def _count_fds(self) -> int:
        """How many fds this process has, but for those to the zygote and the next supervisor."""
        kept = 0 if self._zygote is None else self._zygote.fds
        return len(os.listdir("/proc/self/fd")) - kept

    def clean_up(self) -> None:
        """Kill and reap everything, close everything, and say what was left (design law 8)."""
        killed, reaped, leaks = end_descendants(
            CLEANUP_DEADLINE_S,
            meanwhile=self.close,
            spared=self._not_ours,
            unheard=self.forks.unheard,
        )
        if self._zygote is not None:
            self._zygote.prepare()  # from here on nothing looks for processes
        clear_scratch(self.scratch, self.plan["uid"], self.plan["gid"])
        if os.path.lexists(self.scratch):
            leaks.append(f"the scratch directory {self.scratch} could not be removed")
        left_open = self._count_fds() - self._fds_before
        if left_open > 0:
            leaks.append(f"{left_open} file descriptor(s) of the recorder stayed open")
        for lane, member in self.cast.members.items():
            # Who had not ended by itself was ended by us: that is no fact about bwrap.
            if member.exited and member.pid in reaped:
                self.collect(lane, member.pid, reaped[member.pid])
        self.journal.write(
            Kind.CLEANUP_DONE, "observer", killed=sorted(killed), reaped=sorted(reaped), leaks=leaks
        )

    def close(self) -> None:
        """Close every fd of this recording; may be called twice."""
        for sock in (*self.supervisors.values(), *self.bystanders.values()):
            sock.close()
        for channel in self.channels.values():
            channel.close_near()
            channel.close_far()
        while self._owned:
            with contextlib.suppress(OSError):
                os.close(self._owned.pop())
        self._epoll.close()


@functools.cache
def _inotify_fd() -> int:
    """One instance for all recordings of this process: closing one takes 12 ms (measured).

    The kernel waits for every reader of the marks to be through (inotify(7) does not say so).
    """
    return kernel.inotify_init()


def _markers_fd() -> int:
    """The inotify instance, empty: what a former recording left unread is thrown away."""
    fd = _inotify_fd()
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 65536):
            pass
    return fd


def _status_in(message: dict[str, Any]) -> dict[str, Any]:
    """How a process ended, from what the one who waited for it says."""
    if "status" in message:
        return decode_status(message["status"])
    status: dict[str, Any] = {name: message[name] for name in ("code", "signal") if name in message}
    if "signal" in status:
        status["signal"] = procfs.signal_name(status["signal"])[3:]
    return status


def _decode_siginfo(ended: os.waitid_result) -> dict[str, Any]:
    if ended.si_code == os.CLD_EXITED:
        return {"code": ended.si_status}
    return {"signal": procfs.signal_name(ended.si_status)[3:]}


def header(plan: Plan) -> dict[str, Any]:
    """What a recording says about itself before anything happens."""
    return {
        "format": FORMAT,
        "scenario": plan["id"],
        "scenario_sha256": plan.get("sha256", ""),
        "repeat": plan.get("repeat_index", 0),
        "bwrap": plan.get("subject", {"path": plan["bwrap"]}),
        "kernel": platform.release(),
        "uid": plan["uid"],
        "harness": plan.get("harness", ""),
    }


def record(plan: Plan, out_fd: int, base: str, zygote: Zygote | None = None) -> None:
    """Record one plan.  Events go to ``out_fd`` line by line; ``base`` holds the scratch.

    Returns when nothing of the recording is left.  OSError (EPIPE) when the reader of ``out_fd``
    is gone; everything is cleaned up then, too.
    """
    from harness.agent.steps import run_steps  # steps import this module

    journal = Journal(out_fd)
    journal.write(Kind.RECORDING_OPENED, "observer", **header(plan))
    complete = False
    with scratch_directory(base, plan["uid"], plan["gid"]) as scratch:
        if needs_library(plan):
            # Before anything is forked: an import in each supervisor would take longer than bwrap
            # does, and what is imported needlessly makes each fork dearer.
            import harness.agent.reference  # noqa: F401  and with it the library
        _markers_fd()  # it stays open from the first recording on
        if zygote is not None:
            zygote.fetch()
        recording = Recording(plan, journal, scratch, zygote)
        try:
            recording.set_up()
            run_steps(recording)
            complete = True
        finally:
            try:
                recording.clean_up()
            finally:
                recording.close()
    journal.write(Kind.RECORDING_CLOSED, "observer", events=journal.count, complete=complete)


__all__ = ["Recording", "StepFailed", "record"]
