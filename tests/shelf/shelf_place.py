"""Setting the shelf up, and holding it against scenarios: any pairs of the two, in one run.

A fake is a text until it is set up: then it stands in a folder that every user can enter, with an
interpreter that the unprivileged user can execute, and with the path of the real bwrap written in.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agent.identify import reachable_path
from harness.archive import assemble, describe_run, new_run_id, snapshot, store_results
from harness.loader import LoadedScenario, load_scenarios
from harness.model.timeline import Kind, Timeline
from harness.model.verdict import Result
from harness.pipeline import Job, Options, Run, StopSwitch, Target
from harness.store import RESULTS, RunFolder
from harness.subjects import Identity, choose_identity, find_targets, local_path

SHELF = Path(__file__).resolve().parent
CHECKOUT = SHELF.parents[1]
SCENARIOS = CHECKOUT / "scenarios"
REAL = "bundled"


class NoInterpreter(Exception):
    """The user that scenarios run as can execute no Python here."""


@dataclass(frozen=True)
class Place:
    """A folder with the fakes set up, and the user they run as."""

    path: Path
    identity: Identity

    def subject(self, fake: str) -> str:
        """A fake as what ``--subject`` takes."""
        return f"path:{self.path / fake}"


@contextlib.contextmanager
def shelf_place(real: str = REAL) -> Iterator[Place]:
    """All fakes, set up around the real bwrap; removed afterwards.

    NoInterpreter when there is no Python that the scenarios' user can execute.
    """
    identity = choose_identity(None)
    with tempfile.TemporaryDirectory(prefix="harness-shelf-", dir="/tmp") as made:
        path = Path(made)
        path.chmod(0o755)
        python = _find_python(identity)
        bwrap = reachable_path(local_path(real), identity.uid, identity.gid, made)
        _make_readable(path)
        wrapping = (SHELF / "shelf_wrapping.py").read_text().replace("@REAL@", bwrap)
        (path / "shelf_wrapping.py").write_text(wrapping)
        py_compile.compile(str(path / "shelf_wrapping.py"), doraise=True)
        for text in sorted((SHELF / "fakes").glob("*.py")):
            program = path / name_of(text)
            # -S and -E: nothing of this machine's Python changes a fake, and it starts sooner.
            program.write_text(f"#!{python} -SE\n{text.read_text()}")
            program.chmod(0o755)
        yield Place(path, identity)


def name_of(text: Path) -> str:
    """The name of a fake from the name of its file."""
    return text.stem.replace("_", "-")


def _make_readable(path: Path) -> None:
    for each in path.rglob("*"):
        each.chmod(0o755)


def _find_python(identity: Identity) -> str:
    become: dict[str, Any] = {}
    if os.geteuid() != identity.uid:
        become = {"user": identity.uid, "group": identity.gid, "extra_groups": []}
    usual = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    for python in (os.path.realpath(sys.executable), usual):
        if python is None:
            continue
        with contextlib.suppress(OSError):
            asked = subprocess.run(
                [python, "-SE", "-c", "import os; os.pidfd_open"], check=False, cwd="/", **become
            )
            if asked.returncode == 0:
                return python
    raise NoInterpreter(
        f"user {identity.uid} can execute no Python: install python3, or give {sys.executable} "
        "to everybody"
    )


# --- scenarios -----------------------------------------------------------------------------------


def load_all() -> dict[str, LoadedScenario]:
    """Every scenario of the checkout, by its id."""
    loaded = load_scenarios([SCENARIOS])
    return {each.scenario.id: each for each in loaded.scenarios}


class Silence:
    """Watches a run and says nothing."""

    def case_started(self, scenario_id: str, subject: str) -> None:
        """Say nothing."""

    def case_finished(self, result: Result, timeline: Timeline | None) -> None:
        """Say nothing."""


def identify(specs: Iterable[str], identity: Identity, tools: Sequence[str]) -> dict[str, Target]:
    """Each subject as a target of a run.  EnvironmentUnfit for one that is no bwrap.

    Two at a time: every launch of a fake is the start of an interpreter as well.
    """
    every = list(dict.fromkeys(specs))
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda half: _identify(half, identity, tools), (every[::2], every[1::2]))
        return {target.spec: target for half in halves for target in half}


def _identify(specs: list[str], identity: Identity, tools: Sequence[str]) -> list[Target]:
    if not specs:
        return []
    switch = StopSwitch()
    try:
        with tempfile.TemporaryFile() as log:
            return list(find_targets(specs, identity, tools=tools, stop_fd=switch.fd, log=log))
    finally:
        switch.close()


def tools_of(scenarios: Iterable[LoadedScenario]) -> list[str]:
    """The programs that scenarios need."""
    return sorted({tool for each in scenarios for tool in each.scenario.needs.tools})


def run_pairs(
    reports: Path,
    pairs: Sequence[tuple[LoadedScenario, Target]],
    *,
    jobs: int,
    haste: float = 1.0,
    repeat: int | None = None,
) -> dict[tuple[str, str], dict[str, Any]]:
    """Record and judge each scenario on its own subject: what ``--json`` says of each.

    By id of the scenario and spec of the subject.  The same as ``harness run`` does from there on,
    but for the pairing: that one runs every scenario on every subject.  Each result has one member
    more: ``launched``, whether the subject was executed at all.  ``haste`` shortens deadlines.
    """
    switch = StopSwitch()
    now = datetime.datetime.now(datetime.UTC)
    folder = RunFolder.create(reports, new_run_id(now))
    targets = list({target.spec: target for _, target in pairs}.values())
    options = Options(jobs=jobs, timeout_multiplier=haste, repeat=repeat, command="tests/shelf")
    run = Run(folder, options, Silence(), switch)
    started = time.monotonic()
    try:
        run.record_all([Job(loaded, target) for loaded, target in pairs])
    finally:
        switch.close()
    meta = describe_run(folder.path.name, options, targets, {}, {}, now)
    folder.write_json("scenarios.json", snapshot([loaded for loaded, _ in pairs]))
    record = assemble(
        meta, list(run.results.values()), duration_s=time.monotonic() - started, complete=True
    )
    store_results(folder, record)
    stored = json.loads((folder.path / RESULTS).read_text())
    for each in stored["results"]:
        each["launched"] = _was_launched(folder, each["timeline"])
    return {(each["id"], each["subject"]): each for each in stored["results"]}


def _was_launched(folder: RunFolder, timeline: str) -> bool:
    """Whether a monitor was started: some scenarios are about a launch that is refused before."""
    return any(
        event.lane.endswith("monitor")
        for recording in folder.timelines(timeline)
        for event in recording.of(Kind.PROCESS_STARTED)
    )


def failing(result: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Rule and clause of each expectation that did not hold, ``exit-2`` as ``exit``."""
    return [
        (without_number(each["rule"]), each["clause"])
        for each in result["findings"]
        if each["held"] == "no"
    ]


def without_number(rule: str) -> str:
    """A rule's name as it is whether or not there are others of its kind before it."""
    return re.sub(r"-[0-9]+$", "", rule)
