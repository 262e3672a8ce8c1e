"""``harness doctor`` in words: what this machine allows, which layer refuses what, and the remedy.

Pure: the facts were collected by the agent (``harness.agent.facts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.reporters.terminal import Style
from harness.reporters.words import visible

#: The order in which layers are told: from what refuses most to what is merely missing.
LAYERS = ("kernel", "sysctl", "apparmor", "seccomp", "procfs", "device", "tool", "identity")


def doctor_lines(facts: Mapping[str, Mapping[str, Any]], uid: int, style: Style) -> str:
    """All facts by layer, refusals with their remedy, and one sentence on what follows."""
    lines = [f"For sandboxes whose supervisor runs as uid {uid}:", ""]
    for layer in LAYERS:
        of_layer = [fact for fact in facts.values() if fact["layer"] == layer]
        if not of_layer:
            continue
        lines.append(style.paint(layer, "1"))
        lines += [line for fact in of_layer for line in _fact_lines(fact, style)]
    refused = [fact for fact in facts.values() if not fact["ok"]]
    lines += ["", _conclusion(refused)]
    return style.encode("\n".join(lines)) + "\n"


def _fact_lines(fact: Mapping[str, Any], style: Style) -> list[str]:
    mark = style.paint("ok", "32") if fact["ok"] else style.paint("no", "31")
    value = fact["value"]
    said = "" if value in (None, True, False, "") else f" {visible(value)}"
    lines = [f"  {mark}  {fact['name']}{said}: {visible(fact['detail']) or 'as it should be'}"]
    if not fact["ok"] and fact["remedy"]:
        lines.append(f"      {visible(fact['remedy'])}")
    return lines


def _conclusion(refused: list[Mapping[str, Any]]) -> str:
    if not refused:
        return "Everything that scenarios can ask for is here."
    names = ", ".join(str(fact["name"]) for fact in refused)
    return f"Scenarios that need one of these are skipped: {names}."
