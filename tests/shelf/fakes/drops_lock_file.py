"""--lock-file does nothing."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--lock-file")


if __name__ == "__main__":
    main(defect)
