"""A command that never ran has an exit-code, too."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def defect(launch: Launch) -> None:
    def complete(pieces: Iterator[bytes]) -> Iterator[bytes]:
        said = b""
        for piece in pieces:
            said += piece
            yield piece
        if b"exit-code" not in said:
            yield b'{ "exit-code": 1 }\n'

    for fd in launch.fds("--json-status-fd"):
        relay(fd, complete)


if __name__ == "__main__":
    main(defect)
