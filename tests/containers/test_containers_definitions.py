"""Definitions, hashes, Dockerfiles, the profile: pure, and without an engine."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from engine_place import CHECKOUT

from harness.backends.cargo import agent_archive
from harness.backends.ownership import is_abandoned, owner
from harness.errors import EnvironmentUnfit, UsageError
from harness.images import bootstrap_command, read_catalogue
from harness.model.image import (
    Bootstrap,
    DefinitionInvalid,
    ImageDefinition,
    label_lines,
    parse_definition,
    parse_profile,
    parse_versions,
)

TEMPLATE = "# not part of it\nFROM {{registry}}\nRUN {{install}}\n{{config}}\n"
GIVEN: dict[str, Any] = {
    "about": "An image",
    "registry": "debian:sid-slim",
    "manager": "apt",
    "packages": ["bubblewrap", "python3"],
    "bootstrap": {"suite": "sid", "expired": True},
}
PARSED = ImageDefinition(
    name="one",
    about="An image",
    registry="debian:sid-slim",
    manager="apt",
    packages=("bubblewrap", "python3"),
    bootstrap=Bootstrap("sid", expired=True),
)


def test_a_definition_is_what_its_file_says() -> None:
    assert parse_definition("one", GIVEN) == PARSED
    assert PARSED.tag == "bwrap-harness:one"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"manager": "emerge"}, "expected apt, apk, dnf"),
        ({"packages": []}, "packages: expected a list"),
        ({"packages": ["bubblewrap"]}, "python3 is missing"),
        ({"packages": ["bubblewrap", "python3", "x; rm -rf /"]}, "no name of a package"),
        ({"registry": "debian\nRUN x"}, "no name of an image"),
        ({"registry": ""}, "registry: expected a text"),
        ({"bootstrap": {}}, "suite: expected a text"),
        ({"bootstrap": {"suite": "sid", "expired": "yes"}}, "expired: expected true or false"),
        ({"bootstrap": {"suite": "sid"}, "manager": "dnf"}, "a suite of Debian's"),
        ({"colour": "red"}, "no member colour"),
    ],
)
def test_a_definition_that_is_wrong_says_where(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionInvalid, match=words.replace("(", r"\(")):
        parse_definition("one", {**GIVEN, **change})


@pytest.mark.parametrize("name", ["", "-x", "Upper", "a/b", "a:b", "x" * 100])
def test_a_name_must_fit_into_a_tag(name: str) -> None:
    with pytest.raises(DefinitionInvalid):
        parse_definition(name, GIVEN)


def test_the_template_is_filled_in_without_its_comments() -> None:
    assert PARSED.dockerfile(TEMPLATE) == (
        "FROM debian:sid-slim\n"
        "RUN apt-get -o Acquire::Check-Valid-Until=false update"
        " && apt-get install -y --no-install-recommends bubblewrap python3"
        " && rm -rf /var/lib/apt/lists/*\n"
        "ENV LANG=C.UTF-8\n"
        'CMD ["bash"]\n'
    )


def test_a_template_that_asks_for_what_there_is_not_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="colour"):
        PARSED.dockerfile("FROM {{colour}}\n")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "two"},
        {"registry": "debian:testing-slim"},
        {"packages": ("bubblewrap", "python3", "bash")},
        {"bootstrap": Bootstrap("sid")},
        {"bootstrap": None},
    ],
)
def test_the_hash_changes_with_everything_that_decides_what_is_inside(
    change: dict[str, Any],
) -> None:
    assert dataclasses.replace(PARSED, **change).digest(TEMPLATE) != PARSED.digest(TEMPLATE)


def test_the_hash_does_not_change_with_words_for_people() -> None:
    told = dataclasses.replace(PARSED, about="Something else")
    assert told.digest(f"# another comment\n{TEMPLATE}") == PARSED.digest(TEMPLATE)


def test_versions_are_read_from_whatever_a_package_manager_says() -> None:
    lines = ["bubblewrap 0.8.0", "bash=5.2-1", "strange line", "empty=", "python3=3.11=x"]
    assert parse_versions(lines) == {"bash": "5.2-1", "python3": "3.11=x"}


def test_labels_are_quoted_as_dockerfiles_want_it() -> None:
    assert label_lines({"a": 'b "c" $d \\'}) == ['LABEL a="b \\"c\\" \\$d \\\\"']


def test_mmdebstrap_is_called_with_the_suite_and_the_packages() -> None:
    command = bootstrap_command(PARSED, Path("/x.tar"), mirror="http://localhost/debian")
    assert command[0] == "mmdebstrap"
    assert "--include=bubblewrap,python3" in command
    assert '--aptopt=Acquire::Check-Valid-Until "false"' in command
    assert list(command[-3:]) == ["sid", "/x.tar", "http://localhost/debian"]


def test_what_cannot_be_bootstrapped_says_how_to_build_it() -> None:
    with pytest.raises(EnvironmentUnfit, match="--from registry"):
        bootstrap_command(dataclasses.replace(PARSED, bootstrap=None), Path("/x.tar"))


# --- what is in containers/ ----------------------------------------------------------------------

CATALOGUE = read_catalogue(CHECKOUT / "containers")


def test_the_images_that_the_project_promises_are_defined() -> None:
    promised = {"debian-bullseye", "debian-bookworm", "debian-trixie", "debian-sid"}
    assert promised <= set(CATALOGUE.definitions)
    assert all(CATALOGUE[name].bootstrap is not None for name in promised)


@pytest.mark.parametrize("name", list(CATALOGUE.definitions))
def test_every_definition_gives_a_dockerfile(name: str) -> None:
    text = CATALOGUE[name].dockerfile(CATALOGUE.template)
    assert [line.split()[0] for line in text.splitlines()] == ["FROM", "RUN", "ENV", "CMD"]


def test_every_knob_says_what_breaks_without_it() -> None:
    assert {knob.name for knob in CATALOGUE.profile.knobs} >= {
        *("seccomp", "apparmor", "masked-paths", "readonly-paths", "tun", "look-at-other-users"),
    }
    assert all(knob.breaks for knob in (*CATALOGUE.profile.knobs, *CATALOGUE.profile.root))


def test_the_profile_is_neither_privileged_nor_roots_unless_asked() -> None:
    ordinary = CATALOGUE.profile.host_config(as_root=False)
    assert "Privileged" not in ordinary
    assert ordinary["CapAdd"] == ["SYS_PTRACE"]
    assert (ordinary["MaskedPaths"], ordinary["ReadonlyPaths"]) == ([], [])
    root = CATALOGUE.profile.host_config(as_root=True)
    assert root == {**ordinary, "CapAdd": ["SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN"]}


def test_privileged_is_a_variant_of_its_own() -> None:
    ordinary = CATALOGUE.profile.host_config(as_root=True)
    variant = CATALOGUE.profile.host_config(as_root=True, privileged=True)
    assert variant == {**ordinary, "Privileged": True}


def test_what_only_podman_knows_is_for_podman() -> None:
    docker, podman = (
        CATALOGUE.profile.host_config(as_root=False, engine=engine)
        for engine in ("docker", "podman")
    )
    assert podman == {**docker, "SecurityOpt": [*docker["SecurityOpt"], "unmask=ALL"]}
    with pytest.raises(DefinitionInvalid, match="expected docker or podman, got 'rkt'"):
        parse_profile({"knob": [{"name": "x", "breaks": "y", "engine": "rkt", "network": "none"}]})


def test_a_knob_that_sets_what_there_is_not_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="no setting colour"):
        parse_profile({"knob": [{"name": "x", "breaks": "y", "colour": "red"}]})


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("profile.toml", "Dockerfile.template"):
        (tmp_path / name).write_bytes((CHECKOUT / "containers" / name).read_bytes())
    (tmp_path / "images/bad.toml").write_text("about = 1\n")
    with pytest.raises(UsageError, match=r"images/bad\.toml: about"):
        read_catalogue(tmp_path)


def test_a_folder_without_definitions_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--containers"):
        read_catalogue(tmp_path)


# --- what goes into a container, and whose it is -------------------------------------------------


def test_the_agent_that_is_copied_in_needs_nothing_that_is_not_copied(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(agent_archive())) as tar:
        assert all(entry.mode == 0o644 for entry in tar)
        tar.extractall(tmp_path, filter="data")
    (folder,) = (tmp_path / "opt").iterdir()
    modules = [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for path in folder.rglob("*.py")
    ]
    assert "harness.agent.service" in modules
    imports = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-B", "-c", imports],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_container_of_a_living_harness_is_not_abandoned() -> None:
    assert not is_abandoned(owner(), "running")


def test_a_container_that_has_ended_is_abandoned_whosever_it_was() -> None:
    assert is_abandoned(owner(), "exited")
    assert is_abandoned("nonsense", "dead")


def test_a_container_of_an_ended_harness_is_abandoned() -> None:
    machine = owner().split()[0]
    assert is_abandoned(f"{machine} {os.getpid()} 1", "running")  # another process had our pid


@pytest.mark.parametrize("label", ["another-boot/1 1 1", "nonsense", "", "a b c d"])
def test_a_container_of_another_machine_is_left_alone(label: str) -> None:
    assert not is_abandoned(label, "running")
