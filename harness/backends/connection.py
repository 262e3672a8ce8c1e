"""Below the docker SDK: its connections, its errors, and what it keeps to itself."""

from __future__ import annotations

import contextlib
import io
import socket
import traceback
from collections.abc import Callable
from typing import Any

import docker.errors

from harness.backends.stream import Wire

#: What the SDK raises, and what it lets through when an engine is not there or goes away: all
#: errors of the HTTP library below it are OSErrors.
ENGINE_FAULTS = (docker.errors.DockerException, OSError)


def open_wire(raw: Any) -> Wire:
    """The connection below what the SDK gives for ``socket=True``.

    The SDK reads the answer's header through a buffer, and gives the stream below it: what came
    right behind the header (a process that fails at once) is still in there.
    """
    connection = getattr(raw, "_sock", raw)
    early = b""
    response = getattr(raw, "_response", None)
    buffer = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    if isinstance(buffer, io.BufferedReader):
        connection.settimeout(0)
        with contextlib.suppress(OSError, ValueError):
            early = buffer.peek()
    return Wire(_Held(connection, raw, response), early=early)


class _Held:
    """A connection, with what closes it when it is collected, and must be closed with it."""

    def __init__(self, connection: Any, *holders: Any) -> None:
        self._connection = connection
        self._holders = holders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        """Close all of it, the connection last."""
        for each in (*self._holders, self._connection):
            closing: Callable[[], None] | None = getattr(each, "close", None)
            if closing is not None:
                with contextlib.suppress(OSError, ValueError):
                    closing()


def innermost(fault: BaseException) -> str:
    """The words of whatever is below: libraries wrap a refused connection three times."""
    seen: BaseException = fault
    while (below := _below(seen)) is not None:
        seen = below
    if isinstance(seen, OSError) and seen.strerror:
        return seen.strerror
    return str(seen).strip() or type(seen).__name__


def is_silence(fault: BaseException) -> bool:
    """Whether the other side took too long to answer, below whatever the libraries say of it."""
    seen: BaseException | None = fault
    while seen is not None and not isinstance(seen, TimeoutError):
        seen = _below(seen)
    return seen is not None


def let_go(fault: BaseException) -> None:
    """Close the sockets that an error left behind in the frames it came through.

    The SDK forgets one that could not be connected, and its errors and their frames are in a
    circle: it would stay open until the garbage collector comes by.
    """
    seen: BaseException | None = fault
    while seen is not None:
        for frame, _line in traceback.walk_tb(seen.__traceback__):
            for value in frame.f_locals.values():
                if isinstance(value, socket.socket):
                    value.close()
        seen = seen.__cause__ or seen.__context__


def _below(fault: BaseException) -> BaseException | None:
    for arg in (*fault.args, getattr(fault, "reason", None), fault.__cause__):
        if isinstance(arg, BaseException):
            return arg
    return None
