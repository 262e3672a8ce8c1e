"""The info fd stays open until bwrap ends."""

from __future__ import annotations

from shelf_wrapping import Launch, hold, main


def defect(launch: Launch) -> None:
    fds = launch.fds("--info-fd")
    if fds:
        hold(fds)


if __name__ == "__main__":
    main(defect)
