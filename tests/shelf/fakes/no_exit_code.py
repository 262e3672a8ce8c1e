"""The status stream ends without an exit-code."""

from __future__ import annotations

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    relay_lines(launch, lambda line: b"" if b"exit-code" in line else line)


if __name__ == "__main__":
    main(defect)
