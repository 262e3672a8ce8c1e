"""child-pid is counted in the sandbox's own pid namespace."""

from __future__ import annotations

import re

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    if "--unshare-pid" in launch or "--unshare-all" in launch:
        relay_lines(launch, lambda line: re.sub(rb'(child-pid"?: *)\d+', rb"\g<1>1", line))


if __name__ == "__main__":
    main(defect)
