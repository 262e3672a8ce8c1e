"""The last line of the status stream has no newline."""

from __future__ import annotations

from shelf_wrapping import Launch, lines, main, relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def defect(launch: Launch) -> None:
    def cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
        before = b""
        for line in lines(pieces):
            yield before
            before = line
        yield before.rstrip(b"\n")

    for fd in launch.fds("--json-status-fd"):
        relay(fd, cut)


if __name__ == "__main__":
    main(defect)
