"""The gate never opens."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, hold, main, put_in_place


def defect(launch: Launch) -> None:
    for fd in launch.fds("--block-fd"):
        source, sink = os.pipe()
        hold([sink])
        os.close(sink)
        put_in_place(source, fd)


if __name__ == "__main__":
    main(defect)
