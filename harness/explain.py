"""``harness explain``: a scenario in words, for somebody who has not read the grammar.  Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from harness.loader import LoadedScenario
from harness.model.contract import Clause
from harness.model.scenario import Sandbox, Scenario


def explain(loaded: LoadedScenario, clauses: Mapping[str, Clause]) -> str:
    """What a scenario claims, sets up, does and expects, and where that comes from."""
    scenario = loaded.scenario
    lines = [scenario.id, f"  {scenario.title}", f"  {loaded.file}:{loaded.line}", ""]
    if scenario.claim:
        lines += [f"When it passes, the claim is {scenario.claim}.", ""]
    if scenario.notes:
        lines += [*textwrap.wrap(scenario.notes, 98), ""]
    lines.append("Clauses")
    for name in scenario.clauses:
        clause = clauses.get(name)
        said = f"{clause.sentence} ({clause.source})" if clause else "not in the contract"
        lines += textwrap.wrap(f"{name}: {said}", 98, initial_indent="  ", subsequent_indent="    ")
    lines += ["", *_set_up(scenario), "", "Steps"]
    for number, step in enumerate(scenario.all_steps, 1):
        mark = "  <- the trigger" if step.trigger else ""
        value = step.model_dump(mode="json", by_alias=True, exclude_none=True)[step.verb]
        lines.append(f"  {number}. {step.verb}: {_compact(value)}{mark}")
    lines += ["", "Expected"]
    for name, rule in zip(scenario.rule_names(), scenario.expect, strict=True):
        value = rule.model_dump(mode="json", by_alias=True, exclude_none=True)[rule.verb]
        clause_text = f" [{rule.clause}]" if rule.clause else ""
        when = f" when {rule.when}" if rule.when else ""
        lines.append(f"  {name}: {_compact(value)}{clause_text}{when}")
    for entry in scenario.known:
        lines += [
            "",
            f"Known deviation: {entry.rule} fails when {entry.when}",
            *textwrap.wrap(entry.because, 96, initial_indent="  ", subsequent_indent="  "),
            f"  {entry.issue}" + (f", fixed in {entry.fixed_in}" if entry.fixed_in else ""),
        ]
    if scenario.repeat > 1:
        lines += ["", f"Recorded {scenario.repeat} times."]
    if scenario.refs:
        lines += ["", "Read more", *(f"  {ref}" for ref in scenario.refs)]
    return "\n".join(lines) + "\n"


def _set_up(scenario: Scenario) -> list[str]:
    lines = ["Set-up"]
    for name, sandbox in scenario.named_sandboxes.items():
        title = "sandbox" if scenario.sandboxes is None else f"sandbox {name}"
        lines += [f"  {title}: {_describe_sandbox(sandbox)}"]
        for channel, spec in sandbox.channels.items():
            given = spec.model_dump(mode="json", exclude_defaults=True)
            lines.append(f"    channel {channel}: {_compact(given)}")
    for kind, entries in (("helper", scenario.helpers), ("provider", scenario.providers)):
        for name, entry in entries.items():
            given = entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            lines.append(f"  {kind} {name}: {_compact(given) or 'holds what channels say'}")
    return lines


def _describe_sandbox(sandbox: Sandbox) -> str:
    command = sandbox.command
    if command.observe:
        runs = "observes from the inside"
    elif command.shell is not None:
        runs = "sh -c " + " ".join(command.shell.split())
    else:
        runs = " ".join(command.argv or [])
    options = "spec" if sandbox.spec is not None else " ".join(sandbox.args)
    return f"bwrap {options} {runs}".replace("  ", " ")


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_compact(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", then ".join(_compact(each) for each in value)
    return str(value)
