"""The command has a copy of the sync fd."""

from __future__ import annotations

from shelf_wrapping import Launch, leak, main


def defect(launch: Launch) -> None:
    for fd in launch.fds("--sync-fd"):
        leak(fd)


if __name__ == "__main__":
    main(defect)
