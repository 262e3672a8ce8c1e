"""The command is in a session of its own although nobody asked for it."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    if "--new-session" not in launch:
        launch.add("--new-session")


if __name__ == "__main__":
    main(defect)
