"""A gate whose far end is gone stays closed: a mended bwrap, no broken one."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, beside, main, put_in_place, until_ended


def defect(launch: Launch) -> None:
    own = os.getpid()
    for fd in launch.fds("--block-fd"):
        outside = os.dup(fd)
        inside, near = os.pipe()

        def watch(outside: int = outside, near: int = near) -> None:
            if os.read(outside, 1):
                os.write(near, b"x")
            until_ended(own)

        beside(watch, keep=[outside, near])
        os.close(outside)
        os.close(near)
        put_in_place(inside, fd)


if __name__ == "__main__":
    main(defect)
