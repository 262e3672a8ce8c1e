"""bwrap keeps copies of fds that are none of its own."""

from __future__ import annotations

from shelf_wrapping import FD_OPTIONS, Launch, hold, main, open_fds


def defect(launch: Launch) -> None:
    fds = set(open_fds()) - set(launch.fds(*FD_OPTIONS))
    if fds:
        hold(fds)


if __name__ == "__main__":
    main(defect)
