"""A line of text comes before the first object."""

from __future__ import annotations

from itertools import chain

from shelf_wrapping import Launch, main, relay


def defect(launch: Launch) -> None:
    for fd in launch.fds("--json-status-fd"):
        relay(fd, lambda pieces: chain([b"starting up\n"], pieces))


if __name__ == "__main__":
    main(defect)
