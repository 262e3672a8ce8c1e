"""--die-with-parent concerns bwrap alone: the sandbox lives on."""

from __future__ import annotations

import ctypes
import signal

from shelf_wrapping import Launch, main

_PR_SET_PDEATHSIG = 1


def defect(launch: Launch) -> None:
    if "--die-with-parent" in launch:
        launch.drop("--die-with-parent")
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(defect)
