"""SIGTERM does nothing to bwrap."""

from __future__ import annotations

import signal

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    del launch
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main(defect)
