"""A command that is not there makes bwrap exit 127, as a shell does."""

from __future__ import annotations

import shutil

from shelf_wrapping import Launch, end_with, main, wait_for


def defect(launch: Launch) -> None:
    status = wait_for(launch)
    end_with(127 if shutil.which(launch.command[0]) is None else status)


if __name__ == "__main__":
    main(defect)
