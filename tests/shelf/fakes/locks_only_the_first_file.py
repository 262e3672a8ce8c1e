"""Of several --lock-file only the first one counts."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    names = [option for option in launch.options if option[0] == "--lock-file"]
    launch.options = [option for option in launch.options if option not in names[1:]]


if __name__ == "__main__":
    main(defect)
