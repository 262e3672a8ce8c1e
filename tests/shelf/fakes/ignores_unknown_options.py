"""An option that it does not know is ignored."""

from __future__ import annotations

from shelf_wrapping import Launch, is_known, main


def defect(launch: Launch) -> None:
    launch.options = [option for option in launch.options if is_known(option[0])]


if __name__ == "__main__":
    main(defect)
