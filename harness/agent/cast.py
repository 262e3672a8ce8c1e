"""The cast: who is who among the processes of a recording.

Members are known by the pid that the process itself, its parent or bwrap reported, never by name.
The recorder is the child-subreaper of all of them, so the census below it is complete: a process
that was orphaned anywhere inside a sandbox is adopted by the recorder and stays in sight.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Callable

from harness.agent import procfs

#: Parts of one sandbox, from the outside in.
PARTS = ("launcher", "monitor", "child", "reaper", "command")


class Member:
    """One process of the cast.  ``pidfd`` is owned by the recorder, -1 when there is none."""

    def __init__(
        self, lane: str, pid: int, pidfd: int, sandbox: str | None, starttime: int
    ) -> None:
        self.lane = lane
        self.pid = pid
        self.pidfd = pidfd
        self.sandbox = sandbox
        self.exited = False
        self.status: dict[str, Any] | None = None
        self.starttime = starttime

    @property
    def is_there(self) -> bool:
        """Whether this very process is alive (not a zombie, and not another one with its pid)."""
        process = procfs.read_process(self.pid)
        return (
            process is not None
            and process.starttime == self.starttime
            and process.state not in "ZX"
        )


def has_reaper(options: list[str]) -> bool:
    """Whether bwrap's clone stays as an init process inside (bwrap: monitor, init, command).

    It does with a pid namespace, a lock file or a sync fd, and never with --as-pid-1
    (bubblewrap.c, main: where pid 1 is forked; measured on 0.4.1 to 0.13.1).
    """
    if "--as-pid-1" in options:
        return False
    return any(
        word in options for word in ("--unshare-pid", "--unshare-all", "--lock-file", "--sync-fd")
    )


class Cast:
    """All members of one recording, by lane."""

    def __init__(self, prefixes: dict[str, str]) -> None:
        self._prefixes = prefixes  # sandbox -> what stands before its parts
        self.members: dict[str, Member] = {}
        self.reaped_inside: dict[str, bool] = {}  # sandbox -> has_reaper
        self._programs: dict[str, tuple[int, int]] = {}  # sandbox -> (dev, ino) of its bwrap

    def sandbox_of(self, lane: str) -> str | None:
        """The sandbox whose part ``lane`` is, or None for the supervisor, helpers, providers."""
        for name, prefix in self._prefixes.items():
            if lane.startswith(prefix) and lane[len(prefix) :] in PARTS:
                return name
        return None

    def add(self, lane: str, pid: int, pidfd: int, starttime: int) -> Member:
        """Take a new member in; the pidfd is owned by the caller's loop.

        ``starttime`` is that of ``harness.agent.procfs.Process``, -1 when the process is gone.
        """
        member = Member(lane, pid, pidfd, self.sandbox_of(lane), starttime)
        self.members[lane] = member
        if member.sandbox is not None and lane.endswith("monitor"):
            self._programs[member.sandbox] = _program(pid) or (0, 0)
        return member

    def find_pid(self, lane: str) -> int | None:
        """The pid of a member, looked for in /proc where bwrap did not report it; None so far.

        ``child`` is the only child of the monitor (bwrap clones once outside of --pidns);
        ``command`` is the first child of the reaper, which the reaper forks before it can adopt
        anybody (bubblewrap.c: the fork precedes do_init), or the child itself without a reaper.
        Once bwrap has exited by itself the command has ended, and whoever is the reaper's first
        child then is a daemon that it adopted.
        """
        if lane in self.members:
            return self.members[lane].pid
        sandbox = self.sandbox_of(lane)
        if sandbox is None:
            return None
        prefix = self._prefixes[sandbox]
        part = lane[len(prefix) :]
        if part == "child":
            monitor = self.members.get(prefix + "monitor")
            found = procfs.children_of(monitor.pid) if monitor is not None else []
            return found[0] if found else None
        child = self.find_pid(prefix + "child")
        if child is None or part not in ("reaper", "command"):
            return None
        inside = self.reaped_inside.get(sandbox, False)
        if part == "reaper":
            return child if inside else None
        if not inside:
            return child
        monitor = self.members.get(prefix + "monitor")
        if monitor is not None and monitor.status is not None and "code" in monitor.status:
            return None
        found = procfs.children_of(child)
        return found[0] if found else None

    def runs_command(self, lane: str) -> bool:
        """Whether this process has executed something other than its sandbox's bwrap."""
        pid = self.find_pid(lane)
        sandbox = self.sandbox_of(lane)
        if pid is None or sandbox is None:
            return False
        # A subject may be a script that becomes bwrap: what bwrap is, is asked for as long as the
        # monitor is there to tell.
        monitor = self.members.get(self._prefixes[sandbox] + "monitor")
        if monitor is not None and monitor.is_there:
            self._programs[sandbox] = _program(monitor.pid) or self._programs[sandbox]
        running = _program(pid)
        return running is not None and running != self._programs.get(sandbox)

    def census(self, walk: Callable[[], Iterable[procfs.Process]]) -> list[dict[str, Any]]:
        """Every process that ``walk`` finds, with its name in the cast where it has one.

        The names are asked for first: who ends in between is not there, rather than without a name.

        A process that is nobody's part but descends from a sandbox, or was orphaned in one, is
        called ``descendant``.
        """
        lanes: dict[int, str] = {}
        for lane, member in self.members.items():
            lanes.setdefault(member.pid, lane)
        for prefix in self._prefixes.values():
            self._name_insides(prefix, lanes)
        return [
            {
                "pid": process.pid,
                "ppid": process.ppid,
                "member": lanes.get(process.pid, "descendant"),
                "state": process.state,
                "comm": process.comm,
                "exe": procfs.executable(process.pid) or "",
            }
            for process in walk()
        ]

    def _name_insides(self, prefix: str, lanes: dict[int, str]) -> None:
        """Name child, reaper and command; each only once it has become what it is called."""
        child = self.find_pid(prefix + "child")
        if child is None:
            return
        lanes[child] = prefix + "child"
        command = self.find_pid(prefix + "command")
        if command is not None and command != child:
            lanes[child] = prefix + "reaper"
            lanes[command] = prefix + "command"
        elif command is not None and self.runs_command(prefix + "command"):
            lanes[child] = prefix + "command"
        elif self.find_pid(prefix + "reaper") is not None and procfs.children_of(child):
            lanes[child] = prefix + "reaper"  # of what the command left running


def _program(pid: int) -> tuple[int, int] | None:
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return (found.st_dev, found.st_ino)
