"""--block-fd does nothing: there is no gate."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--block-fd")


if __name__ == "__main__":
    main(defect)
