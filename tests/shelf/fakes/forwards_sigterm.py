"""SIGTERM is passed on to the command instead of ending bwrap."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from shelf_wrapping import Launch, below, end_with, main, wait_for


def defect(launch: Launch) -> None:
    def forward(child: int) -> None:
        for pid in below(child):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    end_with(wait_for(launch, on_signal={signal.SIGTERM: forward}))


if __name__ == "__main__":
    main(defect)
