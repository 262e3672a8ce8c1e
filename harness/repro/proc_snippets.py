"""Support functions of a script that ask /proc: who is there, in which state, with which fds."""

from __future__ import annotations

STATE = '''\
def state(pid):
    """The state of a process as one letter, as ps(1) has it; X when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return "X"
'''

CHILDREN_OF = '''\
def children_of(pid):
    """The children of a process, the oldest first."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path) as file:  # it may have just ended
            found += map(int, file.read().split())
    return found
'''

DESCENDANTS = '''\
def descendants():
    """Everybody below this process.  It is a subreaper, so that no orphan gets out of sight."""
    found = children_of(os.getpid())
    for pid in found:
        found += children_of(pid)
    return found
'''

ALIVE = '''\
def alive(outside=()):
    """Who of them is alive, apart from those outside of a sandbox: pid and name."""
    found = {}
    for pid in set(descendants()) - set(outside):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
            if rest.split()[0] not in "ZX":
                found[pid] = name
    return found
'''

SETTLE = '''\
def settle(seconds, outside=()):
    """Wait until nobody is left, at most so long.

    A process whose parent ends while we look may be missed once, but not thirty times.
    """
    wait_until(lambda: not any(alive(outside) for _ in range(30)), seconds)
'''

NAMED = '''\
def named(pids, names):
    """These processes by their names, for people."""
    return sorted({names.get(pid, "descendant") for pid in pids})
'''

EXE = '''\
def exe(pid):
    """Which program a process executes, as something to compare; None when that is not known."""
    try:
        found = os.stat(f"/proc/{pid}/exe")
        return (found.st_dev, found.st_ino)
    except OSError:
        return None
'''

BLOCKED_READING = '''\
def blocked_reading(pid, link):
    """Whether a process sleeps in a read(2) of the pipe that has this link in /proc/PID/fd."""
    number = {"x86_64": "0", "i686": "3", "armv7l": "3"}.get(os.uname().machine, "63")
    try:
        with open(f"/proc/{pid}/syscall") as file:
            words = file.read().split()
        return words[0] == number and os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}") == link
    except (FileNotFoundError, ProcessLookupError):
        return False  # it is gone, or has no such fd any more
'''

FDS_OF = '''\
def fds_of(pid, seconds):
    """The fds of a process by number, with what each leads to; None if they cannot be read.

    A process that runs is on its way: what it has is what it has while it waits.
    """
    need(lambda: state(pid) not in "RD", seconds, "the process waits for something")
    try:
        found = {}
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
            except FileNotFoundError:
                pass
        return found
    except OSError:
        return None
'''

NAMESPACE_OF = '''\
def namespace_of(pid, kind):
    """The inode number of a namespace of a process; None if it cannot be seen."""
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except OSError:
        return None
'''

ID_MAP = '''\
def id_map(pid, name):
    """The lines of a uid_map or gid_map: first id inside, first id outside, how many."""
    try:
        with open(f"/proc/{pid}/{name}") as file:
            return [[int(word) for word in line.split()] for line in file]
    except OSError:
        return []
'''

SIGNALS_OF = '''\
def signals_of(pid, fields):
    """The names of the signals in masks of /proc/PID/status; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
    except OSError:
        return None
    mask = 0
    for field in fields:
        mask |= int(lines[field], 16)
    return sorted(each.name[3:] for each in signal.Signals if mask >> (each - 1) & 1)
'''

LOCKS_ON = '''\
def locks_on(path):
    """Who holds which lock on a file: (read or write, pid); -1 for a lock without a process.

    Compared by inode number alone: some file systems have another device number in /proc/locks.
    """
    inode = str(os.stat(path).st_ino)
    with open("/proc/locks") as file:
        words = [line.split() for line in file]
    return sorted(
        (each[3].lower(), int(each[4]))
        for each in words
        if each[1] != "->" and each[5].rpartition(":")[2] == inode
    )
'''

MAP_IDS = '''\
def map_ids(pid):
    """Write the id maps of a process, as its supervisor would: the user keeps his own ids."""
    uid, gid = os.getuid(), os.getgid()
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(line)
'''

#: In the order in which they stand in a script.
ASKING = (
    STATE, CHILDREN_OF, DESCENDANTS, ALIVE, SETTLE, NAMED, EXE, BLOCKED_READING, FDS_OF,
    NAMESPACE_OF, ID_MAP, SIGNALS_OF, LOCKS_ON, MAP_IDS,
)  # fmt: skip
