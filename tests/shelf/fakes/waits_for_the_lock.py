"""A lock that somebody else has is waited for."""

from __future__ import annotations

import os
from contextlib import suppress

from shelf_wrapping import Launch, lock_shared, main


def defect(launch: Launch) -> None:
    for path in launch.values("--lock-file"):
        with suppress(OSError):
            os.close(lock_shared(path, wait=True))


if __name__ == "__main__":
    main(defect)
