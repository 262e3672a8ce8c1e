"""Commands that tell and change nothing: list, validate, explain, repro, doctor, schema."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from harness import __version__
from harness.cli.choosing import filters_of, find, load, tell_hidden
from harness.cli.running import temporary_log
from harness.cli.voice import answer, style_for, tell
from harness.doctor import doctor_lines
from harness.errors import ExitCode, NothingSelected, ScenarioFilesInvalid, UsageError
from harness.explain import explain
from harness.loader import LoadedScenario, json_schema
from harness.repro import write_script
from harness.selection import select
from harness.subjects import IMAGE, LocalBackend, choose_identity, local_path


def list_scenarios(arguments: argparse.Namespace) -> ExitCode:
    loaded, problems, wanted = load(arguments.paths)
    if problems:
        raise ScenarioFilesInvalid("\n\n".join(str(problem) for problem in problems))
    chosen = select(loaded.scenarios, filters_of(arguments, wanted), seed=None)
    tell_hidden(chosen)
    if arguments.format == "json":
        answer(json.dumps([_listed(each) for each in chosen.scenarios], indent=1) + "\n")
    else:
        width = max((len(each.scenario.id) for each in chosen.scenarios), default=0)
        for each in chosen.scenarios:
            answer(f"{each.scenario.id:<{width}}  {each.scenario.title}\n")
    if not chosen.scenarios:
        raise NothingSelected("nothing was selected: loosen the filters")
    return ExitCode.AS_EXPECTED


def _listed(each: LoadedScenario) -> dict[str, Any]:
    scenario = each.scenario
    return {
        "id": scenario.id,
        "title": scenario.title,
        "tags": list(scenario.tags),
        "clauses": list(scenario.clauses),
        "file": each.file,
        "line": each.line,
        "needs": scenario.needs.model_dump(mode="json", exclude_defaults=True),
        "repeat": scenario.repeat,
    }


def validate(arguments: argparse.Namespace) -> ExitCode:
    loaded, problems, _wanted = load(arguments.paths)
    for problem in problems:
        answer(f"{problem}\n\n")
    files = len({each.file for each in loaded.scenarios})
    tell(f"{len(loaded.scenarios)} scenario(s) in {files} file(s), {len(problems)} problem(s)")
    return ExitCode.SCENARIOS_INVALID if problems else ExitCode.AS_EXPECTED


def explain_scenario(arguments: argparse.Namespace) -> ExitCode:
    loaded, found = find(arguments.id, arguments.paths)
    answer(explain(found, loaded.clauses))
    return ExitCode.AS_EXPECTED


def write_repro(arguments: argparse.Namespace) -> ExitCode:
    loaded, found = find(arguments.id, arguments.paths)
    if (arguments.subject or "").startswith(IMAGE):
        raise UsageError(
            "a script runs where bwrap is: copy it into the container and run it there"
        )
    bwrap = "bwrap" if arguments.subject is None else local_path(arguments.subject)
    answer(write_script(found, loaded.clauses, bwrap=bwrap, version=__version__))
    return ExitCode.AS_EXPECTED


def tell_doctor(arguments: argparse.Namespace) -> ExitCode:
    identity = choose_identity(arguments.user)
    read_end, write_end = os.pipe()
    try:
        with temporary_log() as log:
            agent = LocalBackend().start_agent(stop_fd=read_end, log=log)
            try:
                found = agent.ask({"do": "facts", "uid": identity.uid})
            finally:
                agent.close()
    finally:
        os.close(read_end)
        os.close(write_end)
    facts = found["facts"]
    if arguments.format == "json":
        answer(json.dumps({"uid": identity.uid, "facts": list(facts.values())}, indent=1) + "\n")
    else:
        answer(doctor_lines(facts, identity.uid, style_for(arguments, sys.stdout)))
    # AppArmor may allow a user namespace and then refuse its maps, as Ubuntu 24.04 does.
    needed = ("user-namespaces", "id-maps", "mount-namespace")
    fit = all(facts[name]["ok"] for name in needed if name in facts)
    return ExitCode.AS_EXPECTED if fit else ExitCode.ENVIRONMENT_UNFIT


def print_schema(_arguments: argparse.Namespace) -> ExitCode:
    answer(json.dumps(json_schema(), indent=2) + "\n")
    return ExitCode.AS_EXPECTED
