"""A gate number on which nothing is open is refused: a mended bwrap, no broken one."""

from __future__ import annotations

from shelf_wrapping import Launch, is_open, main, refuse


def defect(launch: Launch) -> None:
    for fd in launch.fds("--block-fd"):
        if not is_open(fd):
            refuse(f"--block-fd {fd}: Bad file descriptor")


if __name__ == "__main__":
    main(defect)
