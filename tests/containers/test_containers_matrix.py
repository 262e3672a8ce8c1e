"""The whole suite on five bwraps, and what the comparison of two of them names."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_place import CHECKOUT, OwnEngine, harness

from harness.images import read_catalogue
from harness.model.image import REPOSITORY

#: The first test waits for four images and five runs of the suite.
pytestmark = pytest.mark.timeout(1800)

IMAGES = {
    "image:debian-bullseye": "0.4.1",
    "image:debian-bookworm": "0.8.0",
    "image:debian-trixie": "0.12.0",
    "image:debian-sid": "",  # it moves on
}
SUBJECTS = ["bundled", *IMAGES]
#: Four root folders take two minutes on two cores, and so does the suite five times.
BUILD_S = 900.0
#: What bwrap 0.12.0 mended: with SIGCHLD ignored 0.8.0 hangs, since the kernel reaps its command;
#: and a low fd for two data files makes the second one empty.
MENDED = {
    "data-fd.same-low-fd-twice",
    "signals.command-sees-default-sigchld",
    "signals.sigchld-ignored-with-pid-namespace",
    "signals.sigchld-ignored-without-pid-namespace",
}


@dataclass(frozen=True)
class Matrix:
    """A run of everything on everything, by the two commands that the README documents."""

    folder: Path
    code: int
    told: str
    results: list[dict[str, Any]]


@pytest.fixture(scope="module")
def matrix(engine: OwnEngine, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    folder = tmp_path_factory.mktemp("matrix")
    build = ["images", "build", "--all", "--from", "bootstrap"]
    built = harness(build, folder, engine.address, within_s=BUILD_S)
    assert built.returncode == 0, built.stderr
    subjects = [word for spec in SUBJECTS for word in ("--subject", spec)]
    command = ["run", str(CHECKOUT / "scenarios"), "-j2", "--json", "all.json", *subjects]
    done = harness(command, folder, engine.address, within_s=BUILD_S, HARNESS_MUST_WORK="1")
    results = json.loads((folder / "all.json").read_text())["results"]
    return Matrix(folder, done.returncode, done.stderr, results)


def test_everything_is_as_expected_on_every_bwrap(matrix: Matrix) -> None:
    unexpected = [
        f"{r['id']} [{r['subject']}] {r['status']}: {r['message']}"
        for r in matrix.results
        if r["status"] not in ("pass", "known", "skip")
    ]
    assert unexpected == []
    assert matrix.code == 0, matrix.told


def test_every_scenario_has_a_verdict_on_every_subject(matrix: Matrix) -> None:
    by_subject = Counter(r["subject"] for r in matrix.results)
    ids = {r["id"] for r in matrix.results}
    assert len(ids) >= 250
    assert by_subject == dict.fromkeys(SUBJECTS, len(ids))


def test_only_the_oldest_is_too_old_for_anything(matrix: Matrix) -> None:
    skips = [r for r in matrix.results if r["status"] == "skip"]
    assert {r["subject"] for r in skips} == {"image:debian-bullseye"}
    assert all("needs bwrap >=" in r["message"] for r in skips)
    assert len(skips) < 40


def test_the_subjects_are_the_versions_that_the_images_promise(matrix: Matrix) -> None:
    run = json.loads((matrix.folder / "reports/latest/run.json").read_text())
    versions = {subject["spec"]: subject["version"] for subject in run["subjects"]}
    assert list(versions) == SUBJECTS
    assert {spec: versions[spec] for spec, version in IMAGES.items() if version} == {
        spec: version for spec, version in IMAGES.items() if version
    }
    assert len(set(versions.values())) == len(SUBJECTS)


def test_junit_has_a_suite_for_each_subject_and_counts_that_are_right(matrix: Matrix) -> None:
    suites = ET.parse(matrix.folder / "reports/latest/junit.xml").getroot().findall("testsuite")
    assert len(suites) == len(SUBJECTS)
    for suite in suites:
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "0")) == len(cases) == len(matrix.results) // len(SUBJECTS)
        assert int(suite.get("failures", "9")) == int(suite.get("errors", "9")) == 0


def test_the_container_is_gone(matrix: Matrix, engine: OwnEngine) -> None:
    assert matrix.results
    assert engine.containers() == []


def compared(matrix: Matrix, engine: OwnEngine, before: str, after: str) -> dict[str, Any]:
    sides = [f"latest@{spec}" for spec in (before, after)]
    done = harness(["compare", *sides, "--format", "json"], matrix.folder, engine.address)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_comparison_of_0_8_0_and_0_12_0_names_what_was_mended_and_nothing_else(
    matrix: Matrix, engine: OwnEngine
) -> None:
    found = compared(matrix, engine, "image:debian-bookworm", "image:debian-trixie")
    verdicts = [change for change in found["changes"] if change["what"] == "verdict"]
    assert {change["scenario"] for change in found["changes"]} == MENDED
    assert {(change["scenario"], change["direction"]) for change in verdicts} == {
        (name, "improvement") for name in MENDED
    }
    hang, exit_7 = next(
        (change["before"], change["after"])
        for change in found["changes"]
        if change["scenario"] == "signals.sigchld-ignored-with-pid-namespace"
        and change["what"] == "seen by exit"
    )
    assert "had not ended" in hang
    assert exit_7 == "it exited 7"


@pytest.mark.parametrize("scenario", sorted(MENDED))
def test_a_script_says_of_each_version_what_the_harness_says(
    matrix: Matrix, engine: OwnEngine, scenario: str
) -> None:
    found = {r["subject"]: r["status"] for r in matrix.results if r["id"] == scenario}
    written = harness(
        ["repro", scenario, str(CHECKOUT / "scenarios")], matrix.folder, engine.address
    )
    assert written.returncode == 0, written.stderr
    for spec, code in (("image:debian-bookworm", 1), ("image:debian-trixie", 0)):
        assert found[spec] == ("known" if code else "pass")
        assert run_script(engine, spec, written.stdout) == code


def run_script(engine: OwnEngine, spec: str, script: str) -> int:
    """The exit status of a Python script in a container of its own, which is removed."""
    client = engine.client()
    api = client.api
    try:
        profile = read_catalogue(CHECKOUT / "containers").profile.host_config(as_root=False)
        made = api.create_container(
            f"{REPOSITORY}:{spec.removeprefix('image:')}",
            command=["python3", "-c", script],
            user="0",
            host_config={**api.create_host_config(), **profile},
        )
        try:
            api.start(made["Id"])
            return int(api.wait(made["Id"])["StatusCode"])
        finally:
            api.remove_container(made["Id"], force=True)
    finally:
        client.close()


def test_the_flip_is_found_between_0_11_0_and_0_12_0(matrix: Matrix, engine: OwnEngine) -> None:
    ordered = [*list(IMAGES)[:2], "bundled", *list(IMAGES)[2:]]
    subjects = [word for spec in ordered for word in ("--subject", spec)]
    scenario = "signals.sigchld-ignored-without-pid-namespace"
    command = ["bisect", scenario, str(CHECKOUT / "scenarios"), "--format", "json", *subjects]
    done = harness(command, matrix.folder, engine.address)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rule"], found["before"], found["after"]) == ("exit", 2, 3)
    assert engine.containers() == []
