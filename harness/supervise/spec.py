"""A small sandbox spec, and the pure function from it to bwrap's options.

Nothing here touches the operating system: ``bwrap_arguments`` is given the environment and a
test for existence.  Its result is what ``Launch.options`` wants.  Needs bwrap 0.5.0 or newer
(``--clearenv``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Union

__all__ = [
    "DEFAULT_PATH",
    "HOME",
    "SYSTEM_DIRECTORIES",
    "Bind",
    "SandboxSpec",
    "SpecConflict",
    "bwrap_arguments",
]

HOME = "/tmp/home"
"""HOME inside: an empty directory on the sandbox's own tmpfs, gone with it."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SYSTEM_DIRECTORIES = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/run/current-system",
)
"""Bound read-only where they exist.  On a merged-usr host /bin is a symbolic link to usr/bin;
bwrap resolves the *source* of a bind, so ``--ro-bind /bin /bin`` shows the same files whether it
is a link or a directory.  ``--symlink`` would need to know which, and where the link points."""

_UNTOUCHABLE = ("/proc", "/dev")
_NETWORKS = ("none", "host", "provider")
_MAX_HOSTNAME_BYTES = 64  # HOST_NAME_MAX, gethostname(2).

Bind = Union[str, tuple[str, str]]
"""A source that appears at its own path, or ``(source, destination)``."""


class SpecConflict(ValueError):
    """The spec contradicts itself; ``conflicts`` lists every contradiction, not the first."""

    def __init__(self, conflicts: Sequence[str]) -> None:
        super().__init__("; ".join(conflicts))
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox may see; everything that is not named here is absent.

    ``environment``: names carried from the caller's environment into the cleared one; unset names
    are dropped; HOME is refused, PATH replaces DEFAULT_PATH.  ``network``: "none" - a namespace
    with loopback only; "host" - the caller's; "provider" - as "none", for ``Launch.provider`` to
    fill.  ``control_socket``: a socket's path; its *directory* is bound read-write at its own
    path, because a socket that is bound itself goes stale when its server makes a new one.
    ``chdir``: a path inside, HOME by default.  All paths are absolute, without ``..``.
    """

    read_only: Sequence[Bind] = ()
    read_write: Sequence[Bind] = ()
    environment: Sequence[str] = ()
    network: str = "none"
    control_socket: str | None = None
    chdir: str | None = None
    hostname: str | None = None


@dataclass(frozen=True)
class _Mount:
    option: str
    source: str
    destination: str


def bwrap_arguments(
    spec: SandboxSpec, *, environ: Mapping[str, str], exists: Callable[[str], bool]
) -> list[str]:
    """Return bwrap's options for a spec, without the command.  Pure.

    ``exists(path)`` is asked only about SYSTEM_DIRECTORIES; ``environ`` only about the names in
    ``spec.environment``.  A bind whose source is missing is left to bwrap, which fails in set-up.

    Order is meaning: bwrap works through its options one after another (bwrap(1)), so the tmpfs on
    /tmp comes before binds beneath it, and a bind comes before those beneath its destination.

    Raises SpecConflict.
    """
    mounts = _mounts(spec)
    conflicts = [*_path_conflicts(spec), *_mount_conflicts(mounts), *_other_conflicts(spec)]
    if conflicts:
        raise SpecConflict(conflicts)
    # To root bwrap leaves every capability inside (measured: 0.4.1 to 0.11.1; bwrap(1), --cap-drop,
    # says none), and with those a command makes what is bound read-only writable again.
    arguments = ["--die-with-parent", "--unshare-all", "--cap-drop", "ALL"]
    if spec.network == "host":
        arguments.append("--share-net")
    if spec.hostname is not None:
        arguments += ["--hostname", spec.hostname]
    for directory in SYSTEM_DIRECTORIES:
        if exists(directory):
            arguments += ["--ro-bind", directory, directory]
    arguments += ["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--dir", HOME]
    for mount in sorted(dict.fromkeys(mounts), key=lambda each: each.destination.count("/")):
        arguments += [mount.option, mount.source, mount.destination]
    arguments += ["--clearenv", "--setenv", "HOME", HOME]
    if "PATH" not in spec.environment or "PATH" not in environ:
        arguments += ["--setenv", "PATH", DEFAULT_PATH]
    for name in dict.fromkeys(spec.environment):
        if name in environ:
            arguments += ["--setenv", name, environ[name]]
    return [*arguments, "--chdir", HOME if spec.chdir is None else spec.chdir]


def _mounts(spec: SandboxSpec) -> list[_Mount]:
    mounts = []
    for option, binds in (("--ro-bind", spec.read_only), ("--bind", spec.read_write)):
        for bind in binds:
            source, destination = (bind, bind) if isinstance(bind, str) else bind
            mounts.append(_Mount(option, _clean(source), _clean(destination)))
    if spec.control_socket is not None:
        directory = posixpath.dirname(_clean(spec.control_socket))
        mounts.append(_Mount("--bind", directory, directory))
    return mounts


def _clean(path: str) -> str:
    # normpath keeps a leading "//", which Linux does not tell from "/".
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


def _path_conflicts(spec: SandboxSpec) -> list[str]:
    named: list[tuple[str, str]] = []
    for bind in (*spec.read_only, *spec.read_write):
        pair = (bind,) if isinstance(bind, str) else bind
        named += [("bind path", path) for path in pair]
    if spec.control_socket is not None:
        named.append(("control socket", spec.control_socket))
    if spec.chdir is not None:
        named.append(("chdir", spec.chdir))
    conflicts = []
    for what, path in named:
        if not path.startswith("/"):
            conflicts.append(f"{what} {path!r} is not absolute")
        elif ".." in path.split("/"):
            # Through a symbolic link ".." leads where the text does not say.
            conflicts.append(f"{what} {path!r} contains '..'")
        elif "\0" in path:
            conflicts.append(f"{what} {path!r} contains a NUL")
    return conflicts


def _mount_conflicts(mounts: Sequence[_Mount]) -> list[str]:
    conflicts = []
    seen: dict[str, _Mount] = {}
    for mount in mounts:
        where = mount.destination
        if mount.source == "/":
            conflicts.append("binding / would show the sandbox everything")
        if reason := _forbidden(where, writable=mount.option == "--bind"):
            conflicts.append(reason)
        earlier = seen.setdefault(where, mount)
        if earlier.option != mount.option:
            conflicts.append(f"{where} is bound both read-only and read-write")
        elif earlier.source != mount.source:
            conflicts.append(f"{where} is bound from both {earlier.source} and {mount.source}")
    return list(dict.fromkeys(conflicts))


def _forbidden(destination: str, *, writable: bool) -> str | None:
    if destination == "/":
        return "a bind onto / would hide the whole sandbox"
    for root in _UNTOUCHABLE:
        if _covers(root, destination):
            return f"{destination} is in the sandbox's own {root}"
    for own in ("/tmp", HOME):
        if destination == own:
            return f"a bind onto {own} would hide the sandbox's own"
    for directory in SYSTEM_DIRECTORIES:
        if _covers(destination, directory) and (writable or destination != directory):
            return f"a bind onto {destination} would replace the read-only {directory}"
    return None


def _covers(directory: str, path: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _other_conflicts(spec: SandboxSpec) -> list[str]:
    conflicts = []
    for name in spec.environment:
        if not name or "=" in name or "\0" in name:
            conflicts.append(f"{name!r} is not the name of an environment variable")
        elif name == "HOME":
            conflicts.append(f"HOME is {HOME} inside and cannot be carried in")
    if spec.network not in _NETWORKS:
        conflicts.append(f"network {spec.network!r} is not one of {', '.join(_NETWORKS)}")
    if spec.hostname is not None and not 0 < len(spec.hostname.encode()) <= _MAX_HOSTNAME_BYTES:
        conflicts.append(f"hostname {spec.hostname!r} is not 1 to {_MAX_HOSTNAME_BYTES} bytes")
    return conflicts
