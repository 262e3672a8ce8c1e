"""Whether the parts of a scenario fit together: probes, markers, rules, the kind of supervisor.

Checks as in ``names``, for what takes more than that a name is declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.loader.problem import in_words, suggestion
from harness.loader.scene import Mention, Role, Scene
from harness.loader.translate import Fault, Path
from harness.model.condition import leading_version
from harness.model.scenario import (
    PROBE_VERBS,
    ExpectFds,
    ExpectLocks,
    ExpectProbe,
    Known,
    Probe,
    WaitFor,
)

#: What an ``expect: probe`` may look into.
VALUE_PROBES = ("namespaces", "uid_map", "signals", "connect", "census")


def probe_verb(probe: Probe) -> str:
    """What is probed."""
    return next(verb for verb in PROBE_VERBS if getattr(probe, verb) is not None)


def probe_name(probe: Probe) -> str:
    """The name that expectations know a probe by: its own, or what is probed."""
    return probe.name or probe_verb(probe).replace("_", "-")


def _probes(scene: Scene) -> dict[str, str]:
    """Name of each probe -> what is probed."""
    steps = scene.scenario.all_steps
    return {probe_name(s.probe): probe_verb(s.probe) for s in steps if s.probe is not None}


def check_probe_names(scene: Scene) -> Iterator[Fault]:
    """No two probes have the same name (a census is not asked for by name)."""
    seen: set[str] = set()
    for index, step in enumerate(scene.scenario.steps or []):
        if step.probe is None or step.probe.census:
            continue
        name = probe_name(step.probe)
        if name in seen:
            message = f"a probe is called {name} already; expected another name"
            yield Fault(("steps", index, "probe"), message)
        seen.add(name)


def check_probe_uses(scene: Scene) -> Iterator[Fault]:
    """Expectations look into probes that there are, and that saw what is asked for."""
    probes = _probes(scene)
    for index, rule in enumerate(scene.scenario.expect):
        uses: list[tuple[str, str, tuple[str, ...]]] = []
        match rule.locks or rule.fds or rule.probe:
            case ExpectLocks() as locks:
                uses = [("at", locks.at, ("locks",))]
            case ExpectFds() as fds:
                uses = [("at", fds.at, ("fds",))]
            case ExpectProbe() as probe:
                kind = probes.get(probe.at)
                same = (kind,) if kind in VALUE_PROBES else VALUE_PROBES
                uses = [("at", probe.at, VALUE_PROBES)]
                others = (("same_as", probe.same_as), ("differs_from", probe.differs_from))
                uses += [(member, name, same) for member, name in others if name is not None]
            case None:
                pass
        for member, name, kinds in uses:
            path: Path = ("expect", index, rule.verb, member)
            yield from _check_probe(path, name, kinds, probes)


def _check_probe(
    path: Path, name: str, kinds: tuple[str, ...], probes: dict[str, str]
) -> Iterator[Fault]:
    if name not in probes:
        hint = suggestion(name, probes) if probes else "expected a probe step with that name"
        yield Fault(path, f'there is no probe "{name}"; {hint}')
    elif probes[name] not in kinds:
        expected = in_words([kind.replace("_", "-") for kind in kinds])
        yield Fault(path, f"{name} probes {probes[name]}; expected a probe of {expected}")


def check_inodes(scene: Scene) -> Iterator[Fault]:
    """``inode_of`` names a namespace that was looked at: NAME.net of a probe, or observed.net."""
    probes = _probes(scene)
    known = ["observed", *(name for name, verb in probes.items() if verb == "namespaces")]
    for index, rule in enumerate(scene.scenario.expect):
        inode = None if rule.field is None else rule.field.inode_of
        if rule.field is None or inode is None:
            continue
        path: Path = ("expect", index, "field", "inode_of")
        where, dot, _ = inode.rpartition(".")
        if not dot or where not in known:
            expected = in_words([f"{name}.net" for name in known])
            yield Fault(path, f'"{inode}" is no namespace that was looked at; expected {expected}')
        elif where == "observed":
            box = scene.box_of(rule.field.on)
            if box is not None and not scene.boxes[box].command.observe:
                yield Fault(path, "nothing is observed inside; expected a command with observe")


def check_reached(scene: Scene) -> Iterator[Fault]:
    """``reached`` repeats a wait step word for word."""
    waits: list[WaitFor | None] = [step.wait for step in scene.scenario.all_steps]
    for index, rule in enumerate(scene.scenario.expect):
        if rule.reached is not None and rule.reached not in waits:
            message = "no step waits for this; expected a wait step with exactly the same text"
            yield Fault(("expect", index, "reached"), message)


def check_census(scene: Scene) -> Iterator[Fault]:
    """Who survived is known from a census: that of a settle step, or of a probe."""
    for step in scene.scenario.all_steps:
        if step.settle is not None or (step.probe is not None and step.probe.census):
            return
    for index, rule in enumerate(scene.scenario.expect):
        if rule.verb in ("survivors", "zombies", "alive"):
            message = f"{rule.verb} needs a census; expected a settle step or a census probe"
            yield Fault(("expect", index, rule.verb), message, at_key=True)


def check_observed(scene: Scene) -> Iterator[Fault]:
    """``observed`` is about a sandbox whose command observes."""
    for index, rule in enumerate(scene.scenario.expect):
        if rule.observed is None:
            continue
        path: Path = ("expect", index, "observed")
        if rule.observed.of is None and scene.several:
            hint = f"expected of: {in_words(list(scene.boxes))}"
            yield Fault(path, f"there are several sandboxes; {hint}")
            continue
        sandbox = scene.boxes.get(rule.observed.of or "main")
        if sandbox is not None and not sandbox.command.observe:
            message = "nothing is observed inside; expected a command with observe: true"
            yield Fault(path, message, at_key=True)


def check_reference(scene: Scene) -> Iterator[Fault]:
    """Only the reference supervisor says and reports anything, and has a gate of its own."""
    if scene.reference:
        yield from _check_ready_when(scene)
        return
    message = "is for the reference supervisor; expected supervisor: {kind: reference}"
    for path, member in _reference_only(scene):
        yield Fault((*path, member), f"{member} {message}", at_key=True)


def _reference_only(scene: Scene) -> Iterator[tuple[Path, str]]:
    for member in ("gate_deadline", "ready_when"):
        if member in scene.scenario.supervisor.model_fields_set:
            yield ("supervisor",), member
    for index, step in enumerate(scene.scenario.steps or []):
        if step.wait is not None:
            for member in ("report", "said"):
                if getattr(step.wait, member) is not None:
                    yield ("steps", index, "wait"), member
    for index, rule in enumerate(scene.scenario.expect):
        if rule.outcome is not None:
            yield ("expect", index), "outcome"
        moments: list[tuple[Path, Any]] = [
            (("expect", index, "order", number), moment)
            for number, moment in enumerate(rule.order or [])
        ]
        if rule.gap is not None:
            moments.append((("expect", index, "gap", "from"), rule.gap.from_))
            moments.append((("expect", index, "gap", "to"), rule.gap.to))
        yield from ((path, "said") for path, moment in moments if moment.said is not None)


def _check_ready_when(scene: Scene) -> Iterator[Fault]:
    name = scene.scenario.supervisor.ready_when
    if name is None:
        return
    for sandbox in scene.boxes.values():
        channel = sandbox.channels.get(name)
        if channel is None or channel.option is not None or channel.direction != "to-sandbox":
            message = f'"{name}" is no stray channel with direction: to-sandbox'
            hint = "expected one in each sandbox"
            yield Fault(("supervisor", "ready_when"), f"{message}; {hint}")
            return


def check_rule_names(scene: Scene) -> Iterator[Fault]:
    """No two rules have the same name after they are numbered."""
    seen: set[str] = set()
    for index, name in enumerate(scene.scenario.rule_names()):
        if name in seen:
            yield Fault(
                ("expect", index), f"a rule is called {name} already; expected another name"
            )
        seen.add(name)


def check_known(scene: Scene) -> Iterator[Fault]:
    """Known deviations name a rule that there is."""
    rules = scene.scenario.rule_names()
    for index, known in enumerate(scene.scenario.known):
        if known.rule not in rules:
            message = f'there is no rule "{known.rule}"; {suggestion(known.rule, rules)}'
            yield Fault(("known", index, "rule"), message)
        if known.fixed_in is None:
            continue
        path: Path = ("known", index, "fixed_in")
        if leading_version(known.fixed_in) is None:
            yield Fault(path, f'"{known.fixed_in}" is no version; expected such as 0.13.0')
        elif _also_when_fixed(known):
            message = f'"{known.when}" holds for {known.fixed_in} too, where it is fixed'
            hint = f"expected when: bwrap < {known.fixed_in}"
            yield Fault(path, f"{message}; {hint}")


def _also_when_fixed(known: Known) -> bool:
    versions = [term for term in known.when.terms if term.name == "bwrap"]
    condition = type(known.when)(known.when.text, tuple(versions))
    return condition.holds({"bwrap": known.fixed_in})


def check_markers(scene: Scene) -> Iterator[Fault]:
    """A marker can appear: some command mentions it, and it is not there from the start."""
    texts: list[str] = [file.content for file in scene.scenario.files.values()]
    for sandbox in scene.boxes.values():
        command = sandbox.command
        texts += [*sandbox.args, *(command.argv or [])]
        texts += [text for text in (command.shell, command.then) if text is not None]
    for mention in scene.used_as(Role.MARKER):
        yield from _check_marker(scene, mention, texts)


def _check_marker(scene: Scene, mention: Mention, texts: list[str]) -> Iterator[Fault]:
    name = mention.name
    if name in scene.scenario.files:
        message = f'"{name}" is one of the files, so it is there before anything runs'
        yield Fault(mention.path, f"{message}; expected a marker of its own")
        return
    mentioned = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    if not name or not any(mentioned.search(text) for text in texts):
        message = f'no command mentions "{name}", so it can never appear'
        yield Fault(mention.path, f"{message}; expected such as touch $SCRATCH/{name or 'ran'}")


CHECKS = (
    check_probe_names,
    check_probe_uses,
    check_inodes,
    check_reached,
    check_census,
    check_observed,
    check_reference,
    check_rule_names,
    check_known,
    check_markers,
)
