"""Looking at things in the course of a script: locks, fds, namespaces, maps, masks, a census."""

from __future__ import annotations

from harness.model.scenario import Probe
from harness.repro.endings import how
from harness.repro.source import identifier, literal
from harness.repro.story import Box, Story, outside, refuse

#: What signals_of() reads for each set of a signals probe: lines of /proc/PID/status.
_MASKS = {
    "blocked": '["SigBlk"]',
    "ignored": '["SigIgn"]',
    "caught": '["SigCgt"]',
    "pending": '["SigPnd", "ShdPnd"]',
}


def probe_verb(probe: Probe) -> str:
    """The one thing that a probe looks at."""
    given = probe.model_dump(exclude_none=True, exclude={"name", "from_"})
    return next(iter(given))


def probe_name(probe: Probe) -> str:
    """The name under which rules know a probe."""
    return probe.name or probe_verb(probe).replace("_", "-")


def variable(name: str, path: str) -> str:
    """The variable that holds what a probe saw."""
    return f"{identifier(name)}_{identifier(path)}"


def paths_of(story: Story, name: str) -> list[str]:
    """The parts of a probe that some check compares."""
    found: list[str] = []
    for _, rule in story.checks:
        if rule.probe is not None and name in (
            rule.probe.at,
            rule.probe.same_as,
            rule.probe.differs_from,
        ):
            found.append(root_of(rule.probe.path))
        if rule.field is not None and rule.field.inode_of is not None:
            source, _, kind = rule.field.inode_of.rpartition(".")
            if source == name:
                found.append(f"namespaces.{kind}")
    return list(dict.fromkeys(found))


def root_of(path: str) -> str:
    """The part of a path that is looked at as a whole: ``uid_map`` of ``uid_map.0.2``."""
    return path if path.startswith("namespaces.") else path.partition(".")[0]


def probe(story: Story, what: Probe, within: str, where: str) -> None:
    """The statements of one probe; a look that no check needs is said to be left out."""
    source = story.source
    verb, name = probe_verb(what), probe_name(what)
    story.probes[name] = verb
    rules = [rule for _, rule in story.checks]
    if verb == "census":
        settles = any(step.settle is not None for step in story.scenario.all_steps)
        if settles:
            source.comment("(The census that counts is that after the last settle.)")
        else:
            take_census(story)
        return
    if verb == "connect":
        raise refuse(story.scenario, f"{where} connects from inside of a network namespace")
    if verb == "locks":
        if any(rule.locks and rule.locks.at == name for rule in rules):
            source.add(f"{variable(name, 'locks')} = locks_on({literal(what.locks or '')})")
        else:
            _leave_out(story)
        return
    lane = what.fds or what.namespaces or what.uid_map or what.signals or ""
    pid = story.pid(lane, where)
    if verb == "fds":
        if any(rule.fds and rule.fds.at == name for rule in rules):
            source.add(f"{variable(name, 'fds')} = fds_of({pid}, {within})")
        else:
            _leave_out(story)
        return
    paths = paths_of(story, name)
    for path in paths:
        source.add(f"{variable(name, path)} = {_look(story, verb, path, pid, where)}")
    if not paths:
        _leave_out(story)


def _leave_out(story: Story) -> None:
    story.source.comment("(None of the checks below is about it, so there is no look.)")


def _look(story: Story, verb: str, path: str, pid: str, where: str) -> str:
    if verb == "namespaces" and path.startswith("namespaces."):
        return f"namespace_of({pid}, {literal(path.partition('.')[2])})"
    if verb == "uid_map" and path in ("uid_map", "gid_map"):
        return f"id_map({pid}, {literal(path)})"
    if verb == "signals" and path in _MASKS:
        return f"signals_of({pid}, {_MASKS[path]})"
    raise refuse(story.scenario, f"{where}: a rule asks for {path} of it")


# --- the census ----------------------------------------------------------------------------------


def take_census(story: Story) -> None:
    """Write down who is alive, or a zombie, where a check is about that."""
    source = story.source
    rules = [rule for _, rule in story.checks]
    lives = any(rule.survivors is not None or rule.alive is not None for rule in rules)
    if lives:
        source.add(f"alive_then = alive({outside(story)})")
    if any(rule.zombies is not None for rule in rules):
        away = outside(story)
        monitors = ", ".join(box.monitor_pid for box in story.boxes.values())
        source.comment("bwrap itself does not count: a supervisor has waited for it.")
        source.add(f"waited_for = [{', '.join(filter(None, [monitors, away.strip('[]')]))}]")
        source.add('dead_then = [pid for pid in descendants() if state(pid) == "Z"]')
        source.add("dead_then = [pid for pid in dead_then if pid not in waited_for]")
    if story.names_processes:
        _name_everybody(story)
    story.probes["census"] = "census"


def _name_everybody(story: Story) -> None:
    source = story.source
    source.add("names = {}")
    for box in story.boxes.values():
        _name_sandbox(story, box)
    for name in story.scenario.providers:
        source.add(f"names[{identifier(name)}_provider.pid] = {literal(name)}")


def _name_sandbox(story: Story, box: Box) -> None:
    source = story.source
    monitor, child, reaper, command = (
        literal(box.prefix + part) for part in ("monitor", "child", "reaper", "command")
    )
    if box.child_pid in story.resolved and not box.has_reaper:
        source.add(
            f"is_command = exe({box.child_pid}) not in (None, program)",
            f"names[{box.child_pid}] = {command} if is_command else {child}",
        )
    elif box.child_pid in story.resolved and box.pid("command") in story.resolved:
        source.add(f"names[{box.child_pid}] = {reaper}")
        source.add(f"names[{box.pid('command')}] = {command}")
    elif box.child_pid in story.resolved:
        source.add(
            f"names[{box.child_pid}] = {reaper} if children_of({box.child_pid}) else {child}"
        )
        source.comment("Once bwrap has exited, its init's first child is one that it adopted.")
        with source.block(f'if "exited" not in {how(story, box.prefix + "monitor")}:'):
            source.add(
                f"names.update({{pid: {command} for pid in children_of({box.child_pid})[:1]}})"
            )
    source.add(f"names[{box.monitor_pid}] = {monitor}")
