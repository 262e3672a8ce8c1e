"""What a scenario needs, against what there is.  Pure: facts come from the agent's machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model.scenario import Scenario

#: What every sandbox needs: a bwrap that can make one here at all.
_ALWAYS = ("sandbox",)


@dataclass(frozen=True, slots=True)
class Unmet:
    """A need that is not met, and how it can be.

    ``of_subject``: nothing is missing here, but this bwrap has not yet what the scenario is about.
    No environment can mend that, so it is a skip also where everything must work.
    """

    reason: str
    remedy: str
    of_subject: bool = False


def unmet_need(
    scenario: Scenario, facts: Mapping[str, Any], environment: Mapping[str, Any]
) -> Unmet | None:
    """The first need that is not met; None when the scenario can run.

    ``facts`` are what conditions may ask about; ``environment`` is what the agent found there:
    facts by name, each with ``ok``, ``detail`` and ``remedy``.
    """
    needs = scenario.needs
    if needs.bwrap is not None and not needs.bwrap.holds(facts):
        return Unmet(
            f"it needs {needs.bwrap}, and this is {facts.get('bwrap')}",
            "name another --subject",
            of_subject=True,
        )
    uid = facts.get("uid")
    if scenario.user == "root" and facts.get("recorder_uid") != 0:
        return Unmet("its supervisor must be root", "run the harness as root")
    if needs.user == "non-root" and uid == 0:
        return Unmet("it needs an unprivileged user", "give one with --user")
    if needs.user == "root" and uid != 0:
        return Unmet("it needs root", "run the harness as root with --user root")
    for tool in needs.tools:
        fact = environment.get(f"tool:{tool}")
        if fact is None or not fact["ok"] or not fact["value"]:
            remedy = (fact or {}).get("remedy") or f"install {tool}, so that it is on PATH"
            return Unmet(f"{tool} is missing", remedy)
    for device in needs.devices:
        fact = environment.get("tun" if device == "/dev/net/tun" else device)
        if fact is None or not fact["ok"]:
            detail = (fact or {}).get("detail") or "it is not there"
            remedy = (fact or {}).get("remedy") or f"make {device} available to the user"
            return Unmet(f"{device} cannot be used: {detail}", remedy)
    for name in (*_ALWAYS, *needs.facts):
        fact = environment.get(name)
        if fact is not None and not fact["ok"]:
            return Unmet(f"{name}: {fact['detail']}", fact["remedy"])
        if fact is None and name in needs.facts:
            return Unmet(
                f"nothing is known of {name}", "see harness doctor for the facts there are"
            )
    return None
