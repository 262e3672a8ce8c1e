"""The info object lacks its closing brace."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay


def defect(launch: Launch) -> None:
    for fd in launch.fds("--info-fd"):
        relay(fd, lambda pieces: [b"".join(pieces).rstrip().rstrip(b"}")])


if __name__ == "__main__":
    main(defect)
