"""Ignored and blocked signals are reset before the command gets them."""

from __future__ import annotations

import signal

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    del launch
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


if __name__ == "__main__":
    main(defect)
