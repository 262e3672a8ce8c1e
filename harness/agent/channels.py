"""Channels: the fds that are passed to bwrap, and what the observer reads from their far ends.

A channel has a *near* end, which bwrap gets under a fixed number, and a *far* end, which a
supervisor would hold.  Both are made before anything is forked; every process then closes what is
not its own (``held_by``, ``copy_kept_by``), so that an EOF means what the scenario says it means.

Read next: ``harness.agent.recorder`` (the loop that reads), ``harness.agent.scripted`` (who passes
the near ends on).
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import struct
import termios
from collections.abc import Iterator
from typing import Any, Callable

from harness.agent import kernel
from harness.agent.journal import Journal
from harness.model.vocabulary import Kind

#: Options whose fd bwrap or its command reads; every other option's fd is written to.
TO_SANDBOX = {"block-fd", "userns-block-fd", "args", "seccomp", "add-seccomp-fd", "stdin"}
#: Options whose channel carries JSON.
JSON_OPTIONS = {"json-status-fd", "info-fd"}
#: Standard streams: option name -> fd number.
STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}
#: The number bwrap gets for the first channel without one; above what a shell uses by itself.
FIRST_NUMBER = 20
#: So much of what one channel carries becomes events; the rest is only counted.  A command that
#: floods its output would otherwise fill the disk with its own timeline.
KEPT_BYTES = 128 * 1024
#: And so many lines: an event takes a hundred times the room of a line of one byte.
KEPT_LINES = 4096
#: One read per wake-up and channel: what came later must not look as if it came earlier.
READ_BYTES = 64 * 1024


class Channel:
    """One channel of one sandbox.  ``near_fd`` and ``far_fd`` are -1 once closed here."""

    def __init__(self, lane: str, spec: dict[str, Any], number: int) -> None:
        self.lane = lane
        self.spec = spec
        self.number = number
        self.option: str | None = spec.get("option")
        self.kind: str = spec.get("kind", "pipe")
        self.read_mode: str = spec.get("read", "drain")
        self.held_by: str = spec.get("held_by", "observer")
        self.near_fd = -1
        self.far_fd = -1
        self.target = ""  # what /proc/PID/fd shows for the near end
        self.at_eof = False
        self.lines: list[str] = []
        self.objects: list[dict[str, Any]] = []
        self.seen_lines = 0  # how many lines a wait has already consumed
        self.seen_objects = 0
        self._bytes = 0
        self._truncated = False
        self._rest = b""
        self._fragments = 0
        self._object_text = ""
        self._object_fragments = 0
        direction = spec.get("direction")
        if direction is None:
            direction = "to-sandbox" if self.option in TO_SANDBOX else "from-sandbox"
        self.from_sandbox = direction == "from-sandbox" or self.option == "terminal"

    @property
    def is_json(self) -> bool:
        """Whether what it carries is cut into JSON objects as well as into lines."""
        return self.option in JSON_OPTIONS

    def open(self, scratch: str) -> None:
        """Make both ends.  OSError when the kernel has no more of what is needed."""
        if self.kind == "closed":
            return
        if self.kind == "pty" or self.option == "terminal":
            self.far_fd, self.near_fd = pty.openpty()
        elif self.kind == "socketpair":
            ours, theirs = socket.socketpair()
            self.far_fd, self.near_fd = ours.detach(), theirs.detach()
        elif self.kind == "memfd":
            self.near_fd = os.memfd_create(self.lane, os.MFD_CLOEXEC)
            os.write(self.near_fd, self.spec.get("content", "").encode())
            os.lseek(self.near_fd, 0, os.SEEK_SET)
        elif self.kind == "file":
            self._open_file(scratch)
        elif self.from_sandbox:
            self.far_fd, self.near_fd = os.pipe()
        else:
            self.near_fd, self.far_fd = os.pipe()
        self.target = os.readlink(f"/proc/self/fd/{self.near_fd}")
        self._fill()
        if self.far_fd >= 0 and self.read_mode == "closed-before-start":
            self.close_far()

    def _open_file(self, scratch: str) -> None:
        path = os.path.join(scratch, ".channel-" + self.lane)
        with open(path, "w", encoding="utf-8") as made:
            made.write(self.spec.get("content", ""))
        writable = self.spec.get("mode") == "read-write"
        os.chmod(path, 0o666 if writable else 0o644)
        self.near_fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def _fill(self) -> None:
        if self.kind not in ("pipe", "socketpair"):
            return
        source = self.near_fd if self.from_sandbox else self.far_fd
        content = self.spec.get("content")
        if content:
            os.write(source, content.encode())
        if self.spec.get("filled"):
            os.set_blocking(source, False)
            try:
                # Whole pages first, then bytes: a pipe counts pages, not bytes (pipe(7)).
                for size in (kernel.pipe_size(source) if self.kind == "pipe" else 65536, 4096, 1):
                    while True:
                        try:
                            os.write(source, b"x" * size)
                        except BlockingIOError:
                            break
            finally:
                os.set_blocking(source, True)

    def close_far(self) -> None:
        """Close the far end here, if it is still open here."""
        if self.far_fd >= 0:
            os.close(self.far_fd)
            self.far_fd = -1

    def close_near(self) -> None:
        """Close the near end here, if it is still open here."""
        if self.near_fd >= 0:
            os.close(self.near_fd)
            self.near_fd = -1

    def resize(self, rows: int, columns: int) -> None:
        """Set a terminal's size: the kernel sends SIGWINCH to its foreground group (tty_ioctl)."""
        fcntl.ioctl(self.far_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def is_read(self) -> bool:
        """Whether the observer polls and reads the far end."""
        readable = self.read_mode in ("drain", "first-line-then-close")
        return self.far_fd >= 0 and self.from_sandbox and readable and self.held_by == "observer"

    def read_once(self, journal: Journal, leave: Callable[[], None] = lambda: None) -> None:
        """Read what is there, once, and write the events of it.

        ``leave`` is called before the far end is closed: what is closed while somebody else has a
        copy stays in an epoll set, ready for ever, and cannot be taken out (epoll(7), question 6).
        A terminal whose last user is gone answers EIO instead of an EOF (tty semantics of Linux).
        """
        try:
            data = os.read(self.far_fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.at_eof = True
            rest = self._rest.decode("utf-8", "backslashreplace")
            if rest and self.is_json and not self._truncated:
                self._feed_object(self._rest, journal, late=False)
            journal.write(Kind.EOF_READ, self.lane, channel=self.lane, bytes=self._bytes, rest=rest)
            leave()
            self.close_far()
            return
        self._bytes += len(data)
        self._take(data, journal)
        if self.read_mode == "first-line-then-close" and self.lines:
            leave()
            self.close_far()
            journal.write(
                Kind.CHANNEL_CLOSED, self.lane, late=True, channel=self.lane, by="observer"
            )

    def _take(self, data: bytes, journal: Journal) -> None:
        if self._truncated or self._bytes > KEPT_BYTES:
            self._truncate(KEPT_BYTES, journal, late=False)
            return
        self._fragments += 1
        self._object_fragments += 1
        late = False
        *whole, self._rest = (self._rest + data).split(b"\n")
        for index, raw in enumerate(whole):
            if len(self.lines) == KEPT_LINES:
                left = sum(len(line) + 1 for line in whole[index:]) + len(self._rest)
                self._truncate(self._bytes - left, journal, late=late)
                return
            text = raw.decode("utf-8", "backslashreplace").rstrip("\r")
            self.lines.append(text)
            journal.write(
                Kind.LINE_READ,
                self.lane,
                late=late,
                channel=self.lane,
                n=len(self.lines),
                text=text,
                fragments=self._fragments,
            )
            if self.is_json:
                self._feed_object(raw + b"\n", journal, late=late)
            late = True
            self._fragments = 1
        # A read that ended with a newline has brought nothing of the next line: it is not one of
        # the reads which that one takes.
        if not self._rest:
            self._fragments = 0
            if not self._object_text.strip():
                self._object_fragments = 0

    def _truncate(self, kept_bytes: int, journal: Journal, *, late: bool) -> None:
        """Only count what comes from here on."""
        self._rest = b""
        if not self._truncated:
            self._truncated = True
            journal.write(
                Kind.CHANNEL_TRUNCATED,
                self.lane,
                late=late,
                channel=self.lane,
                kept_bytes=kept_bytes,
            )

    def _feed_object(self, raw: bytes, journal: Journal, *, late: bool) -> None:
        self._object_text += raw.decode("utf-8", "backslashreplace")
        for value in self._whole_objects():
            self.objects.append(value)
            journal.write(
                Kind.OBJECT_READ,
                self.lane,
                late=late,
                channel=self.lane,
                n=len(self.objects),
                value=value,
                fragments=self._object_fragments,
            )
            self._object_fragments = 1

    def _whole_objects(self) -> Iterator[dict[str, Any]]:
        decoder = json.JSONDecoder()
        while self._object_text.strip():
            self._object_text = self._object_text.lstrip()
            try:
                value, end = decoder.raw_decode(self._object_text)
            except (ValueError, RecursionError):
                return  # not whole yet, or nested beyond all reason
            self._object_text = self._object_text[end:]
            if isinstance(value, dict):
                yield value


def make_channels(prefix: str, sandbox: dict[str, Any]) -> dict[str, Channel]:
    """The channels of one sandbox, by name, with their numbers; nothing is opened yet.

    ``stdout`` and ``stderr`` are added where no channel serves them; ``stdin`` is /dev/null then.
    """
    specs: dict[str, dict[str, Any]] = dict(sandbox.get("channels", {}))
    served = {spec.get("option") for spec in specs.values()}
    if "terminal" not in served:
        for stream in ("stdout", "stderr"):
            if stream not in served:
                specs[stream] = {"option": stream}
    taken = {spec["number"] for spec in specs.values() if "number" in spec}
    free = (number for number in range(FIRST_NUMBER, 256) if number not in taken)
    channels: dict[str, Channel] = {}
    for name, spec in specs.items():
        option = spec.get("option")
        if option in STREAMS:
            number = STREAMS[option]
        elif option == "terminal":
            number = 0
        elif "same_number_as" in spec:
            number = -1  # the other channel's, below
        else:
            number = spec["number"] if "number" in spec else next(free)
        channels[name] = Channel(prefix + name, spec, number)
    for name, spec in specs.items():
        if "same_number_as" in spec:
            channels[name].number = channels[spec["same_number_as"]].number
    return channels
