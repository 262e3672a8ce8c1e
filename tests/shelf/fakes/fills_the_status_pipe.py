"""More blanks than a pipe takes come before the first object."""

from __future__ import annotations

import os
from contextlib import suppress

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    for fd in launch.fds("--json-status-fd"):
        with suppress(OSError):
            left = memoryview(b" " * (1 << 18))
            while left:
                left = left[os.write(fd, left) :]


if __name__ == "__main__":
    main(defect)
