"""``image:`` subjects: from a name to a running container and a bwrap in it that proved itself.

Apart from ``harness.subjects``, because the docker SDK takes a tenth of a second to import, which
nobody should wait for who runs on this machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.backends.container import Container
from harness.backends.docker import Engine
from harness.errors import EnvironmentUnfit
from harness.images import Catalogue, image_state, read_catalogue
from harness.model.image import REPOSITORY, Built
from harness.pipeline import Target
from harness.subjects import IMAGE, Identity, identify_target

#: Whom supervisors in an image run as unless told otherwise; every distribution has that user.
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Containers:
    """Where ``image:`` subjects run: an engine, and what ``containers/`` says.

    ``as_root``: some supervisor will be root; ``privileged``: the variant of the profile that was
    asked for; ``tell`` takes what people should know.
    """

    engine: Engine
    catalogue: Catalogue
    user: str | None
    as_root: bool
    tell: Callable[[str], None]
    stop_fd: int
    log: IO[bytes]
    privileged: bool = False

    @classmethod
    def open(
        cls,
        user: str | None,
        *,
        as_root: bool,
        privileged: bool = False,
        tell: Callable[[str], None],
        stop_fd: int,
        log: IO[bytes],
        definitions: Path | None = None,
    ) -> Containers:
        """Connect to the engine, and remove what harnesses that are gone left in it.

        UsageError when there are no definitions, EnvironmentUnfit when there is no engine.
        """
        catalogue = read_catalogue(definitions)
        engine = Engine.connect()
        try:
            engine.sweep()
        except BaseException:
            engine.close()
            raise
        root = as_root or user in ("0", "root")
        return cls(engine, catalogue, user, root, tell, stop_fd, log, privileged)

    def close(self) -> None:
        """Close the connection; the containers were closed by then."""
        self.engine.close()

    def open_target(self, spec: str, tools: Sequence[str], stack: ExitStack) -> Target:
        """Start the container of one subject, closed with ``stack``, and identify its bwrap.

        EnvironmentUnfit when the image is not built, cannot be started, or cannot be recorded in.
        """
        name = spec.removeprefix(IMAGE)
        image = self._image(name)
        container = self._start(name, image)
        stack.callback(container.close)
        agent = container.start_agent(stop_fd=self.stop_fd, log=self.log)
        try:
            # The cheapest of questions: is there an agent at all, and what is in its way?
            agent.ask({"do": "identify", "path": "/", "uid": 0, "gid": 0})
            container.proved()
            identity = Identity(*container.look_up(self.user or NOBODY))
            question = {"do": "facts", "uid": identity.uid, "tools": list(tools)}
            environment = agent.ask(question)
            bwrap = environment["facts"]["tool:bwrap"]
            if not bwrap["ok"]:
                raise EnvironmentUnfit(f"subject {spec}: there is no bwrap in the image")
            known = {"recorder_uid": 0}
            target = identify_target(
                spec, bwrap["detail"], container, agent, identity, environment, known, image.digest
            )
        except BaseException:
            agent.close()
            raise
        container.keep(agent)
        return target

    def _image(self, name: str) -> Built:
        tag = f"{REPOSITORY}:{name}"
        image = self.engine.image(tag)
        if image is None:
            remedy = f"harness images build {name}"
            if name not in self.catalogue.definitions:
                remedy = "there is no such definition; expected one of " + ", ".join(
                    self.catalogue.definitions
                )
            raise EnvironmentUnfit(f"image:{name} is not built: {remedy}")
        defined = name in self.catalogue.definitions
        if defined and image_state(self.catalogue, self.engine, name).state == "stale":
            self.tell(f"image:{name} is stale: harness images build {name}")
        return image

    def _start(self, name: str, image: Built) -> Container:
        profile = self.catalogue.profile
        how: dict[str, Any] = {
            "as_root": self.as_root,
            "privileged": self.privileged,
            "engine": self.engine.kind,
        }
        config = profile.host_config(**how)
        open_container = self.engine.open_container
        try:
            return open_container(name, image.digest, config, stop_fd=self.stop_fd)
        except EnvironmentUnfit as refused:
            if "/dev/net/tun" not in str(refused):
                raise
            # The engine's machine has none: scenarios with a provider are skipped, and say so.
            config = profile.without("tun").host_config(**how)
            return open_container(name, image.digest, config, stop_fd=self.stop_fd)
