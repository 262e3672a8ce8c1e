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
import functools
import io
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import docker.errors

from harness.backends.cargo import AGENT_FOLDER, add_file, agent_archive
from harness.backends.connection import ENGINE_FAULTS, innermost, is_silence, let_go, open_wire
from harness.backends.container import Container
from harness.backends.ownership import LABEL_OWNER, is_abandoned, owner
from harness.backends.stream import Wire
from harness.errors import EnvironmentUnfit
from harness.model.image import DOCKER, LABEL_IMAGE, PODMAN, Built

#: The main process.  Orphans of agents that were killed fall to it: with SIGCHLD ignored the kernel
#: reaps them (wait(2), "Notes"), and cat keeps that over exec.  It says when it is ready, since the
#: device must be open to all before the first trial of it.
MAIN_COMMAND = (
    "sh", "-c", "chmod 0666 /dev/net/tun 2>/dev/null; trap '' CHLD; echo ready; exec cat >/dev/null"
)  # fmt: skip
#: How long an engine may take to say which one it is: a second, or never.
ANSWER_DEADLINE_S = 30
#: How long any other request may take: none takes a second, but the machine may be busy.
REQUEST_DEADLINE_S = 60
#: And how long, of an engine that was silent for so long already: until it answers again, nothing
#: that is still to be recorded is to wait for it.
SILENT_DEADLINE_S = 1
#: How long one may take that makes an image: the import of a whole root folder, a step of a build.
IMAGE_DEADLINE_S = 600
#: How long an engine may take over a container's start; it takes about 0.5 s.
START_DEADLINE_S = 60.0


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
            client = docker.from_env(timeout=ANSWER_DEADLINE_S)  # it asks for the version
        except ENGINE_FAULTS as fault:
            let_go(fault)
            raise EnvironmentUnfit(
                f"no docker engine answers at {address}: {innermost(fault)}; start one, or let "
                "DOCKER_HOST name one"
            ) from fault
        client.api.timeout = REQUEST_DEADLINE_S
        return cls(client, address)

    @functools.cached_property
    def kind(self) -> str:
        """Whether it is docker, or Podman behind docker's API."""
        with self._explained("say what it is"):
            parts = self._client.version().get("Components") or ()
        return PODMAN if any("Podman" in str(part.get("Name")) for part in parts) else DOCKER

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Notice whether the engine answers; what it raises is raised."""
        try:
            yield
        except ENGINE_FAULTS as fault:
            if is_silence(fault):
                self._api.timeout = SILENT_DEADLINE_S
            raise
        if self._api.timeout == SILENT_DEADLINE_S:
            self._api.timeout = REQUEST_DEADLINE_S

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            with self._asking():
                yield
        except docker.errors.APIError as fault:
            said = fault.explanation or innermost(fault)
            raise EnvironmentUnfit(f"the engine would not {what}: {said}") from fault
        except ENGINE_FAULTS as fault:
            raise EnvironmentUnfit(
                f"the engine at {self.address} went away while it was to {what}: {innermost(fault)}"
            ) from fault

    @contextlib.contextmanager
    def _made(self, what: str) -> Iterator[None]:
        """As ``_explained``, for what makes an image: nothing else is asked of the engine then."""
        self._api.timeout = IMAGE_DEADLINE_S
        try:
            with self._explained(what):
                yield
        finally:
            self._api.timeout = REQUEST_DEADLINE_S

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
            with self._made(f"pull {name}"):
                self._client.images.pull(name)

    def build(self, dockerfile: str) -> str:
        """Build a Dockerfile that copies nothing; returns the image's id."""
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            add_file(tar, "Dockerfile", dockerfile.encode())
        with self._made("build the image"):
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
        with self._made("import the root folder"), tar.open("rb") as file:
            said = self._api.import_image_from_data(file, changes=list(changes))
        return str(said).strip().rpartition('"status":"')[2].partition('"')[0]

    def commit(self, image: str, tag: str, changes: Sequence[str]) -> None:
        """Give an image its tag and labels."""
        repository, _, name = tag.rpartition(":")
        with self._made(f"label {tag}"):
            made = self._api.create_container(
                image, command=["true"], labels={LABEL_OWNER: owner()}
            )
            try:
                self._api.commit(made["Id"], repository=repository, tag=name, changes=list(changes))
            finally:
                self._api.remove_container(made["Id"], force=True)

    def run(self, image: str, command: str) -> str:
        """Run a shell command in a container without network; returns what it printed."""
        with self._made("run a command in the new image"):
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
        with contextlib.suppress(*ENGINE_FAULTS):
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
        with contextlib.suppress(*ENGINE_FAULTS), self._asking():
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
        return open_wire(self._api.attach_socket(container, params=wanted))

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
        with self._asking():
            made = self._api.exec_create(
                container, list(command), stdin=True, user="0", workdir=AGENT_FOLDER
            )
            return made["Id"], open_wire(self._api.exec_start(made["Id"], socket=True))

    def exec_state(self, exec_id: str) -> dict[str, Any]:
        """What the engine knows of an exec; raises what the SDK raises."""
        with self._asking():
            found: dict[str, Any] = self._api.exec_inspect(exec_id)
        return found

    def container_state(self, container: str) -> dict[str, Any] | None:
        """What the engine knows of a container; None when it is gone.  Raises as the SDK does."""
        try:
            with self._asking():
                found: dict[str, Any] = self._api.inspect_container(container)["State"]
        except docker.errors.NotFound:
            return None
        return found
