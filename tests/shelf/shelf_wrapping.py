"""What a fake bwrap is made of: the real one's command line, taken apart, and how to become it.

A fake parses its arguments into a :class:`Launch`, does one thing wrong to it, and executes the
real bwrap in its own place, so that the pid which the supervisor knows is still bwrap's monitor.
Where a defect needs somebody to do something meanwhile, a process *beside* does it: it is orphaned
at once and so is no child of bwrap, is in a session of its own, and holds no fd but those it is
given.  Only where bwrap's exit status itself is to be wrong does a fake stay and wait instead
(:func:`wait_for`): the real bwrap is then its child, which is a second difference.

Standard library only, and as few modules of it as can be: every launch pays for what is imported.
``REAL`` is replaced by the real program's path where the fakes are set up (``shelf_place``).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # these, and signal and contextlib, take longer to import than all the rest
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import NoReturn

REAL = "@REAL@"

#: bwrap(1): how many values follow an option.  What is not here and begins with -- is unknown.
_WITHOUT = """
help version level-prefix unshare-all share-net unshare-user unshare-user-try unshare-ipc
unshare-pid unshare-net unshare-uts unshare-cgroup unshare-cgroup-try disable-userns
assert-userns-disabled clearenv new-session die-with-parent as-pid-1 tmp-overlay-try
"""
_WITH_ONE = """
args argv0 userns userns2 pidns uid gid hostname chdir unsetenv lock-file sync-fd remount-ro
overlay-src tmp-overlay ro-overlay exec-label file-label proc dev tmpfs mqueue dir seccomp
add-seccomp-fd block-fd userns-block-fd info-fd json-status-fd cap-add cap-drop perms size
"""
_WITH_TWO = """
setenv bind bind-try dev-bind dev-bind-try ro-bind ro-bind-try bind-fd ro-bind-fd file bind-data
ro-bind-data symlink chmod
"""
_VALUES = {
    "--" + name: count
    for count, names in ((0, _WITHOUT), (1, _WITH_ONE), (2, _WITH_TWO), (3, "overlay"))
    for name in names.split()
}
#: Options whose first value is a number of an open fd.
_WITH_FD = """
args userns userns2 pidns sync-fd bind-fd ro-bind-fd file bind-data ro-bind-data seccomp
add-seccomp-fd block-fd userns-block-fd info-fd json-status-fd
"""
FD_OPTIONS = frozenset("--" + name for name in _WITH_FD.split())
_PR_SET_PDEATHSIG = 1
#: What Python ignores from its start, and bwrap would inherit.
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)


def is_known(option: str) -> bool:
    """Whether bwrap has this option."""
    return option in _VALUES


class Launch:
    """One bwrap command line: options, each with its values, and the command."""

    def __init__(self, arguments: list[str]) -> None:
        self.options: list[list[str]] = []
        rest = list(arguments)
        while rest and rest[0].startswith("--") and rest[0] != "--":
            length = 1 + _VALUES.get(rest[0], 0)
            self.options.append(rest[:length])
            del rest[:length]
        self.command = rest

    def __contains__(self, name: str) -> bool:
        return any(option[0] == name for option in self.options)

    def values(self, name: str) -> list[str]:
        """The first value of each option of this name."""
        return [option[1] for option in self.options if option[0] == name and len(option) > 1]

    def fds(self, *names: str) -> list[int]:
        """The fds that these options name, open or not."""
        return [int(value) for name in names for value in self.values(name)]

    def drop(self, *names: str) -> None:
        """Leave options out; fds that served them are closed, so that they do not go astray."""
        for fd in self.fds(*(name for name in names if name in FD_OPTIONS)):
            close(fd)
        self.options = [option for option in self.options if option[0] not in names]

    def add(self, *option: str) -> None:
        """Put an option in front of all others."""
        self.options.insert(0, list(option))

    def exchange(self, old: str, *new: list[str]) -> None:
        """Put other options in the place of one."""
        self.options = [
            each for option in self.options for each in (new if option[0] == old else [option])
        ]

    def become_bwrap(self) -> NoReturn:
        """Execute the real bwrap in this process."""
        for number in _IGNORED_BY_PYTHON:
            _signal.signal(number, _signal.SIG_DFL)
        words = [word for option in self.options for word in option]
        os.execv(REAL, [sys.argv[0], *words, *self.command])


# --- fds -----------------------------------------------------------------------------------------


def close(fd: int) -> None:
    """Close an fd that may not be open."""
    if is_open(fd):
        os.close(fd)


def is_open(fd: int) -> bool:
    """Whether something is open on this number."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def open_fds() -> list[int]:
    """Every open fd but the standard ones."""
    return [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and is_open(fd)]


def leak(fd: int) -> None:
    """A copy of an fd on a number that bwrap knows nothing of, so that the command inherits it."""
    os.set_inheritable(os.dup(fd), True)


def put_in_place(source: int, number: int) -> None:
    """Replace what is open on ``number``, which bwrap was told, by ``source``, which is closed."""
    os.dup2(source, number)
    os.close(source)


def read_to_end(fd: int) -> Iterator[bytes]:
    """What comes, as it comes, until the end."""
    while data := os.read(fd, 1 << 16):
        yield data


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines with their newline; what is left over at the end comes last."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


# --- processes -----------------------------------------------------------------------------------


def beside(task: Callable[[], None], *, keep: Iterable[int] = ()) -> None:
    """Run a task in a process of its own that is no child of this one and has only these fds."""
    child = os.fork()
    if child:
        _collect(child)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            for fd in set(open_fds()) - set(keep):
                os.close(fd)
            os.chdir("/")
            task()
    finally:
        os._exit(0)


def _collect(child: int) -> int:
    """Wait for a child: its wait status, 0 where SIGCHLD is ignored (waitpid(2), ECHILD)."""
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:
        return 0


def until_ended(pid: int) -> None:
    """Wait for the end of any process."""
    pidfd = os.pidfd_open(pid)
    select.select([pidfd], [], [])


def hold(fds: Iterable[int], *, for_ever: bool = False) -> None:
    """Have a process beside keep copies of fds: until this one ends (as bwrap), or for ever."""
    kept = list(fds)
    own = os.getpid()

    def task() -> None:
        if for_ever:
            _signal.pause()
        until_ended(own)

    beside(task, keep=kept)


def relay(
    fd: int,
    change: Callable[[Iterator[bytes]], Iterable[bytes]],
    *,
    keep: Iterable[int] = (),
) -> None:
    """Let a process beside pass on, changed, what bwrap writes to ``fd``; it ends with the writers.

    ``change`` gets what was written, piece by piece until its end, and yields what arrives; it may
    use the fds of ``keep``.
    """
    if not is_open(fd):
        return
    outlet = os.dup(fd)
    source, near = os.pipe()

    def task() -> None:
        for piece in change(read_to_end(source)):
            os.write(outlet, piece)

    beside(task, keep=[source, outlet, *keep])
    os.close(source)
    os.close(outlet)
    put_in_place(near, fd)


def relay_lines(launch: Launch, change: Callable[[bytes], bytes]) -> None:
    """Let every line of the status stream through a function."""
    for fd in launch.fds("--json-status-fd"):
        relay(fd, lambda pieces: map(change, lines(pieces)))


def locked_beside(launch: Launch, files: Iterable[int]) -> None:
    """Keep fds of files, and so their locks of the flock kind, as long as the sandbox lives."""
    kept = list(files)
    own = os.getpid()
    alive, near = os.pipe()

    def task() -> None:
        if sync_is_ours:
            os.read(alive, 1)
        else:
            until_ended(own)

    sync_is_ours = "--sync-fd" not in launch
    beside(task, keep=[*kept, alive])
    if sync_is_ours:
        os.set_inheritable(near, True)
        launch.add("--sync-fd", str(near))


def below(pid: int) -> list[int]:
    """Every descendant of a process, the eldest first."""
    found: list[int] = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


def children(pid: int) -> list[int]:
    """The children of a process now; none when it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            return [int(each) for each in listed.read().split()]
    except OSError:
        return []


def wait_for(
    launch: Launch,
    *,
    on_signal: Mapping[int, Callable[[int], None]] | None = None,
    finish: Callable[[], None] = lambda: None,
    keep: Iterable[int] = (),
) -> int:
    """Run the real bwrap as a child, and wait for it: its exit status.

    ``on_signal`` is what to do with signals meanwhile, given the pid of the child; ``finish`` is
    called when the child has ended.  All fds but the standard ones and ``keep`` are closed while
    it runs.
    """
    own = os.getpid()
    child = os.fork()
    if child == 0:
        import ctypes  # only who waits needs it: bwrap must not outlive the pid that is known

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() == own:
            launch.become_bwrap()
        os._exit(1)
    for fd in set(open_fds()) - set(keep):
        os.close(fd)
    for number, action in (on_signal or {}).items():
        _handle(number, action, child)
    status = os.waitstatus_to_exitcode(_collect(child))
    finish()
    return status


def _handle(number: int, action: Callable[[int], None], child: int) -> None:
    _signal.signal(number, lambda _number, _frame: action(child))


def end_with(status: int) -> NoReturn:
    """End as a child of which ``waitpid`` gave this: an exit status, or a negative signal."""
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def refuse(text: str) -> NoReturn:
    """Fail as bwrap does when it cannot go on."""
    sys.stderr.write(f"bwrap: {text}\n")
    sys.stderr.flush()
    os._exit(1)


def lock_shared(path: str, *, wait: bool) -> int:
    """A read lock of this process on a file, as bwrap takes one; the fd.  OSError if refused."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.lockf(fd, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
    return fd


def main(defect: Callable[[Launch], None]) -> NoReturn:
    """Be a bwrap with this defect.  ``--version`` and ``--help`` are the real ones."""
    launch = Launch(sys.argv[1:])
    if launch.command:
        defect(launch)
    launch.become_bwrap()
