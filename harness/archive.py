"""A run as it is kept: what it was about, what it came to, and how it is judged again.

``run.json`` says everything about a run but what came of it, ``scenarios.json`` has the scenarios
as they were, and the recordings are beside them; so a run can be judged again at any time, also
one that was interrupted.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import UsageError
from harness.judges.recording import judge_recording
from harness.judges.tally import Tally
from harness.loader import LoadedScenario
from harness.model.contract import Clause
from harness.model.scenario import Scenario
from harness.model.timeline import Timeline
from harness.model.verdict import Result, RunRecord, Subject
from harness.pipeline import Options, Target, blank_result, concluded, facts_for
from harness.reporters import jsonreport
from harness.store import RESULTS, RunFolder

#: Members of ``run.json`` without which nothing can be told of a run.
META = (
    "run_id", "harness_version", "started_at", "hostname", "command", "seed", "hidden", "contract",
    "subjects",
)  # fmt: skip


def new_run_id(now: datetime.datetime) -> str:
    """A name that sorts by time and differs between two runs of one second."""
    return f"{now:%Y%m%dT%H%M%SZ}-{os.getpid():x}-{random.SystemRandom().randrange(1 << 16):04x}"


def begin_run(
    reports: Path,
    options: Options,
    targets: Sequence[Target],
    scenarios: Sequence[LoadedScenario],
    clauses: Mapping[str, Clause],
    hidden: Mapping[str, int] | None = None,
) -> tuple[RunFolder, dict[str, Any]]:
    """The folder of a run that begins, which is the latest from here on, and its ``run.json``."""
    now = datetime.datetime.now(datetime.UTC)
    folder = RunFolder.create(reports, new_run_id(now))
    meta = describe_run(folder.path.name, options, targets, clauses, hidden or {}, now)
    folder.write_json("run.json", meta)
    folder.write_json("scenarios.json", snapshot(scenarios))
    folder.point_latest()
    return folder, meta


def describe_run(
    run_id: str,
    options: Options,
    targets: Sequence[Target],
    clauses: Mapping[str, Clause],
    hidden: Mapping[str, int],
    now: datetime.datetime,
) -> dict[str, Any]:
    """What ``run.json`` says: everything about a run but what came of it."""
    return {
        "run_id": run_id,
        "harness_version": __version__,
        "started_at": now.isoformat(timespec="seconds"),
        "hostname": platform.node(),
        "command": options.command,
        "seed": options.seed,
        "hidden": dict(hidden),
        "contract": {
            clause.id: {
                "sentence": clause.sentence,
                "source": clause.source,
                "family": clause.family,
            }
            for clause in clauses.values()
        },
        "subjects": [
            {**dataclasses.asdict(target.subject), "facts": dict(target.facts)}
            for target in targets
        ],
    }


def snapshot(loaded: Sequence[LoadedScenario]) -> list[dict[str, Any]]:
    """The scenarios as they are now, for ``scenarios.json``."""
    return [
        {
            "file": each.file,
            "line": each.line,
            "sha256": each.sha256,
            "scenario": each.scenario.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
            ),
        }
        for each in loaded
    ]


def assemble(
    meta: Mapping[str, Any],
    results: Sequence[Result],
    *,
    duration_s: float,
    complete: bool,
    cut_short: bool = False,
) -> RunRecord:
    """The record of a run from what ``run.json`` says and its results."""
    return RunRecord(
        run_id=meta["run_id"],
        harness_version=meta["harness_version"],
        started_at=meta["started_at"],
        hostname=meta["hostname"],
        command=meta["command"],
        seed=meta["seed"],
        duration_s=duration_s,
        complete=complete,
        cut_short=cut_short,
        subjects=tuple(Subject(**subject) for subject in meta["subjects"]),
        results=tuple(results),
        hidden=meta["hidden"],
        contract=meta["contract"],
    )


def shown_timelines(folder: RunFolder, record: RunRecord) -> dict[tuple[str, str], Timeline]:
    """The recording that each result shows, read back from the folder."""
    found = {}
    for result in record.results:
        if result.timeline:
            timeline = folder.timeline(result.timeline, result.shown_repeat)
            if timeline is not None:
                found[(result.id, result.subject)] = timeline
    return found


def judge_again(
    folder: RunFolder, *, scenarios: Mapping[str, LoadedScenario] | None = None
) -> RunRecord:
    """Judge the recordings of a stored run once more.

    With the scenarios as they were when it ran, or with ``scenarios`` (by id) as they are now.  A
    run that was interrupted is judged as far as it got; its record is then not complete.
    """
    meta = folder.read_json("run.json", members=META)
    before = folder.results()
    kept = {(result.id, result.subject): result for result in before.results} if before else {}
    options = Options(seed=meta["seed"], command=meta["command"])
    results = []
    for stored in _stored(folder):
        loaded = (scenarios or {}).get(stored.scenario.id, stored)
        for subject in meta["subjects"]:
            result = _judge_stored(folder, loaded, subject, options)
            old = kept.get((loaded.scenario.id, subject["spec"]))
            if result is None and old is not None:
                result = old  # skipped, or lost before its first event
            if result is not None:
                results.append(result)
    others = {(r.id, r.subject) for r in results}
    results += [result for key, result in kept.items() if key not in others]
    return assemble(
        meta,
        results,
        duration_s=before.duration_s if before is not None else 0.0,
        complete=before.complete if before is not None else False,
        cut_short=before.cut_short if before is not None else False,
    )


def _stored(folder: RunFolder) -> list[LoadedScenario]:
    entries = folder.read_json("scenarios.json")
    try:
        return [
            LoadedScenario(
                Scenario.model_validate(entry["scenario"]),
                entry["file"],
                entry["line"],
                entry["sha256"],
            )
            for entry in entries
        ]
    except (LookupError, TypeError, ValueError) as fault:  # pydantic's errors are ValueErrors
        raise UsageError(
            f"{folder.path / 'scenarios.json'} is not what a run stores: "
            + str(fault).partition("\n")[0]
        ) from fault


def _judge_stored(
    folder: RunFolder, loaded: LoadedScenario, subject: Mapping[str, Any], options: Options
) -> Result | None:
    name = folder.timeline_name(subject["spec"], loaded.scenario.id)
    facts = facts_for(loaded.scenario, subject["facts"])
    tally = Tally(loaded.scenario, facts, (loaded.file, loaded.line))
    for repeat, timeline in enumerate(folder.timelines(name)):
        tally.add(judge_recording(loaded.scenario, timeline, facts, repeat=repeat))
    if tally.n == 0:
        return None
    result = concluded(blank_result(loaded, subject["spec"], options), tally)
    return dataclasses.replace(result, timeline=name, duration_s=tally.duration_s)


def store_results(folder: RunFolder, record: RunRecord) -> None:
    """Keep the results of a run."""
    folder.write(RESULTS, jsonreport.render(record))
