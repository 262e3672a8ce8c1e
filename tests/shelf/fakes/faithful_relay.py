"""No defect, with a process that passes the status stream on as it is."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    relay_lines(launch, lambda line: line)


if __name__ == "__main__":
    main(defect)
