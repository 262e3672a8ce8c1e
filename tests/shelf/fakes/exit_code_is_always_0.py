"""exit-code is 0, whatever the command's was."""

from __future__ import annotations

import re

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    relay_lines(launch, lambda line: re.sub(rb'(exit-code"?: *)\d+', rb"\g<1>0", line))


if __name__ == "__main__":
    main(defect)
