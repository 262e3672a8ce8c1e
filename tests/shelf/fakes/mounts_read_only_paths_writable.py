"""--ro-bind can be written to."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.options = [["--bind", *o[1:]] if o[0] == "--ro-bind" else o for o in launch.options]


if __name__ == "__main__":
    main(defect)
