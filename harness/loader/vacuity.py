"""Whether a scenario can fail: one that cannot proves nothing, and is refused.

The rule: on every kind of run that a scenario's ``needs`` allow, at least one expectation that
applies must ask for something that *happened*: a given exit, a line, a member, a marker, an order.
That nothing was seen (no survivors, a marker that never appeared, a text that is lacking) is also
true of a sandbox that never started, so it proves nothing by itself.  ``exit: {any: true}`` asks
for no more than the wait at the end of every run does.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.loader.conditions import in_plain_words, kinds_of_runs
from harness.loader.scene import Scene
from harness.loader.translate import Fault
from harness.model.condition import Condition
from harness.model.scenario import Expectation

HINT = "expected one that something happened: an exit code, a line, a member, a marker, an order"


def asks_for_something(rule: Expectation) -> bool:
    """Whether ``rule`` can only hold when something happened."""
    match rule.verb:
        case "exit":
            return rule.exit is not None and (
                rule.exit.code is not None or rule.exit.signal is not None
            )
        case "eof":
            return rule.eof is not None and rule.eof.seen
        case "ran" | "alive" | "outcome" | "reached" | "order" | "gap":
            return not _holds_always(rule)
        case "survivors" | "zombies":
            named = rule.survivors if rule.verb == "survivors" else rule.zombies
            return isinstance(named, list) and bool(named)
        case "locks":
            return rule.locks is not None and bool(rule.locks.held)
        case "never_ran":
            return False
        case _:
            return _content_asks(rule)


def _content_asks(rule: Expectation) -> bool:
    """The same for expectations about what was written or seen: its absence asks for nothing."""
    if rule.objects is not None:
        objects = rule.objects
        return bool(objects.count or objects.members or objects.some_has)
    if rule.field is not None:
        return not rule.field.absent
    if rule.text is not None:
        text = rule.text
        return bool(text.contains or text.lines or text.at_least_bytes) or text.empty is False
    if rule.fds is not None:
        return bool(rule.fds.numbers) or rule.fds.has_channel is not None
    if rule.observed is not None:
        return not rule.observed.absent and rule.observed.lacks is None
    return rule.probe is not None and rule.probe.lacks is None


def _holds_always(rule: Expectation) -> bool:
    """Whether ``rule`` compares a moment with itself, or asks for a gap of at least nothing."""
    if rule.order is not None:
        return len(set(map(repr, rule.order))) < 2
    if rule.gap is not None:
        return rule.gap.from_ == rule.gap.to or (rule.gap.at_most is None and not rule.gap.at_least)
    return False


def check_empty_rules(scene: Scene) -> Iterator[Fault]:
    """No rule holds whatever happens."""
    for index, rule in enumerate(scene.scenario.expect):
        if _holds_always(rule):
            message = f"this {rule.verb} holds whatever happens; expected two different moments"
            if rule.gap is not None and rule.gap.from_ != rule.gap.to:
                message = "this gap holds whatever happens; expected at_least above 0, or at_most"
            yield Fault(("expect", index, rule.verb), message, at_key=True)
        objects = rule.objects
        if objects is not None and not objects.model_fields_set - {"on"}:
            message = "this asks nothing of the objects; expected count, members, some_has, ..."
            yield Fault(("expect", index, "objects"), message, at_key=True)


def check_conditions(scene: Scene) -> Iterator[Fault]:
    """Every ``when`` can hold: with ``needs``, and a deviation's with that of its rule."""
    scenario = scene.scenario
    rules = dict(zip(scenario.rule_names(), scenario.expect, strict=True))
    for index, rule in enumerate(scenario.expect):
        if rule.when is not None and not _possible(scene, [rule.when]):
            message = (
                f'"{rule.when}" never holds{_with_needs(scene)}; expected a condition that can'
            )
            yield Fault(("expect", index, "when"), message)
    for index, known in enumerate(scenario.known):
        of_rule = rules[known.rule].when if known.rule in rules else None
        together = [known.when] if of_rule is None else [known.when, of_rule]
        if not _possible(scene, together):
            beside = "" if of_rule is None else f' where the rule applies ("{of_rule}")'
            message = f'"{known.when}" never holds{beside}{_with_needs(scene)}'
            yield Fault(("known", index, "when"), f"{message}; expected a condition that can")


def _possible(scene: Scene, conditions: list[Condition]) -> bool:
    runs = list(kinds_of_runs(scene.scenario, conditions))
    return not runs or any(all(c.holds(facts) for c in conditions) for facts in runs)


def _with_needs(scene: Scene) -> str:
    needed = scene.scenario.needs.bwrap
    return f' together with needs: "{needed}"' if needed is not None else ""


def check_can_fail(scene: Scene) -> Iterator[Fault]:
    """On every kind of run there is an expectation that asks for something."""
    rules = scene.scenario.expect
    asking = [rule for rule in rules if asks_for_something(rule)]
    if not asking:
        message = f"this scenario cannot fail: all that it expects holds when nothing runs; {HINT}"
        yield Fault(("expect",), message, at_key=True)
        return
    conditions = [rule.when for rule in asking if rule.when is not None]
    if len(conditions) < len(asking):
        return  # one of them applies always
    for facts in kinds_of_runs(scene.scenario, conditions):
        if not any(condition.holds(facts) for condition in conditions):
            where = in_plain_words(facts, conditions)
            message = f"this scenario cannot fail with {where}: no expectation with such a when"
            hint = "applies there and asks for anything; expected one without when, or needs"
            yield Fault(("expect",), f"{message} {hint}", at_key=True)
            return


CHECKS = (check_empty_rules, check_conditions, check_can_fail)
