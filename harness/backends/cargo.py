"""What is copied into a container: the agent's sources, as one archive."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path

import harness

#: Where the agent is put in a container.  Its own folder, so that imports find nothing else there.
AGENT_FOLDER = "/opt/bwrap-harness"
#: What of the package an agent needs: standard library only, Python 3.9 (tests/test_architecture).
AGENT_SOURCES = (
    "__init__.py",
    "agent/*.py",
    "supervise/*.py",
    "model/__init__.py",
    "model/vocabulary.py",
)


def agent_archive() -> bytes:
    """The agent's sources as a tar that is unpacked at the root; readable for every user."""
    package = Path(harness.__file__).parent
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for pattern in AGENT_SOURCES:
            for path in sorted(package.glob(pattern)):
                name = f"{AGENT_FOLDER}/harness/{path.relative_to(package)}".lstrip("/")
                add_file(tar, name, path.read_bytes())
    return packed.getvalue()


def add_file(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """One file of an archive, readable for every user."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), 0o644, int(time.time())
    tar.addfile(entry, io.BytesIO(data))
