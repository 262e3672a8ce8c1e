"""Who owns a container: so that what a killed harness left is swept, and nothing else.

The label of a container names a process in a way that no other process is ever taken for it.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.model.image import LABEL

LABEL_OWNER = f"{LABEL}.owner"


def owner() -> str:
    """This process, so that no other is ever taken for it: where it is, its pid, its start."""
    return f"{_machine()} {os.getpid()} {_started(os.getpid())}"


def is_abandoned(label: str, state: str) -> bool:
    """Whether the owner of a container is gone for certain, or the container itself has ended."""
    if state in ("exited", "dead"):
        return True
    machine, _, process = label.rpartition(" ")[0].rpartition(" ")
    started = label.rpartition(" ")[2]
    if machine != _machine() or not process.isdecimal():
        return False
    return _started(int(process)) != started


def _machine() -> str:
    """This boot of this machine, and this pid namespace: where our pids mean something."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """When a process started, in ticks since boot (proc(5), stat 22); empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
