"""A process that has nothing to do goes on for ever."""

from __future__ import annotations

from shelf_wrapping import Launch, hold, main


def defect(launch: Launch) -> None:
    del launch
    hold([], for_ever=True)


if __name__ == "__main__":
    main(defect)
