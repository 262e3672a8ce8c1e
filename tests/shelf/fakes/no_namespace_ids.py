"""The first object names no namespaces."""

from __future__ import annotations

import re

from shelf_wrapping import Launch, main, relay_lines


def defect(launch: Launch) -> None:
    relay_lines(launch, lambda line: re.sub(rb', *"[a-z]+-namespace": *\d+', b"", line))


if __name__ == "__main__":
    main(defect)
