"""Of --args only what is there already is read."""

from __future__ import annotations

import os
from contextlib import suppress

from shelf_wrapping import Launch, is_open, main, put_in_place, read_to_end


def defect(launch: Launch) -> None:
    for fd in launch.fds("--args"):
        if is_open(fd):
            os.set_blocking(fd, False)
            copy = os.memfd_create("args")
            with suppress(BlockingIOError):
                for piece in read_to_end(fd):
                    os.write(copy, piece)
            os.lseek(copy, 0, os.SEEK_SET)
            put_in_place(copy, fd)


if __name__ == "__main__":
    main(defect)
