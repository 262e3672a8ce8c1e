"""No defect, but it waits for bwrap as its child instead of becoming it."""

from __future__ import annotations

from shelf_wrapping import Launch, end_with, main, wait_for


def defect(launch: Launch) -> None:
    end_with(wait_for(launch))


if __name__ == "__main__":
    main(defect)
