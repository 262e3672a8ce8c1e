"""exit-code is the raw wait status: 1792 for 7."""

from __future__ import annotations

import re

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    def raw(found: re.Match[bytes]) -> bytes:
        return found[1] + str(int(found[2]) << 8).encode()

    relay_lines(launch, lambda line: re.sub(rb'(exit-code"?: *)(\d+)', raw, line))


if __name__ == "__main__":
    main(defect)
