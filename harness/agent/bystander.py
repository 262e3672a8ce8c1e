"""Bystanders: the processes that a scenario calls helpers.

One holds a lock, one listens, one merely keeps fds open.  Each is forked for one recording, says
when it is ready, and then waits to be killed: a bystander never acts by itself, so that every
change in a recording has a step behind it.
"""

from __future__ import annotations

import _socket
import json
import os
import select
import socket
from typing import Any, NoReturn

from harness.agent import locks

#: What a listener answers to everybody who connects.
GREETING = b"hello\n"


def listen_on(spec: dict[str, Any], scratch: str) -> socket.socket:
    """The listening socket of a helper; on the loopback only, on a port the kernel chose."""
    if spec["listen"] == "tcp":
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind(("127.0.0.1", 0))
    else:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.path.join(scratch, spec["file"])
        sock.bind(path)
        os.chmod(path, 0o666)
    sock.listen(64)
    return sock


def become_bystander(
    control: _socket.socket, spec: dict[str, Any], scratch: str, listener: socket.socket | None
) -> NoReturn:
    """What the forked process runs.  ``control`` is a SOCK_SEQPACKET end.

    Waits for a ``start`` packet, does its one thing, says ``ready`` (or why not), and then lives
    until it is killed or the recorder goes away.
    """
    try:
        if control.recv(16):
            held = _take_lock(spec, scratch) if spec.get("lock") else -1
            control.send(json.dumps({"ready": True, "fd": held}).encode())
            _live_on(control, listener)
    except BaseException as fault:
        control.send(json.dumps({"ready": False, "reason": str(fault)}).encode())
    finally:
        os._exit(0)


def _take_lock(spec: dict[str, Any], scratch: str) -> int:
    path = os.path.join(scratch, spec["file"])
    return locks.hold(path, spec["lock"], api=spec.get("api", "fcntl"))


def _live_on(control: _socket.socket, listener: socket.socket | None) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if listener is not None:
        poll.register(listener, select.POLLIN)
    while True:
        for fd, _events in poll.poll():
            if listener is not None and fd == listener.fileno():
                peer, _address = listener.accept()
                peer.sendall(GREETING)
                peer.close()
            elif not control.recv(16):
                return
