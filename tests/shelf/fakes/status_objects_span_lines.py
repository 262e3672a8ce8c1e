"""An object of the status stream is spread over several lines."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    relay_lines(launch, lambda line: line.replace(b", ", b",\n  "))


if __name__ == "__main__":
    main(defect)
