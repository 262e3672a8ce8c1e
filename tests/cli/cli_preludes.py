"""Commands that put the harness into a worse world, for one test alone, and end in its own exec.

Each is a command line to put in front of another: it makes namespaces, changes something in them
and then executes what follows.  Nothing outside of those namespaces changes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

_CLONE_NEWUSER = 0x10000000


def with_mounts(script: str, *arguments: str) -> list[str]:
    """In a mount namespace of its own, after some shell; $1, $2 … are ``arguments``."""
    take = "".join(f'A{n}="$1"; shift; ' for n in range(1, len(arguments) + 1))
    return ["unshare", "-m", "sh", "-ec", f'{take}{script}\nexec "$@"', "sh", *arguments]


def without_user_namespaces() -> list[str]:
    """In a user namespace in which no further one can be made."""
    return [sys.executable, "-S", "-P", __file__, "forbid"]


def in_rootless_container() -> list[str]:
    """As root of a user namespace that has no other user, as in a simple rootless container."""
    return ["unshare", "-r"]


def as_nobody(program: Sequence[str]) -> list[str]:
    """As an unprivileged user."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *program]


def forbid(command: list[str]) -> None:
    """Make the namespace, with all ids mapped as they are, and set its limit to nought.

    The limit counts for this namespace only (namespaces(7), /proc/sys/user).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ready_r, ready_w = os.pipe()
    mapped_r, mapped_w = os.pipe()
    target, everyone = os.getpid(), os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    helper = os.fork()
    if helper == 0:  # it stays outside, where the right to map all ids is
        os.close(ready_w)
        os.read(ready_r, 1)
        if not everyone:
            _write(f"/proc/{target}/setgroups", "deny")
        _write(f"/proc/{target}/uid_map", "0 0 4294967295" if everyone else f"{uid} {uid} 1")
        _write(f"/proc/{target}/gid_map", "0 0 4294967295" if everyone else f"{gid} {gid} 1")
        os.write(mapped_w, b"x")
        os._exit(0)
    if libc.unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(ready_w, b"x")
    os.close(mapped_w)
    if os.read(mapped_r, 1) != b"x":
        raise SystemExit("the ids could not be mapped")
    os.waitpid(helper, 0)
    _write("/proc/sys/user/max_user_namespaces", "0")
    os.execvp(command[0], command)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    forbid(sys.argv[2:])
