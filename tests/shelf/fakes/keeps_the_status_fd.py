"""A process that goes on for ever has a copy of the status fd."""

from __future__ import annotations

from shelf_wrapping import Launch, hold, main


def defect(launch: Launch) -> None:
    fds = launch.fds("--json-status-fd")
    if fds:
        hold(fds, for_ever=True)


if __name__ == "__main__":
    main(defect)
