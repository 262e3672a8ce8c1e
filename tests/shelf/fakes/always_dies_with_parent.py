"""The sandbox dies with its supervisor although nobody asked for it."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.add("--die-with-parent")


if __name__ == "__main__":
    main(defect)
