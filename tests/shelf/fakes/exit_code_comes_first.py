"""The exit-code object comes before the child-pid object."""

from __future__ import annotations

from shelf_wrapping import Launch, lines, main, relay


def defect(launch: Launch) -> None:
    for fd in launch.fds("--json-status-fd"):
        relay(fd, lambda pieces: reversed(list(lines(pieces))))


if __name__ == "__main__":
    main(defect)
