"""In a pid namespace the command is always pid 1."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    if "--unshare-pid" in launch and "--lock-file" not in launch and "--as-pid-1" not in launch:
        launch.add("--as-pid-1")


if __name__ == "__main__":
    main(defect)
