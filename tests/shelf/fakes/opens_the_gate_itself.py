"""The gate is open from the start: what it reads is already there."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, main, put_in_place


def defect(launch: Launch) -> None:
    for fd in launch.fds("--block-fd"):
        source, sink = os.pipe()
        os.write(sink, b"x")
        os.close(sink)
        put_in_place(source, fd)


if __name__ == "__main__":
    main(defect)
