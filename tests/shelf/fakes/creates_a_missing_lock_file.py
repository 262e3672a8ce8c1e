"""A lock file that is not there is made."""

from __future__ import annotations

import os
from contextlib import suppress

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    for path in launch.values("--lock-file"):
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))


if __name__ == "__main__":
    main(defect)
