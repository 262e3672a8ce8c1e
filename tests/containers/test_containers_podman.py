"""Podman behind docker's API: the same commands, the same verdicts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_place import CHECKOUT, IMAGE, OwnPodman, harness, why_no_engine
from necessities import missing

pytestmark = pytest.mark.timeout(900)


def why_no_podman() -> str:
    """Why Podman cannot be tried here, and what to do about it; empty when it can."""
    if shutil.which("podman") is None:
        return "podman is missing: install the package podman"
    return why_no_engine()


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPodman]:
    """A Podman that answers and has the image."""
    folder = tmp_path_factory.mktemp("podman")
    own = OwnPodman(folder)
    reason = why_no_podman() or own.start()
    if reason:
        missing(reason)
    built = harness(["images", "build", IMAGE, "--from", "bootstrap"], folder, own.address)
    assert built.returncode == 0, built.stderr
    yield own
    own.stop()
    shutil.rmtree(folder)


def test_what_needs_a_proc_of_its_own_and_a_network_works_as_with_docker(
    podman: OwnPodman, tmp_path: Path
) -> None:
    files = [
        str(CHECKOUT / "scenarios" / name) for name in ("sandbox-spec.yaml", "provider-loss.yaml")
    ]
    done = harness(
        ["run", *files, "-j2", "--subject", f"image:{IMAGE}", "--json", "all.json"],
        tmp_path,
        podman.address,
        HARNESS_MUST_WORK="1",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "all.json").read_text())["results"]
    assert {result["status"] for result in results} <= {"pass", "known"}
    assert len(results) >= 40
    assert podman.containers() == []


def test_a_privileged_container_is_given_where_it_is_asked_for(
    podman: OwnPodman, tmp_path: Path
) -> None:
    one = f"{CHECKOUT}/scenarios/exit-and-signals.yaml::exit-status.codes-pass-through"
    done = harness(
        ["run", one, "--privileged", "--subject", f"image:{IMAGE}"],
        tmp_path,
        podman.address,
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["reports"]
