"""--as-pid-1 does nothing: an init is kept."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--as-pid-1")


if __name__ == "__main__":
    main(defect)
