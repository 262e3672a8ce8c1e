"""The info fd carries an exit-code as well, as was proposed once."""

from __future__ import annotations

import os

from shelf_wrapping import Launch, is_open, lines, main, relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def defect(launch: Launch) -> None:
    statuses, infos = launch.fds("--json-status-fd"), launch.fds("--info-fd")
    if not statuses or not infos or not is_open(infos[0]):
        return
    info = os.dup(infos[0])

    def tell(pieces: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines(pieces):
            if b"exit-code" in line:
                os.write(info, line)
            yield line

    relay(statuses[0], tell, keep=[info])


if __name__ == "__main__":
    main(defect)
