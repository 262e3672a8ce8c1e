"""No defect at all: what the fakes that execute bwrap are held against."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    del launch


if __name__ == "__main__":
    main(defect)
