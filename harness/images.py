"""The test images: read their definitions, have them built, say what state they are in.

Two ways lead to the same tag with the same labels: a Dockerfile on an image of a registry, and
mmdebstrap(1) into a root folder that is imported.  The root folder is kept in a cache, by the hash
of the definition, so that a fresh engine costs an import and not a download.

``harness.model.image`` says what a definition is; ``harness.backends.docker`` does what an engine
must do.  Nothing here prints: what people should read goes to ``tell``.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness.backends.docker import Engine
from harness.errors import EnvironmentUnfit, UsageError
from harness.model.image import (
    CONFIGURATION,
    LABEL_BWRAP,
    LABEL_DEFINITION,
    LABEL_IMAGE,
    LABEL_PACKAGES,
    LABEL_SOURCE,
    DefinitionInvalid,
    ImageDefinition,
    Profile,
    label_lines,
    parse_definition,
    parse_profile,
    parse_versions,
)

#: Where definitions are looked for: here, then beside the package (a checkout).
FOLDER = "containers"
#: What an image is asked before it gets its labels: is everything there that a run needs?
_PROOF = "bwrap --version && python3 -c 'import ctypes, sys; assert sys.version_info >= (3, 9)'"
#: Left out of a root folder, as in the slim images of the registry.
_SLIM = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that ``containers/`` says."""

    template: str
    profile: Profile
    definitions: Mapping[str, ImageDefinition]

    def __getitem__(self, name: str) -> ImageDefinition:
        """A definition.  UsageError for a name that there is not."""
        if name not in self.definitions:
            known = ", ".join(self.definitions) or "none"
            raise UsageError(f"there is no image {name} in containers/: expected one of {known}")
        return self.definitions[name]


@dataclass(frozen=True, slots=True)
class ImageState:
    """One image: ``state`` is built, stale (made from another definition) or missing."""

    name: str
    about: str
    tag: str
    state: str
    definition: str
    digest: str = ""
    bwrap: str = ""
    built_from: str = ""
    packages: Mapping[str, str] | None = None


def read_catalogue(folder: Path | None = None) -> Catalogue:
    """Read ``folder``, or the first of the usual places.

    UsageError when there is none, or when a file is not what it should be, with its path.
    """
    beside = Path(harness.__file__).parent.parent / FOLDER
    places = [folder] if folder is not None else [Path(FOLDER), beside]
    place = next((each for each in places if (each / "profile.toml").is_file()), None)
    if place is None:
        raise UsageError(
            f"there are no image definitions in {places[0]}: run harness in a checkout, or name "
            "the folder with --containers"
        )
    definitions = {}
    for path in sorted((place / "images").glob("*.toml")):
        definitions[path.stem] = _parsed(path, functools.partial(parse_definition, path.stem))
    profile = _parsed(place / "profile.toml", parse_profile)
    template = _text(place / "Dockerfile.template")
    return Catalogue(template, profile, definitions)


def _parsed(path: Path, parse: Callable[[Mapping[str, Any]], Any]) -> Any:
    try:
        return parse(tomllib.loads(_text(path)))
    except (tomllib.TOMLDecodeError, DefinitionInvalid) as fault:
        raise UsageError(f"{path}: {fault}") from fault


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        raise UsageError(f"{path} cannot be read: {fault}") from fault


# --- what there is -------------------------------------------------------------------------------


def image_states(catalogue: Catalogue, engine: Engine) -> list[ImageState]:
    """The state of every defined image in an engine."""
    return [image_state(catalogue, engine, name) for name in catalogue.definitions]


def image_state(catalogue: Catalogue, engine: Engine, name: str) -> ImageState:
    """The state of one image."""
    definition = catalogue[name]
    digest = definition.digest(catalogue.template)
    built = engine.image(definition.tag)
    if built is None:
        return ImageState(name, definition.about, definition.tag, "missing", digest)
    fresh = built.labels.get(LABEL_DEFINITION) == digest
    return ImageState(
        name=name,
        about=definition.about,
        tag=definition.tag,
        state="built" if fresh else "stale",
        definition=digest,
        digest=built.digest,
        bwrap=built.labels.get(LABEL_BWRAP, ""),
        built_from=built.labels.get(LABEL_SOURCE, ""),
        packages=built.packages,
    )


# --- building ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workshop:
    """With what images are built.  ``mirror`` is where mmdebstrap gets packages, empty: its own."""

    catalogue: Catalogue
    engine: Engine
    cache: Path
    tell: Tell
    mirror: str = ""

    def build(self, name: str, source: str) -> ImageState:
        """Build one image from ``source``: registry, bootstrap, or auto, which tries both.

        EnvironmentUnfit when that does not work here, with the reason and what to try.
        """
        definition = self.catalogue[name]
        if source == "auto":
            image, source = self._from_either(definition)
        elif source == "registry":
            image = self._from_registry(definition)
        else:
            image = self._from_bootstrap(definition)
        before = self.engine.image(definition.tag)
        try:
            self._label(definition, image, source)
        finally:
            self.engine.remove_image(image)  # refused, and rightly, where the new one is made of it
        if before is not None:
            self.engine.remove_image(before.digest)
        return image_state(self.catalogue, self.engine, name)

    def _from_either(self, definition: ImageDefinition) -> tuple[str, str]:
        try:
            return self._from_registry(definition), "registry"
        except EnvironmentUnfit as refused:
            if definition.bootstrap is None:
                raise
            reason = str(refused).partition("\n")[0]
            self.tell(f"{definition.name}: no registry ({reason}): bootstrapping instead")
            return self._from_bootstrap(definition), "bootstrap"

    def _from_registry(self, definition: ImageDefinition) -> str:
        self.engine.pull(definition.registry)
        return self.engine.build(definition.dockerfile(self.catalogue.template))

    def _from_bootstrap(self, definition: ImageDefinition) -> str:
        return self.engine.import_root(self._root(definition), CONFIGURATION)

    def _root(self, definition: ImageDefinition) -> Path:
        """The root folder as a tar, from the cache or made now."""
        name = f"{definition.name}-{definition.digest(self.catalogue.template)[:16]}.tar"
        path = self.cache / name
        if path.is_file():
            self.tell(f"{definition.name}: using the root folder in {path}")
            return path
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise EnvironmentUnfit(
                f"the cache {self.cache} cannot be made: {fault.strerror}; "
                "name another with --cache"
            ) from fault
        draft = path.with_name(f".{os.getpid()}-{name}")
        try:
            bootstrap(definition, draft, mirror=self.mirror)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return path

    def _label(self, definition: ImageDefinition, image: str, source: str) -> None:
        said = self.engine.run(image, f"{_PROOF} && {definition.versions_command()}")
        bwrap = re.search(r"bubblewrap (\S+)", said)
        packages = parse_versions(said.splitlines())
        labels = {
            LABEL_IMAGE: definition.name,
            LABEL_DEFINITION: definition.digest(self.catalogue.template),
            LABEL_BWRAP: bwrap[1] if bwrap else "",
            LABEL_PACKAGES: " ".join(f"{name}={packages[name]}" for name in sorted(packages)),
            LABEL_SOURCE: source,
        }
        self.engine.commit(image, definition.tag, [*CONFIGURATION, *label_lines(labels)])


def default_cache() -> Path:
    """Where root folders are kept: the XDG Base Directory Specification."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "bwrap-harness" / "rootfs"


def bootstrap_command(definition: ImageDefinition, tar: Path, *, mirror: str = "") -> Sequence[str]:
    """The call of mmdebstrap(1) that makes a definition's root folder."""
    strap = definition.bootstrap
    if strap is None:
        raise EnvironmentUnfit(
            f"{definition.name} cannot be bootstrapped: its definition has no [bootstrap]; "
            "build it --from registry"
        )
    command = ["mmdebstrap", "--quiet", "--variant=minbase"]
    command += [f"--include={','.join(definition.packages)}"]
    if strap.expired:
        command += ['--aptopt=Acquire::Check-Valid-Until "false"']
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _SLIM]
    return [*command, strap.suite, str(tar), *([mirror] if mirror else [])]


def bootstrap(definition: ImageDefinition, tar: Path, *, mirror: str = "") -> None:
    """Make a definition's root folder.  EnvironmentUnfit with mmdebstrap's own words."""
    command = bootstrap_command(definition, tar, mirror=mirror)
    if shutil.which("mmdebstrap") is None:
        raise EnvironmentUnfit(
            f"{definition.name} cannot be bootstrapped: install the package mmdebstrap, or build "
            "it --from registry"
        )
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        tail = done.stderr.decode("utf-8", "replace").strip().splitlines()[-6:]
        raise EnvironmentUnfit(f"mmdebstrap could not make {definition.name}:\n" + "\n".join(tail))
