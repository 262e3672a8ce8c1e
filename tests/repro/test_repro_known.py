"""A script of a known deviation says of a bwrap what the harness says of it."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from repro_place import SCENARIOS, by_id, run_script, script_of

from harness.loader import LoadedScenario

KNOWN = [each for each in by_id().values() if each.scenario.known]
#: The same every time; the others are races, of which a few tries may show nothing.
STEADY = [each for each in KNOWN if each.scenario.repeat == 1]
RACES = [each for each in KNOWN if each.scenario.repeat > 1]


def ids(scenarios: list[LoadedScenario]) -> list[str]:
    """Their ids, as parameters of a test."""
    return [each.scenario.id for each in scenarios]


@functools.cache
def verdicts(bwrap: str) -> dict[str, str]:
    """The harness's own verdict on this bwrap, for each steady scenario with a deviation."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{SCENARIOS / Path(each.file).name}::{each.scenario.id}" for each in STEADY]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "harness.cli", "run", *paths, "--subject", f"path:{bwrap}"),
                *("--json", "-", "--reports", folder, "-j", "2", "-q"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return {each["id"]: each["status"] for each in json.loads(done.stdout)["results"]}


@pytest.mark.parametrize("scenario_id", ids(STEADY))
def test_a_script_finds_what_the_harness_knows(
    scenario_id: str, every_bwrap: str, tmp_path: Path
) -> None:
    verdict = verdicts(every_bwrap)[scenario_id]
    assert verdict in ("known", "pass")
    done = run_script(script_of(scenario_id), tmp_path, every_bwrap)
    assert done.code == (1 if verdict == "known" else 0), done
    said = " ".join(done.out.split())
    for entry in by_id()[scenario_id].scenario.known:
        assert " ".join(entry.because.split()) in said
        assert entry.issue in said


@pytest.mark.parametrize("scenario_id", ids(RACES))
def test_a_script_of_a_race_counts_and_answers_accordingly(
    scenario_id: str, one_bwrap: str, tmp_path: Path
) -> None:
    done = run_script(script_of(scenario_id), tmp_path, one_bwrap, "3")
    tries = [line for line in done.out.splitlines() if line.startswith("Try ")]
    assert tries == [f"Try {number} of 3" for number in (1, 2, 3)], done
    failed = sum("DEVIATION" in part for part in done.out.split("\nTry ")[1:])
    assert f"It deviated in {failed} of 3 tries." in done.out
    assert done.code == (1 if failed else 0), done


def test_every_known_deviation_has_a_script() -> None:
    assert len(KNOWN) >= 34
    for each in KNOWN:
        text = script_of(each.scenario.id)
        for entry in each.scenario.known:
            assert re.search(rf'check\w*\(\s*"{entry.rule}"', text), each.scenario.id
            assert entry.issue in text
