"""bwrap exits only when the last process of the sandbox has."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, end_with, main, put_in_place, wait_for


def defect(launch: Launch) -> None:
    alive, near = os.pipe()
    held = [alive]
    given = launch.fds("--sync-fd")
    if given:
        held.append(os.dup(given[0]))
        put_in_place(near, given[0])
    else:
        os.set_inheritable(near, True)
        launch.add("--sync-fd", str(near))

    def wait_for_the_last() -> None:
        os.read(alive, 1)

    end_with(wait_for(launch, keep=held, finish=wait_for_the_last))


if __name__ == "__main__":
    main(defect)
