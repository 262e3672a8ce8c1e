"""child-pid is held back until the command has ended."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay


def defect(launch: Launch) -> None:
    for fd in launch.fds("--json-status-fd"):
        relay(fd, lambda pieces: [b"".join(pieces)])


if __name__ == "__main__":
    main(defect)
