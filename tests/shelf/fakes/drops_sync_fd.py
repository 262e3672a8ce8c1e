"""--sync-fd does nothing: the fd is closed at once."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--sync-fd")


if __name__ == "__main__":
    main(defect)
