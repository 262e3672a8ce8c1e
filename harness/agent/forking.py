"""Who is forked for a recording: its supervisors, and its bystanders.

Each gets the fds that a real one would hold, and one end of a socket; the other end and the pid are
the recorder's.  The scripted supervisor comes from ``harness.agent.zygote`` where that can be; all
others are forked from the recorder, since they need what it knows.
"""

from __future__ import annotations

import _socket
import functools
import gc
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from harness.agent import kernel
from harness.agent.bystander import become_bystander
from harness.agent.channels import Channel
from harness.agent.launch import launch_order, needs_library
from harness.agent.scripted import become_supervisor
from harness.agent.talk import pair, say
from harness.agent.zygote import Zygote
from harness.model.vocabulary import Plan


class Forked(NamedTuple):
    """A process that was forked, and our end of its socket; both are the caller's."""

    pid: int
    sock: _socket.socket


class Forks:
    """Forks for one recording.

    ``launches`` has, for each sandbox, what the scripted supervisor is told to launch it;
    ``passed_fds`` what it calls the far ends that it holds, by the channel's lane; and ``unheard``
    the pids of children that are to be waited for by pid.
    """

    def __init__(self, plan: Plan, scratch: str, zygote: Zygote | None) -> None:
        self._plan = plan
        self._scratch = scratch
        self._zygote = zygote
        self.launches: dict[str, dict[str, Any]] = {}
        self.passed_fds: dict[str, int] = {}
        self.unheard: set[int] = set()

    def bystander(
        self, name: str, channels: Mapping[str, Channel], listener: socket.socket | None
    ) -> Forked:
        """Fork a helper; it waits for the word to do its one thing."""
        keep = {
            fd
            for channel in channels.values()
            for fd, holders in (
                (channel.far_fd, (channel.held_by,)),
                (channel.near_fd, channel.spec.get("copy_kept_by", ())),
            )
            if name in holders and fd >= 0
        }
        if listener is not None:
            keep.add(listener.fileno())
        spec = self._plan["helpers"][name]
        return _fork(keep, lambda end: become_bystander(end, spec, self._scratch, listener))

    def reference(self, name: str, channels: dict[str, Channel], ports: dict[str, int]) -> Forked:
        """Fork the reference supervisor of one sandbox."""
        from harness.agent.reference import become_reference_supervisor  # see recorder.record

        def body(end: _socket.socket) -> None:
            become_reference_supervisor(end, self._plan, name, channels, self._scratch, ports)

        return _fork(_near_and_held(channels), body)

    def scripted(
        self,
        groups: Mapping[str, dict[str, Channel]],
        prefixes: Mapping[str, str],
        ports: dict[str, int],
    ) -> Forked:
        """Fork the one supervisor that launches all sandboxes; :meth:`brief` is next.

        What it needs to know is worked out beforehand, unless that takes the library, which asks
        what the supervisor's own user can see.
        """

        def prepare(launch: dict[str, Any]) -> dict[str, Any]:
            name = launch["sandbox"]
            group = groups[name]
            return launch_order(self._plan, name, prefixes[name], group, self._scratch, ports)

        by_itself = needs_library(self._plan)
        for name in self._plan["sandboxes"]:
            launch = {"sandbox": name}
            self.launches[name] = launch if by_itself else prepare(launch)
        if by_itself:
            return _fork(set(), functools.partial(become_supervisor, prepare=prepare))
        if self._zygote is None:
            return _fork(set(), become_supervisor)
        forked = Forked(*self._zygote.take())
        self.unheard.add(forked.pid)
        return forked

    def brief(self, sock: _socket.socket, channels: dict[str, Channel]) -> None:
        """Tell a scripted supervisor whose it is, and give it what it holds."""
        terminals = [c.near_fd for c in channels.values() if c.option == "terminal"]
        held = sorted(_near_and_held(channels))
        self.passed_fds = {c.lane: c.far_fd for c in channels.values() if c.held_by == "supervisor"}
        request = {
            "held": held,
            "terminal": terminals[0] if terminals else -1,
            "uid": self._plan["uid"],
            "gid": self._plan["gid"],
            "scratch": self._scratch,
        }
        say(sock, request, tuple(held))


def _near_and_held(channels: Mapping[str, Channel]) -> set[int]:
    near = {channel.near_fd for channel in channels.values()}
    held = {channel.far_fd for channel in channels.values() if channel.held_by == "supervisor"}
    return (near | held) - {-1}


def _fork(keep: set[int], body: Callable[[_socket.socket], None]) -> Forked:
    """Fork this process; the new one has the fds in ``keep`` and its end of the socket."""
    ours, theirs = pair()
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # it lives for moments, and looking through pages means copying them
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            kernel.close_all_but(keep | {0, 1, 2, theirs.fileno()})
            os.dup2(2, 1)  # the timeline's own fd must never be in the hands of a scenario
            body(theirs)
        finally:
            os._exit(70)
    theirs.close()
    return Forked(pid, ours)
