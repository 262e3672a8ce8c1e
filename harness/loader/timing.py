"""Whether the steps of a scenario can be done in their order and in their time, and often enough.

Checks as in ``names``.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.loader.scene import Role, Scene
from harness.loader.translate import Fault
from harness.model.scenario import Step

#: How each way of reading ends what can be seen of a channel.
_UNSEEN = {
    "never": "is never read",
    "closed-before-start": "is closed before anything is written to it",
}
#: Roles whose names belong to a sandbox that has to be running.
_RUNNING = (Role.PROCESS, Role.SUPERVISOR, Role.LAUNCHER, Role.READ_CHANNEL)


def in_units(duration_ns: int) -> str:
    """Nanoseconds as they are written in a file: ``500ms``, ``2s``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if duration_ns >= size:
            return f"{duration_ns / size:g}{unit}"
    return f"{duration_ns}ns"


def check_trigger(scene: Scene) -> Iterator[Fault]:
    """Exactly one of the steps is the stimulus whose effect is judged."""
    steps = scene.scenario.steps
    if steps is None:
        return  # the launch is
    marked = [index for index, step in enumerate(steps) if step.trigger]
    if not marked:
        message = "none of the steps is the stimulus; expected trigger: true on one of them"
        yield Fault(("steps",), message, at_key=True)
    for index in marked[1:]:
        message = f"step {marked[0] + 1} is the trigger already; expected one trigger"
        yield Fault(("steps", index, "trigger"), message, at_key=True)


def check_launches(scene: Scene) -> Iterator[Fault]:
    """A sandbox with a launch step of its own is launched once, and not used before."""
    launched: dict[str, int] = {}
    for index, step in enumerate(scene.scenario.steps or []):
        if step.launch is None:
            continue
        if step.launch in launched:
            message = f"{step.launch} is launched by step {launched[step.launch] + 1} already"
            yield Fault(("steps", index, "launch"), f"{message}; expected one launch")
        launched.setdefault(step.launch, index)
    for mention in scene.used_as(*_RUNNING, Role.SANDBOX):
        box = mention.name if mention.role is Role.SANDBOX else scene.box_of(mention.name)
        if box is None or mention.step is None or mention.step >= launched.get(box, 0):
            continue
        message = f"{mention.name} is not there yet: step {launched[box] + 1} launches {box}"
        yield Fault(mention.path, f"{message}; expected this step after it")


def check_starts(scene: Scene) -> Iterator[Fault]:
    """What a step has to start is started, and not used before.

    The scripted supervisor starts no provider by itself; the reference one does.
    """
    steps = scene.scenario.steps or []
    started = {step.start: index for index, step in reversed(list(enumerate(steps))) if step.start}
    for name, helper in scene.scenario.helpers.items():
        if helper.started == "by-step" and name not in started:
            message = f"no step starts {name}; expected a start step, or started: at-once"
            yield Fault(("helpers", name, "started"), message)
        if helper.started == "at-once" and name in started:
            message = f"{name} is started at once; expected started: by-step, or no start step"
            yield Fault(("steps", started[name], "start"), message)
    for name in scene.scenario.providers if not scene.reference else ():
        if name not in started:
            message = f"no step starts {name}; expected a start step for this provider"
            yield Fault(("providers", name), message, at_key=True)
    by_step = {name for name, each in scene.scenario.helpers.items() if each.started == "by-step"}
    for mention in scene.used_as(Role.PROCESS, Role.STARTED, Role.HELPER):
        first = started.get(mention.name)
        if mention.name not in by_step or first is None or mention.step is None:
            continue
        if mention.step < first:
            message = f"{mention.name} is not there yet: step {first + 1} starts it"
            yield Fault(mention.path, f"{message}; expected this step after it")


def check_deadlines(scene: Scene) -> Iterator[Fault]:
    """Time that passes on purpose fits into the deadline of its step, and gaps have two sides."""
    for index, step in enumerate(scene.scenario.steps or []):
        member, length = ("pass", step.pass_) if step.pass_ is not None else ("settle", step.settle)
        if length is not None and length > step.within:
            message = f"{in_units(length)} is longer than the step's deadline"
            hint = f"expected within: above it (it is {in_units(step.within)}{_unsaid(step)})"
            yield Fault(("steps", index, member), f"{message}; {hint}")
    for index, rule in enumerate(scene.scenario.expect):
        gap = rule.gap
        if gap is None or gap.at_least is None or gap.at_most is None:
            continue
        if gap.at_least > gap.at_most:
            message = f"at least {in_units(gap.at_least)} and at most {in_units(gap.at_most)}"
            path = ("expect", index, "gap", "at_least")
            yield Fault(path, f"{message} cannot both hold; expected at_least below at_most")


def _unsaid(step: Step) -> str:
    return "" if "within" in step.model_fields_set else " by default"


def check_unread(scene: Scene) -> Iterator[Fault]:
    """What the observer does not read cannot be waited for or judged."""
    for mention in scene.used_as(Role.READ_CHANNEL):
        channel = scene.channels.get(mention.name)
        if channel is None:
            continue
        if channel.held_by != "observer":
            message = f"{mention.name} is held by {channel.held_by}, so this cannot be seen"
            yield Fault(mention.path, f"{message}; expected held_by: observer")
        elif channel.read in _UNSEEN:
            message = f"{mention.name} {_UNSEEN[channel.read]}, so this cannot be seen"
            yield Fault(mention.path, f"{message}; expected read: drain")
        elif channel.read == "first-line-then-close" and "eof" in mention.path[-2:]:
            message = f"{mention.name} is closed after its first line, so no end of file is seen"
            yield Fault(mention.path, f"{message}; expected read: drain")


def check_far_ends(scene: Scene) -> Iterator[Fault]:
    """A step writes to, types at or closes only what the observer or the supervisor holds."""
    for mention in scene.used_as(Role.WRITTEN_CHANNEL, Role.TERMINAL, Role.CHANNEL):
        channel = scene.channels.get(mention.name)
        if channel is None or mention.step is None:
            continue
        if channel.held_by not in ("observer", "supervisor"):
            message = f"{mention.name} is held by {channel.held_by}, which takes no orders"
            yield Fault(mention.path, f"{message}; expected held_by: observer or supervisor")


def check_repeats(scene: Scene) -> Iterator[Fault]:
    """What is only true of some recordings needs several of them."""
    scenario = scene.scenario
    if scenario.repeat > 1:
        return
    if scenario.rate is not None:
        yield Fault(("rate",), "a rate needs several recordings; expected repeat: above 1", True)
    for index, known in enumerate(scenario.known):
        if known.rate_at_least is not None:
            message = "a rate needs several recordings; expected repeat: above 1"
            yield Fault(("known", index, "rate_at_least"), message, at_key=True)


CHECKS = (
    check_trigger,
    check_launches,
    check_starts,
    check_deadlines,
    check_unread,
    check_far_ends,
    check_repeats,
)
