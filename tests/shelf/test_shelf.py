"""The harness against bwraps that are broken on purpose, and against programs that are no bwrap.

Every fake is caught by the scenario whose clause it breaks, by the rule that says so, while the
real bwrap and a fake without a defect come out of the same scenario as they should.  And what is
no bwrap at all passes nothing: it is refused before anything is recorded, and where that is left
out the scenarios themselves are not taken in.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import table
from necessities import missing
from shelf_catalogue import CAUGHT, CONTROLS, NOT_CAUGHT, Caught, defect_of, names_of_fakes
from shelf_place import (
    CHECKOUT,
    REAL,
    NoInterpreter,
    Place,
    failing,
    identify,
    load_all,
    run_pairs,
    shelf_place,
    tools_of,
    without_number,
)

from harness.errors import EnvironmentUnfit
from harness.loader import LoadedScenario
from harness.model.verdict import Status
from harness.pipeline import Target

#: Setting up and recording everything takes most of a minute; a loaded machine takes longer.
pytestmark = pytest.mark.timeout(400)
#: What a run says of a subject that behaves: as expected, or as it is known to.
AS_EXPECTED = (Status.PASS, Status.KNOWN)
#: Most of the time a broken bwrap is waited for in vain, so there is work for more than the cores.
JOBS = 12
#: Deadlines of 5 s become 250 ms for programs that do nothing: more time would show no more.
HASTE = 0.05

Ran = subprocess.CompletedProcess[str]
Results = Mapping[tuple[str, str], dict[str, Any]]


def harness(*arguments: str, at: Path) -> Ran:
    """Run the real ``harness`` to its end."""
    return subprocess.run(
        [Path(sys.executable).with_name("harness"), *arguments],
        cwd=at,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def scenarios() -> dict[str, LoadedScenario]:
    return load_all()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    try:
        with shelf_place() as made:
            yield made
    except NoInterpreter as fault:
        missing(str(fault))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


# --- the fakes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shelf:
    """What came of every pair that the table needs."""

    place: Place
    results: Results

    def of(self, scenario: str, subject: str) -> dict[str, Any]:
        """One scenario on a fake, or on the real bwrap."""
        spec = subject if subject == REAL else self.place.subject(subject)
        return self.results[scenario, spec]


@pytest.fixture(scope="module")
def shelf(place: Place, scenarios: dict[str, LoadedScenario], reports: Path) -> Shelf:
    """Everything in one run.  That every fake proves itself to be a bwrap is part of it."""
    fakes = [place.subject(fake) for fake in (*(line.fake for line in CAUGHT), *CONTROLS)]
    used = {line.scenario: scenarios[line.scenario] for line in CAUGHT}
    targets = identify([*fakes, REAL], place.identity, tools_of(used.values()))
    wanted = [(line.scenario, place.subject(line.fake)) for line in CAUGHT]
    for line in CAUGHT:
        wanted += [(line.scenario, place.subject(line.held_against)), (line.scenario, REAL)]
    pairs = [(used[scenario], targets[spec]) for scenario, spec in dict.fromkeys(wanted)]
    return Shelf(place, run_pairs(reports, pairs, jobs=JOBS))


def named(lines: tuple[Caught, ...]) -> pytest.MarkDecorator:
    """Each line of the table as a parameter of its own."""
    return pytest.mark.parametrize("line", lines, ids=lambda line: line.fake)


@named(CAUGHT)
def test_a_fake_is_caught_by_the_scenario_whose_clause_it_breaks(
    line: Caught, shelf: Shelf
) -> None:
    result = shelf.of(line.scenario, line.fake)
    if result["status"] == Status.SKIP:
        pytest.skip(f"{line.scenario}: {result['message']}")
    assert result["status"] == line.status, result["message"]
    if line.rule:
        assert (line.rule, line.clause) in failing(result)
    else:  # nothing failed, and that is the surprise
        assert line.clause in result["clauses"]


@named(CAUGHT)
def test_what_catches_it_is_its_defect_and_not_its_disguise(line: Caught, shelf: Shelf) -> None:
    real = shelf.of(line.scenario, REAL)
    if real["status"] == Status.SKIP:
        pytest.skip(f"{line.scenario}: {real['message']}")
    disguised = shelf.of(line.scenario, line.held_against)
    assert real["status"] in AS_EXPECTED, real["message"]
    assert disguised["status"] == real["status"], disguised["message"]


def test_every_fake_is_in_the_table_or_said_to_be_caught_by_nothing() -> None:
    told = [line.fake for line in CAUGHT] + [*NOT_CAUGHT, *CONTROLS]
    assert sorted(told) == names_of_fakes()
    assert len(CAUGHT) >= 12


def test_the_table_names_scenarios_and_expectations_that_exist(
    scenarios: dict[str, LoadedScenario],
) -> None:
    for line in CAUGHT:
        scenario = scenarios[line.scenario].scenario
        rules = zip(scenario.rule_names(), scenario.expect, strict=True)
        asked = {(without_number(name), rule.clause) for name, rule in rules}
        assert not line.rule or (line.rule, line.clause) in asked, line
        assert line.rule or line.clause in scenario.clauses, line


def test_the_published_table_is_the_one_that_is_tested() -> None:
    assert table.published() == {
        line.fake: (defect_of(line.fake), line.scenario, line.clause) for line in CAUGHT
    }


def test_the_command_line_tells_of_a_fake_what_the_table_says(place: Place, reports: Path) -> None:
    line = next(line for line in CAUGHT if line.fake == "drops-new-session")
    ran = harness(
        "run",
        f"scenarios/terminal-and-pid1.yaml::{line.scenario}",
        f"--subject={place.subject(line.fake)}",
        f"--subject={REAL}",
        f"--reports={reports / 'cli'}",
        "--json=-",
        at=CHECKOUT,
    )
    told = {
        result["subject"]: (result["status"], failing(result))
        for result in json.loads(ran.stdout)["results"]
    }
    assert ran.returncode == 1
    assert told == {
        place.subject(line.fake): ("fail", [("exit", "TTY-1"), ("observed", "TTY-1")]),
        REAL: ("pass", []),
    }


# --- what is no bwrap ----------------------------------------------------------------------------

_CANNED = """echo '{ "child-pid": 1 }'"""
#: Programs that do nothing of what bwrap does; None where the machine has them.
TRIVIAL = {
    "true": None,
    "false": None,
    "sleeper": "#!/bin/sh\nexec sleep 300\n",
    "canned-line": f"#!/bin/sh\n{_CANNED}\n",
    "canned-line-and-version": f'#!/bin/sh\n[ "$1" = --version ] && echo "bubblewrap 0.11.0"\n'
    f"{_CANNED}\n",
}
#: Those that differ once nobody asks for a version any more.
DIFFERENT = ("true", "false", "sleeper", "canned-line")
_SIMPLE = """\
id: simple.exit
title: The command's exit status is bwrap's
clauses: [EXIT-1]
sandbox: {command: {shell: "exit 0"}}
expect: [{exit: {of: monitor, code: 0}}]
"""
_CONTRACT = """\
- id: EXIT-1
  family: exit-status
  sentence: "bwrap exits with the command's own status."
  source: "bwrap(1)"
"""


def _program(name: str, folder: Path) -> str:
    text = TRIVIAL[name]
    if text is None:
        return f"/bin/{name}"
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def refusals(place: Place) -> dict[str, Ran | EnvironmentUnfit | None]:
    """What comes of naming each of them as the subject, all at once: a sleeper is waited for.

    The most convincing one is given to the real command, whose exit code is that of the error.
    """
    folder = place.path / "refused"
    folder.mkdir()
    (folder / "simple.yaml").write_text(_SIMPLE)
    (folder / "contract.yaml").write_text(_CONTRACT)

    def refuse(name: str) -> Ran | EnvironmentUnfit | None:
        spec = f"path:{_program(name, folder)}"
        if name == "canned-line-and-version":
            return harness("run", "simple.yaml", f"--subject={spec}", at=folder)
        try:
            identify([spec], place.identity, [])
        except EnvironmentUnfit as refusal:
            return refusal
        return None

    with ThreadPoolExecutor(len(TRIVIAL)) as pool:
        return dict(zip(TRIVIAL, pool.map(refuse, TRIVIAL), strict=True))


@pytest.mark.parametrize("name", TRIVIAL)
def test_a_program_that_is_no_bwrap_is_refused_before_anything_is_recorded(
    name: str, refusals: dict[str, Ran | EnvironmentUnfit | None], place: Place
) -> None:
    refusal = refusals[name]
    assert refusal is not None, "it was taken for a bwrap"
    if isinstance(refusal, EnvironmentUnfit):
        assert refusal.exit_code == 4
        assert "is not bubblewrap" in str(refusal)
    else:
        assert (refusal.returncode, refusal.stdout) == (4, ""), refusal.stderr
        assert "is not bubblewrap" in refusal.stderr
        assert not (place.path / "refused" / "reports").exists()


@pytest.fixture(scope="module")
def taken_in(
    place: Place, scenarios: dict[str, LoadedScenario], reports: Path
) -> dict[str, list[dict[str, Any]]]:
    """Every scenario on every trivial program, as if the program had proved to be a bwrap."""
    real = identify([REAL], place.identity, tools_of(scenarios.values()))[REAL]
    folder = place.path / "taken-in"
    folder.mkdir()
    targets = {name: _impostor(real, _program(name, folder)) for name in DIFFERENT}
    pairs = [(each, target) for each in scenarios.values() for target in targets.values()]
    results = run_pairs(reports, pairs, jobs=JOBS, haste=HASTE, repeat=1)
    return {
        name: [result for (_, spec), result in results.items() if spec == target.spec]
        for name, target in targets.items()
    }


def _impostor(real: Target, path: str) -> Target:
    """A target for a program that was never asked to prove anything."""
    subject = dataclasses.replace(real.subject, spec=f"path:{path}", path=path, sha256="")
    return dataclasses.replace(real, spec=subject.spec, path=path, subject=subject)


@pytest.mark.parametrize("name", DIFFERENT)
def test_no_scenario_is_taken_in_by_a_program_that_was_not_refused(
    name: str, taken_in: dict[str, list[dict[str, Any]]]
) -> None:
    fooled = {
        result["id"]: result["status"]
        for result in taken_in[name]
        if result["status"] in (Status.PASS, Status.KNOWN, Status.UNEXPECTED_PASS)
        and result["launched"]
    }
    assert fooled == {}
