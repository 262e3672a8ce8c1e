"""The lock is an exclusive one: the files are locked with flock."""

from __future__ import annotations

import fcntl
import os

from shelf_wrapping import Launch, locked_beside, main, refuse


def defect(launch: Launch) -> None:
    files = [os.open(path, os.O_RDONLY) for path in launch.values("--lock-file")]
    for file in files:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            refuse(f"Can't lock file: {fault.strerror}")
    if files:
        launch.drop("--lock-file")
        locked_beside(launch, files)


if __name__ == "__main__":
    main(defect)
