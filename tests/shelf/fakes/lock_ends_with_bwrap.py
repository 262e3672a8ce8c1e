"""The lock is given up when bwrap ends, whatever is left of the sandbox."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, beside, lock_shared, main, until_ended


def defect(launch: Launch) -> None:
    paths = launch.values("--lock-file")
    if not paths:
        return
    own = os.getpid()
    locked, near = os.pipe()

    def lock() -> None:
        for path in paths:
            lock_shared(path, wait=False)
        os.close(near)
        until_ended(own)

    beside(lock, keep=[near])
    os.close(near)
    os.read(locked, 1)
    launch.drop("--lock-file")
    if "--sync-fd" not in launch:
        launch.add("--sync-fd", "2")  # which keeps an init, as a lock file does


if __name__ == "__main__":
    main(defect)
