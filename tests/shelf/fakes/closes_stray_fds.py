"""Fds that are no option's are not passed on."""

from __future__ import annotations

from shelf_wrapping import FD_OPTIONS, Launch, close, main, open_fds


def defect(launch: Launch) -> None:
    for fd in set(open_fds()) - set(launch.fds(*FD_OPTIONS)):
        close(fd)


if __name__ == "__main__":
    main(defect)
