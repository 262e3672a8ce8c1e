"""Scripts of scenarios: written, changed, run, and what came of it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from necessities import missing

from harness.agent.identify import reachable_path
from harness.loader import Loaded, LoadedScenario, load_scenarios
from harness.model.scenario import Scenario
from harness.repro import write_script
from harness.subjects import choose_identity

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
#: No script takes a tenth of it; a loaded machine may.
PATIENCE_S = 60


@functools.cache
def loaded() -> Loaded:
    """Every scenario of the checkout, with the contract."""
    return load_scenarios([SCENARIOS])


@functools.cache
def by_id() -> dict[str, LoadedScenario]:
    """Every scenario of the checkout, by its id."""
    return {each.scenario.id: each for each in loaded().scenarios}


def script_of(scenario_id: str, change: Callable[[dict[str, Any]], None] | None = None) -> str:
    """The script of a scenario, which ``change`` may change first: as written in YAML."""
    found = by_id()[scenario_id]
    if change is not None:
        said = found.scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        change(said)
        scenario = Scenario.model_validate(said)
        found = LoadedScenario(scenario, found.file, found.line, found.sha256)
    return write_script(found, loaded().clauses, version="0.0")


@dataclass(frozen=True)
class Done:
    """What a script did: its exit status, and what it printed."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit status {self.code}\n{self.out}{self.err}"


def run_script(text: str, folder: Path, *arguments: str, **environment: str) -> Done:
    """Run a script with these arguments; nothing of it is left but its text in ``folder``."""
    path = folder / "repro.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **environment},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def reachable(bwrap: str, folder: Path) -> str:
    """This bwrap, or a copy of it where the user that a script becomes can execute it."""
    identity = choose_identity(None)
    folder.chmod(0o755)
    return reachable_path(bwrap, identity.uid, identity.gid, str(folder))


def check_needs(scenario_id: str) -> None:
    """Skip a test whose scenario needs what is not here."""
    needs = by_id()[scenario_id].scenario.needs
    for tool in needs.tools:
        if shutil.which(tool) is None:
            missing(f"{scenario_id} needs {tool}")
    for device in needs.devices:
        # The script asks as another user: what the mode of the device says counts.
        if not os.path.exists(device) or os.stat(device).st_mode & 0o006 != 0o006:
            missing(f"{scenario_id} needs {device} for everybody")
    if by_id()[scenario_id].scenario.user == "root" and os.geteuid() != 0:
        pytest.skip(f"{scenario_id} has to be run as root")
