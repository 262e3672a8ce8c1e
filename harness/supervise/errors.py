"""The error family of the reference supervisor: what is *ours* or the environment's, never bwrap's.

Whatever bwrap, the command or the provider did is an ``Outcome``; an exception means that the
supervisor could not do its own work.  Read ``supervisor`` next.
"""

from __future__ import annotations

__all__ = [
    "LaunchRefused",
    "LostTrack",
    "ProgramMissing",
    "SandboxSurvived",
    "SuperviseError",
]


class SuperviseError(Exception):
    """Root of the family; catch this to catch every failure of the supervisor itself."""


class ProgramMissing(SuperviseError):
    """bwrap or the provider is not on PATH, not a file, or not executable; nothing is running."""


class LaunchRefused(SuperviseError):
    """The launch contradicts itself or asks for something that cannot be supervised.

    Causes: an option that the supervisor owns, a ``--`` among the options, a descriptor that is
    not open, a provider for a sandbox that shares the host's network, SIGCHLD ignored.
    """


class LostTrack(SuperviseError):
    """A child's exit status is gone: something else in this process reaped it.

    Typical cause: ``waitpid(-1)`` in a SIGCHLD handler, or SIGCHLD set to ignore while the
    sandbox ran.  The sandbox has been ended before this is raised.
    """


class SandboxSurvived(SuperviseError):
    """A process of the sandbox outlived SIGKILL by ``END_DEADLINE_S`` (stuck in the kernel)."""
