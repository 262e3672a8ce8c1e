"""How the processes of the agent talk: one message a packet, with fds beside it.

Messages are dicts of plain values, marshalled, over a SOCK_SEQPACKET pair: both ends are forked
from one interpreter, and marshal(3) needs no module in the memory of a process that is forked for
every recording.
"""

from __future__ import annotations

import _socket
import marshal
import mmap
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The longest message: an argv of 9000 words (bwrap's own limit) fits.
MESSAGE_BYTES = 1 << 20
#: The most fds with one message (unix(7), SCM_MAX_FD): a supervisor gets all of its channels.
MESSAGE_FDS = 253
_INT = 4
#: Where messages arrive.  Memory of its own for each took four times as long as all the rest
#: (measured: 22 us and 4 us), and a bytearray is written to as it is made, all of it.
_ROOM = memoryview(mmap.mmap(-1, MESSAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Two connected ends; close-on-exec."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def say(sock: _socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message; the fds stay the caller's."""
    data = marshal.dumps(message)
    if fds:
        passed = b"".join(fd.to_bytes(_INT, sys.byteorder) for fd in fds)
        sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    else:
        sock.send(data)


def hear(sock: _socket.socket, flags: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its fds, close-on-exec and the caller's then; None at the end.

    Not for several threads of a process at a time.  BlockingIOError when there is none and
    ``flags`` has MSG_DONTWAIT.
    """
    # Not socket.recv_fds: that one takes flags and ignores them (CPython 3.9 to 3.13).
    space = _socket.CMSG_LEN(MESSAGE_FDS * _INT)
    flags |= _socket.MSG_CMSG_CLOEXEC  # or bwrap would have them as well
    size, ancillary, _flags, _address = sock.recvmsg_into([_ROOM], space, flags)
    fds = []
    for level, kind, passed in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += [
                int.from_bytes(passed[at : at + _INT], sys.byteorder)
                for at in range(0, len(passed) - _INT + 1, _INT)
            ]
    return (marshal.loads(_ROOM[:size]) if size else None), fds
