"""What a test image is, as data: its definition, its Dockerfile, its labels, its profile.

Pure: ``containers/`` holds the files, ``harness.images`` reads them and has images built, and
``harness.backends.docker`` is what talks to an engine.  Adding an image is adding one small file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: What an image of ours is called in every engine; the tag is the definition's name.
REPOSITORY = "bwrap-harness"
LABEL = "bwrap-harness"
LABEL_IMAGE = f"{LABEL}.image"
LABEL_DEFINITION = f"{LABEL}.definition"
LABEL_BWRAP = f"{LABEL}.bwrap"
LABEL_PACKAGES = f"{LABEL}.packages"
LABEL_SOURCE = f"{LABEL}.built-from"
#: The same in every image, however it was built.  Messages of tools are in one language.
CONFIGURATION = ("ENV LANG=C.UTF-8", 'CMD ["bash"]')

#: A name is a tag and part of a file's name.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


class DefinitionInvalid(ValueError):
    """A definition or the profile says something that there is not; the text says what."""


@dataclass(frozen=True, slots=True)
class Manager:
    """How one package manager installs, and tells versions as lines of ``name=version``."""

    install: str
    versions: str


MANAGERS: dict[str, Manager] = {
    "apt": Manager(
        "apt-get {options}update && apt-get install -y --no-install-recommends {packages}"
        " && rm -rf /var/lib/apt/lists/*",
        "dpkg-query -W -f '${{Package}}=${{Version}}\\n' {packages}",
    ),
    "apk": Manager(
        "apk add --no-cache {packages}",
        'for p in {packages}; do set -- $(apk list -I "$p"); echo "$p=${{1#"$p"-}}"; done',
    ),
    "dnf": Manager(
        "dnf -y install {packages} && dnf clean all",
        "rpm -q --qf '%{{NAME}}=%{{VERSION}}-%{{RELEASE}}\\n' {packages}",
    ),
}


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How to make the root folder without a registry.  ``expired``: accept old Release files."""

    suite: str
    expired: bool = False


@dataclass(frozen=True, slots=True)
class ImageDefinition:
    """One file of ``containers/images``.  ``registry`` is the image that a registry has."""

    name: str
    about: str
    registry: str
    manager: str
    packages: tuple[str, ...]
    bootstrap: Bootstrap | None = None

    @property
    def tag(self) -> str:
        """What the image is called in an engine."""
        return f"{REPOSITORY}:{self.name}"

    def install_command(self) -> str:
        """The shell command that installs the packages."""
        expired = self.bootstrap is not None and self.bootstrap.expired
        options = "-o Acquire::Check-Valid-Until=false " if expired else ""
        return MANAGERS[self.manager].install.format(
            packages=" ".join(self.packages), options=options
        )

    def versions_command(self) -> str:
        """The shell command that prints ``name=version`` for each package."""
        return MANAGERS[self.manager].versions.format(packages=" ".join(self.packages))

    def dockerfile(self, template: str) -> str:
        """The template, filled in.  DefinitionInvalid when it asks for what there is not."""
        values = {
            "registry": self.registry,
            "install": self.install_command(),
            "config": "\n".join(CONFIGURATION),
        }

        def fill(found: re.Match[str]) -> str:
            if found[1] not in values:
                known = ", ".join(values)
                raise DefinitionInvalid(f"the template asks for {found[1]}; there are {known}")
            return values[found[1]]

        lines = [line for line in template.splitlines() if not line.startswith("#")]
        return re.sub(r"\{\{(\w+)\}\}", fill, "\n".join(lines)) + "\n"

    def digest(self, template: str) -> str:
        """The hash of everything that decides what is in the image; 64 hexadecimal digits.

        Both ways to build are part of it, so that they end in the same tag and the same label.
        What only explains (``about``, comments) is not.
        """
        strap = self.bootstrap
        said = {
            "name": self.name,
            "dockerfile": self.dockerfile(template),
            "bootstrap": None if strap is None else [strap.suite, strap.expired],
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def parse_definition(name: str, given: Mapping[str, Any]) -> ImageDefinition:
    """A definition from what its file says.  DefinitionInvalid names the member that is wrong."""
    if not NAME.fullmatch(name):
        raise DefinitionInvalid(f"{name!r} is no name: expected lower-case letters, digits, . _ -")
    _refuse_others(given, ("about", "registry", "manager", "packages", "bootstrap"))
    for member in ("about", "registry", "manager"):
        _expect(given, member, str, "a text")
    if given["manager"] not in MANAGERS:
        raise DefinitionInvalid(
            f"there is no manager {given['manager']}: expected {', '.join(MANAGERS)}"
        )
    if not _WORD.fullmatch(given["registry"]):
        raise DefinitionInvalid(f"registry: {given['registry']!r} is no name of an image")
    packages = _texts(given, "packages")
    for package in packages:
        if not _PACKAGE.fullmatch(package):
            raise DefinitionInvalid(f"packages: {package!r} is no name of a package")
    for needed in ("bubblewrap", "python3"):
        if needed not in packages:
            raise DefinitionInvalid(f"packages: {needed} is missing, and nothing works without it")
    return ImageDefinition(
        name=name,
        about=given["about"],
        registry=given["registry"],
        manager=given["manager"],
        packages=packages,
        bootstrap=_bootstrap(given.get("bootstrap"), given["manager"]),
    )


def _bootstrap(given: Any, manager: str) -> Bootstrap | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise DefinitionInvalid("bootstrap: expected a table with a suite")
    _refuse_others(given, ("suite", "expired"))
    _expect(given, "suite", str, "a text")
    if manager != "apt" or not _PACKAGE.fullmatch(given["suite"]):
        raise DefinitionInvalid("bootstrap: expected a suite of Debian's, and the manager apt")
    expired = given.get("expired", False)
    if not isinstance(expired, bool):
        raise DefinitionInvalid("bootstrap.expired: expected true or false")
    return Bootstrap(given["suite"], expired)


# --- the profile ---------------------------------------------------------------------------------


#: The kinds of engine that a knob may be for.
DOCKER, PODMAN = "docker", "podman"


@dataclass(frozen=True, slots=True)
class Knob:
    """One deviation from an engine's defaults, and what breaks without it.

    ``engine`` is the one kind of engine that it is for, or empty: another may not know the setting.
    """

    name: str
    breaks: str
    settings: Mapping[str, Any]
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """The privileged-userns profile: knobs for every container, and more for root's.

    ``privileged`` is the variant that nobody gets without asking for it.
    """

    knobs: tuple[Knob, ...]
    root: tuple[Knob, ...] = ()
    privileged: tuple[Knob, ...] = ()

    def without(self, *names: str) -> Profile:
        """The profile less some knobs: how it is found out what breaks without them."""
        return Profile(
            tuple(knob for knob in self.knobs if knob.name not in names),
            tuple(knob for knob in self.root if knob.name not in names),
            self.privileged,
        )

    def host_config(
        self, *, as_root: bool, privileged: bool = False, engine: str = DOCKER
    ) -> dict[str, Any]:
        """The members of an engine's ``HostConfig``; ``as_root`` adds what root's bwrap needs."""
        config: dict[str, Any] = {}
        chosen = (*self.knobs, *(self.root if as_root else ()))
        for knob in (*chosen, *(self.privileged if privileged else ())):
            if knob.engine not in ("", engine):
                continue
            for setting, value in knob.settings.items():
                member, shape = _SETTINGS[setting]
                config[member] = shape(value, config.get(member))
        return config


def _joined(value: Any, before: Any) -> Any:
    return [*(before or []), *value]


def _devices(value: Any, before: Any) -> Any:
    mapped = [
        {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in value
    ]
    return [*(before or []), *mapped]


def _last(value: Any, _before: Any) -> Any:
    return value


#: Setting of the profile -> member of HostConfig, and how several values come together.
_SETTINGS: dict[str, tuple[str, Any]] = {
    "security_opt": ("SecurityOpt", _joined),
    # An empty list is not the same as none: it uncovers what the engine covers by default.
    "masked_paths": ("MaskedPaths", _joined),
    "readonly_paths": ("ReadonlyPaths", _joined),
    "devices": ("Devices", _devices),
    "cap_add": ("CapAdd", _joined),
    "network": ("NetworkMode", _last),
    "tmpfs": ("Tmpfs", _last),
    "privileged": ("Privileged", _last),
}


def parse_profile(given: Mapping[str, Any]) -> Profile:
    """The profile from what its file says.  DefinitionInvalid names what is wrong."""
    kinds = ("knob", "root", "privileged")
    _refuse_others(given, kinds)
    return Profile(*(tuple(_knob(each) for each in given.get(kind, ())) for kind in kinds))


def _knob(given: Mapping[str, Any]) -> Knob:
    _expect(given, "name", str, "a text")
    _expect(given, "breaks", str, "what breaks without it")
    engine = given.get("engine", "")
    if engine not in ("", DOCKER, PODMAN):
        raise DefinitionInvalid(f"engine: expected {DOCKER} or {PODMAN}, got {engine!r}")
    words = ("name", "breaks", "engine")
    settings = {name: value for name, value in given.items() if name not in words}
    for name in settings:
        if name not in _SETTINGS:
            raise DefinitionInvalid(
                f"knob {given['name']}: there is no setting {name}; there are "
                + ", ".join(_SETTINGS)
            )
    if not settings:
        raise DefinitionInvalid(f"knob {given['name']} sets nothing")
    return Knob(given["name"], given["breaks"], settings, engine)


# --- labels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Built:
    """An image as an engine has it.  ``digest`` is its id; ``packages`` are name to version."""

    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> dict[str, str]:
        """What the label says was installed."""
        return parse_versions(self.labels.get(LABEL_PACKAGES, "").split())


def parse_versions(lines: Iterable[str]) -> dict[str, str]:
    """``name=version`` lines as a mapping; other lines are no versions and are left out."""
    pairs = (line.strip().partition("=") for line in lines)
    return {name: version for name, equals, version in pairs if equals and version}


def label_lines(labels: Mapping[str, str]) -> list[str]:
    """``LABEL`` instructions, quoted as Dockerfiles want it."""
    return [f"LABEL {name}={_quoted(value)}" for name, value in labels.items()]


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\$])', r"\\\1", text)
    return f'"{escaped}"'


# --- checking ------------------------------------------------------------------------------------


def _refuse_others(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for member in given:
        if member not in known:
            raise DefinitionInvalid(f"there is no member {member}: expected {', '.join(known)}")


def _expect(given: Mapping[str, Any], member: str, kind: type, words: str) -> None:
    if not isinstance(given.get(member), kind) or not given[member]:
        raise DefinitionInvalid(f"{member}: expected {words}, got {given.get(member)!r}")


def _texts(given: Mapping[str, Any], member: str) -> tuple[str, ...]:
    value = given.get(member)
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise DefinitionInvalid(f"{member}: expected a list of texts, got {value!r}")
    return tuple(value)
