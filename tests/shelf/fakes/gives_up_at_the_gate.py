"""Who has waited at the gate for a tenth of a second is killed."""

from __future__ import annotations

import os
import select
import signal

from shelf_wrapping import Launch, beside, children, is_open, main, read_to_end


def defect(launch: Launch) -> None:
    own = os.getpid()
    gates = [fd for fd in launch.fds("--block-fd") if is_open(fd)]
    if not gates or "--info-fd" in launch:
        return
    waiting, near = os.pipe()

    def give_up() -> None:
        for _ in read_to_end(waiting):  # its end comes right before the child reads the gate
            pass
        if not select.select(gates, [], [], 0.1)[0]:
            for pid in children(own):
                os.kill(pid, signal.SIGKILL)

    beside(give_up, keep=[waiting, *gates])
    os.set_inheritable(near, True)
    launch.add("--info-fd", str(near))


if __name__ == "__main__":
    main(defect)
