"""Containers through the docker SDK, which nothing else imports.

Any engine will do that ``DOCKER_HOST`` names, on this machine or another, and Podman's compatible
socket: nothing is mounted from here, the agent is copied in, timelines come back over the stream
of an exec.  One container for each image and run, one agent in it for each worker.

Nothing is left.  The container's main process reads a stdin that only we hold (StdinOnce), and the
container is removed when that process ends (AutoRemove): so it goes when we close the stream, when
we are killed, and when the connection breaks.  What a killed harness or engine leaves before or
after that carries a label that names its owner, and is swept at the next start.

Read next: ``harness.backends.stream`` (the agent's protocol), ``containers/profile.toml`` (what
such a container needs, and why).
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import docker
import docker.errors

import harness
from harness.backends.local import NO_ROOM_TO_WORK, UNFIT
from harness.backends.stream import StreamAgent, Wire
from harness.errors import EnvironmentUnfit, HarnessError, RecordingLost
from harness.model.image import LABEL, LABEL_IMAGE, Built

#: Where the agent is put in a container.  Its own folder, so that ``-m`` finds nothing else there.
AGENT_FOLDER = "/opt/bwrap-harness"
#: What of the package an agent needs: standard library only, Python 3.9 (tests/test_architecture).
AGENT_SOURCES = (
    "__init__.py",
    "agent/*.py",
    "supervise/*.py",
    "model/__init__.py",
    "model/vocabulary.py",
)
#: ``-S`` as in ``local``; ``-P`` is not known before Python 3.11, and the folder is our own.
AGENT_COMMAND = ("python3", "-S", "-u", "-m", "harness.agent", "relayed")
#: The main process.  Orphans of agents that were killed fall to it: with SIGCHLD ignored the kernel
#: reaps them (wait(2), "Notes"), and cat keeps that over exec.  It says when it is ready, since the
#: device must be open to all before the first trial of it.
MAIN_COMMAND = (
    "sh", "-c", "chmod 0666 /dev/net/tun 2>/dev/null; trap '' CHLD; echo ready; exec cat >/dev/null"
)  # fmt: skip
LABEL_OWNER = f"{LABEL}.owner"
#: How long an engine may take over a container's start; it takes about 0.5 s.
START_DEADLINE_S = 60.0
#: How long a container may take to be gone after its stream was closed.
_GONE_DEADLINE_S = 10.0
#: What the SDK raises, and what it lets through when an engine is not there or goes away: all
#: errors of the HTTP library below it are OSErrors.
_ENGINE_FAULTS = (docker.errors.DockerException, OSError)


class Engine:
    """A connection to one engine.  ``close`` it.

    Methods raise EnvironmentUnfit when the engine refuses or is not there, with its own words.
    """

    def __init__(self, client: Any, address: str) -> None:
        self._api = client.api
        self._client = client
        self.address = address

    @classmethod
    def connect(cls) -> Engine:
        """Connect as ``DOCKER_HOST``, ``DOCKER_TLS_VERIFY`` and ``DOCKER_CERT_PATH`` say."""
        address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        try:
            # A request may be as slow as the import of a whole root folder.
            client = docker.from_env(timeout=600)
        except _ENGINE_FAULTS as fault:
            raise EnvironmentUnfit(
                f"no docker engine answers at {address}: {innermost(fault)}; start one, or let "
                "DOCKER_HOST name one"
            ) from fault
        return cls(client, address)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except docker.errors.APIError as fault:
            said = fault.explanation or innermost(fault)
            raise EnvironmentUnfit(f"the engine would not {what}: {said}") from fault
        except _ENGINE_FAULTS as fault:
            raise EnvironmentUnfit(
                f"the engine at {self.address} went away while it was to {what}: {innermost(fault)}"
            ) from fault

    # --- images ----------------------------------------------------------------------------------

    def image(self, tag: str) -> Built | None:
        """An image by its tag or id; None when the engine has none."""
        with self._explained(f"look at the image {tag}"):
            try:
                found = self._api.inspect_image(tag)
            except docker.errors.ImageNotFound:
                return None
        return Built(found["Id"], found["Config"].get("Labels") or {})

    def pull(self, name: str) -> None:
        """Bring an image from its registry, unless it is here already."""
        if self.image(name) is None:
            with self._explained(f"pull {name}"):
                self._client.images.pull(name)

    def build(self, dockerfile: str) -> str:
        """Build a Dockerfile that copies nothing; returns the image's id."""
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            _add(tar, "Dockerfile", dockerfile.encode())
        with self._explained("build the image"):
            try:
                # The engine's own network: some have no bridge, and no build needs to be reached.
                image, _ = self._client.images.build(
                    fileobj=io.BytesIO(context.getvalue()),
                    custom_context=True,
                    network_mode="host",
                    rm=True,
                    forcerm=True,
                )
            except docker.errors.BuildError as fault:
                lines = [str(part.get("stream") or "") for part in fault.build_log]
                tail = "".join(lines).strip().splitlines()[-5:]
                raise EnvironmentUnfit(
                    f"the image cannot be built: {fault.msg}\n" + "\n".join(tail)
                ) from fault
        return str(image.id)

    def import_root(self, tar: Path, changes: Sequence[str]) -> str:
        """Make an image of a root folder; returns its id."""
        with self._explained("import the root folder"), tar.open("rb") as file:
            said = self._api.import_image_from_data(file, changes=list(changes))
        return str(said).strip().rpartition('"status":"')[2].partition('"')[0]

    def commit(self, image: str, tag: str, changes: Sequence[str]) -> None:
        """Give an image its tag and labels."""
        repository, _, name = tag.rpartition(":")
        with self._explained(f"label {tag}"):
            made = self._api.create_container(
                image, command=["true"], labels={LABEL_OWNER: owner()}
            )
            try:
                self._api.commit(made["Id"], repository=repository, tag=name, changes=list(changes))
            finally:
                self._api.remove_container(made["Id"], force=True)

    def run(self, image: str, command: str) -> str:
        """Run a shell command in a container without network; returns what it printed."""
        with self._explained("run a command in the new image"):
            output = self._client.containers.run(
                image,
                ["sh", "-c", command],
                remove=True,
                network_mode="none",
                labels={LABEL_OWNER: owner()},
            )
        return bytes(output).decode("utf-8", "replace")

    def remove_image(self, image: str) -> None:
        """Remove an image, unless something is made from it."""
        with contextlib.suppress(*_ENGINE_FAULTS):
            self._api.remove_image(image)

    # --- containers ------------------------------------------------------------------------------

    def sweep(self) -> list[str]:
        """Remove containers whose harness is gone; returns their ids.

        Those of another machine are left alone while they run: they end with their stream.
        """
        swept = []
        with self._explained("list containers"):
            found = self._api.containers(all=True, filters={"label": LABEL_OWNER})
        for each in found:
            if is_abandoned(each["Labels"][LABEL_OWNER], each["State"]):
                self.remove(each["Id"])
                swept.append(each["Id"])
        return swept

    def remove(self, container: str) -> None:
        """Remove a container, whatever it does; no matter if it is gone, or the engine."""
        with contextlib.suppress(*_ENGINE_FAULTS):
            self._api.remove_container(container, force=True, v=True)

    def open_container(
        self, name: str, image: str, host_config: Mapping[str, Any], *, stop_fd: int
    ) -> Container:
        """A running container with the agent in it; the caller closes it.

        ``name`` is for messages and labels; Interrupted when ``stop_fd`` becomes readable.
        """
        config = {**self._api.create_host_config(auto_remove=True), **host_config}
        with self._explained(f"start a container of image:{name}"):
            made = self._api.create_container(
                image,
                command=list(MAIN_COMMAND),
                user="0",
                stdin_open=True,
                entrypoint=[],
                labels={LABEL_OWNER: owner(), LABEL_IMAGE: name},
                host_config=config,
            )
            container = str(made["Id"])
            try:
                self._api.put_archive(container, "/", agent_archive())
                wire = self._attach(container)
                try:
                    self._api.start(container)
                    self._wait_ready(name, wire, stop_fd)
                except BaseException:
                    wire.close()
                    raise
            except BaseException:
                self.remove(container)
                raise
        return Container(self, name, container, wire)

    def _attach(self, container: str) -> Wire:
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return _wire(self._api.attach_socket(container, params=wanted))

    def _wait_ready(self, name: str, wire: Wire, stop_fd: int) -> None:
        heard = b""
        deadline = time.monotonic() + START_DEADLINE_S
        while b"ready\n" not in heard:
            try:
                frame = wire.read(deadline, stop_fd=stop_fd)
            except TimeoutError:
                frame = None
            if frame is None:
                said = heard.decode("utf-8", "replace").strip() or "nothing"
                raise EnvironmentUnfit(
                    f"the container of image:{name} did not start; it said {said}"
                )
            heard += frame[1]

    def read_file(self, container: str, path: str) -> bytes:
        """A file of a container; empty when there is none."""
        with self._explained(f"read {path}"):
            try:
                parts, _ = self._api.get_archive(container, path)
            except docker.errors.NotFound:
                return b""
            with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as tar:
                file = tar.extractfile(tar.getmembers()[0])
                return file.read() if file is not None else b""

    def open_exec(self, container: str, command: Sequence[str]) -> tuple[str, Wire]:
        """Start a process in a container, as its root; returns the exec's id and its streams."""
        made = self._api.exec_create(
            container, list(command), stdin=True, user="0", workdir=AGENT_FOLDER
        )
        return made["Id"], _wire(self._api.exec_start(made["Id"], socket=True))

    def exec_state(self, exec_id: str) -> dict[str, Any]:
        """What the engine knows of an exec; raises what the SDK raises."""
        found: dict[str, Any] = self._api.exec_inspect(exec_id)
        return found

    def container_state(self, container: str) -> dict[str, Any] | None:
        """What the engine knows of a container; None when it is gone.  Raises as the SDK does."""
        try:
            found: dict[str, Any] = self._api.inspect_container(container)["State"]
        except docker.errors.NotFound:
            return None
        return found


class Container:
    """A running container: a backend, which starts agents in it.  ``close`` it."""

    def __init__(self, engine: Engine, name: str, container_id: str, wire: Wire) -> None:
        self._engine = engine
        self._name = name
        self.id = container_id
        self._wire = wire
        self._lock = threading.Lock()
        self._proved = False
        self._spare: StreamAgent | None = None

    def start_agent(self, *, stop_fd: int, log: IO[bytes]) -> StreamAgent:
        """An agent in an exec of its own.  RecordingLost when the container or engine is gone."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.log = log
            return spare
        try:
            exec_id, wire = self._engine.open_exec(self.id, AGENT_COMMAND)
        except _ENGINE_FAULTS as fault:
            raise self._why_lost(None, innermost(fault)) from fault
        return StreamAgent(
            wire,
            stop_fd=stop_fd,
            log=log,
            why_lost=lambda said: self._why_lost(exec_id, said),
            has_ended=lambda limit_s: self._wait_ended(exec_id, limit_s),
        )

    def proved(self) -> None:
        """An agent has answered here: from now on, one that cannot start was lost."""
        self._proved = True

    def keep(self, agent: StreamAgent) -> None:
        """Keep an agent for the first worker that asks for one: its start takes a while."""
        self._spare = agent

    def look_up(self, user: str) -> tuple[int, int]:
        """The uid and gid of a user of the image, by name or number: passwd(5).

        EnvironmentUnfit when there is none of that name; a number needs no entry.
        """
        for line in self._engine.read_file(self.id, "/etc/passwd").decode().splitlines():
            fields = line.split(":")
            if len(fields) > 3 and user in (fields[0], fields[2]):
                return int(fields[2]), int(fields[3])
        if not user.isdecimal():
            raise EnvironmentUnfit(f"there is no user {user} in image:{self._name}")
        return int(user), int(user)

    def close(self) -> None:
        """End the container: its stdin hangs up, and the engine removes it."""
        if self._spare is not None:
            self._spare.close()
        self._wire.hang_up()
        deadline = time.monotonic() + _GONE_DEADLINE_S
        with contextlib.suppress(TimeoutError):
            while self._wire.read(deadline) is not None:
                pass  # the end of its output comes with its own
        self._wire.close()
        self._engine.remove(self.id)

    def _wait_ended(self, exec_id: str, limit_s: float) -> bool:
        """Whether an exec's process is gone; its streams have ended, so it is about to be."""
        deadline = time.monotonic() + limit_s
        with contextlib.suppress(*_ENGINE_FAULTS):
            while self._engine.exec_state(exec_id)["Running"]:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)  # the API has nothing to wait on
        return True

    def _why_lost(self, exec_id: str | None, said: str) -> HarnessError:
        """What became of an agent whose stream has ended."""
        image = f"image:{self._name}"
        try:
            state = self._engine.container_state(self.id)
            if exec_id is not None:
                self._wait_ended(exec_id, 1.0)
            status = None if exec_id is None else self._engine.exec_state(exec_id).get("ExitCode")
        except docker.errors.NotFound:
            status = None
        except _ENGINE_FAULTS:
            return RecordingLost(
                f"the docker engine at {self._engine.address} went away: what {image} had recorded "
                "is kept; start the engine and run it again"
            )
        quoted = f"; it said:\n{said}" if said else ""
        if state is None or not state.get("Running"):
            killed = " for want of memory" if state and state.get("OOMKilled") else ""
            return RecordingLost(f"the container of {image} has ended{killed}{quoted}")
        if not self._proved:
            return self._unfit(image, status, said)
        if status == UNFIT:
            return EnvironmentUnfit(f"{image}: {said}; {NO_ROOM_TO_WORK}")
        return RecordingLost(f"the agent in {image} has ended with status {status}{quoted}")

    def _unfit(self, image: str, status: int | None, said: str) -> EnvironmentUnfit:
        """Why no agent ever ran here: nearly always its interpreter."""
        last = said.splitlines()[-1] if said else "it said nothing"
        if status in (126, 127) or "executable file not found" in said:
            return EnvironmentUnfit(
                f"{image} has no python3, which the recorder runs on: add the package python3 to "
                "the image"
            )
        if "ModuleNotFoundError" in said or "No module named" in said:
            return EnvironmentUnfit(
                f"the python3 of {image} lacks a part of the standard library ({last}): install "
                "python3, not python3-minimal"
            )
        return EnvironmentUnfit(f"the recorder cannot run in {image} (status {status}): {last}")


# --- who owns a container ------------------------------------------------------------------------


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


# --- what goes over the connection ---------------------------------------------------------------


def agent_archive() -> bytes:
    """The agent's sources as a tar that is unpacked at the root; readable for every user."""
    package = Path(harness.__file__).parent
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for pattern in AGENT_SOURCES:
            for path in sorted(package.glob(pattern)):
                name = f"{AGENT_FOLDER}/harness/{path.relative_to(package)}".lstrip("/")
                _add(tar, name, path.read_bytes())
    return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), 0o644, int(time.time())
    tar.addfile(entry, io.BytesIO(data))


def _wire(raw: Any) -> Wire:
    """The connection below what the SDK gives for ``socket=True``.

    The SDK reads the answer's header through a buffer, and gives the stream below it: what came
    right behind the header (a process that fails at once) is still in there.
    """
    connection = getattr(raw, "_sock", raw)
    early = b""
    response = getattr(raw, "_response", None)
    buffer = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    if isinstance(buffer, io.BufferedReader):
        connection.settimeout(0)
        with contextlib.suppress(OSError, ValueError):
            early = buffer.peek()
    return Wire(_Held(connection, raw, response), early=early)


class _Held:
    """A connection, with what closes it when it is collected, and must be closed with it."""

    def __init__(self, connection: Any, *holders: Any) -> None:
        self._connection = connection
        self._holders = holders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        """Close all of it, the connection last."""
        for each in (*self._holders, self._connection):
            closing: Callable[[], None] | None = getattr(each, "close", None)
            if closing is not None:
                with contextlib.suppress(OSError, ValueError):
                    closing()


def innermost(fault: BaseException) -> str:
    """The words of whatever is below: libraries wrap a refused connection three times."""
    seen: BaseException = fault
    while (below := _below(seen)) is not None:
        seen = below
    if isinstance(seen, OSError) and seen.strerror:
        return seen.strerror
    return str(seen).strip() or type(seen).__name__


def _below(fault: BaseException) -> BaseException | None:
    for arg in (*fault.args, getattr(fault, "reason", None), fault.__cause__):
        if isinstance(arg, BaseException):
            return arg
    return None
