"""--userns-block-fd does nothing: bwrap writes the id maps itself."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--userns-block-fd")


if __name__ == "__main__":
    main(defect)
