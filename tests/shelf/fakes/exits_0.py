"""bwrap exits 0, whatever the command's status was."""

from __future__ import annotations

from shelf_wrapping import Launch, end_with, main, wait_for


def defect(launch: Launch) -> None:
    wait_for(launch)
    end_with(0)


if __name__ == "__main__":
    main(defect)
