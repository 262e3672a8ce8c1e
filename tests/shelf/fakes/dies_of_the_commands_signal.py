"""bwrap dies of the signal that the command died of."""

from __future__ import annotations

from shelf_wrapping import Launch, end_with, main, wait_for


def defect(launch: Launch) -> None:
    status = wait_for(launch)
    end_with(128 - status if status > 128 else status)


if __name__ == "__main__":
    main(defect)
