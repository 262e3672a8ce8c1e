"""One fd serves two data files."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    seen: set[str] = set()
    for option in launch.options:
        if option[0] in ("--file", "--bind-data", "--ro-bind-data"):
            if option[1] in seen:
                copy = os.memfd_create("data", 0)
                os.write(copy, os.pread(int(option[1]), 1 << 16, 0))
                os.lseek(copy, 0, os.SEEK_SET)
                option[1] = str(copy)
            seen.add(option[1])


if __name__ == "__main__":
    main(defect)
