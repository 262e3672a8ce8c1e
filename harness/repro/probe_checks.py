"""Checks of what was looked at: locks, fds, namespaces, maps, masks."""

from __future__ import annotations

from typing import Any

from harness.model.scenario import Expectation
from harness.repro.channels import link
from harness.repro.check import check
from harness.repro.probes import root_of, variable
from harness.repro.source import literal
from harness.repro.story import Story, refuse


def _made(story: Story, probe: str, name: str) -> None:
    if probe not in story.probes:
        raise refuse(story.scenario, f"rule {name} is about {probe}, a probe that no step makes")


def locks_check(story: Story, name: str, rule: Expectation) -> None:
    """Which locks a probe saw on a file."""
    assert rule.locks is not None
    what = rule.locks
    _made(story, what.at, name)
    seen = variable(what.at, "locks")
    wanted = "[" + ", ".join(map(literal, sorted(what.held))) + "]"
    holds = f"[kind for kind, _ in {seen}] == {wanted}"
    expected = "locks: " + (", ".join(sorted(what.held)) or "none")
    if what.by is not None:
        if what.by in story.scenario.helpers:
            pid = "os.getpid()"
        else:
            pid = story.pid(what.by, f"rule {name}")
        holds += f" and all(pid == {pid} for _, pid in {seen})"
        expected += f", held by {what.by}"
    check(story, name, holds, expected, f'f"locks and pids: {{{seen}}}"')


def fds_check(story: Story, name: str, rule: Expectation) -> None:
    """Which fds a process had at a probe."""
    assert rule.fds is not None
    what = rule.fds
    _made(story, what.at, name)
    seen = variable(what.at, "fds")
    if what.numbers is not None:
        holds = f"sorted({seen}) == {sorted(what.numbers)}"
        expected = f"the fds {sorted(what.numbers)}"
    else:
        lane = what.has_channel or what.lacks_channel or ""
        target = link(story.channel(lane, f"rule {name}"))
        holds = f"{target} {'in' if what.has_channel else 'not in'} {seen}.values()"
        expected = f"{lane}{'' if what.has_channel else ' not'} among the fds"
    check(story, name, f"None if {seen} is None else {holds}", expected, f"str({seen})")


def probe_check(story: Story, name: str, rule: Expectation) -> None:
    """A value that another kind of probe saw."""
    assert rule.probe is not None
    what, source = rule.probe, story.source
    _made(story, what.at, name)
    root = root_of(what.path)
    seen = variable(what.at, root)
    other = what.same_as or what.differs_from
    if root != what.path:
        rest = what.path[len(root) + 1 :].split(".")
        source.add(f"value = {seen}")
        with source.block(f"for index in ({', '.join(rest)},):"):
            source.add("value = value[index] if value and index < len(value) else None")
        seen = "value"
        if other is not None:
            raise refuse(story.scenario, f"rule {name} compares a part of two probes")
    if other is not None:
        _made(story, other, name)
        word = "the same" if what.same_as else "another"
        expected = literal(f"{what.path} is {word} in {what.at} as in {other}")
        more = [] if what.same_as else ["is_same=False"]
        source.call("check_same(", [literal(name), expected, seen, variable(other, root), *more])
        return
    if what.contains is not None:
        holds = f"{_value(what.contains)} in {seen}"
        expected = f"{what.contains} in {what.path} of {what.at}"
    elif what.lacks is not None:
        holds = f"{_value(what.lacks)} not in {seen}"
        expected = f"no {what.lacks} in {what.path} of {what.at}"
    else:
        holds = f"{seen} == {_value(what.equals)}"
        expected = f"{what.path} of {what.at} is {what.equals}"
    check(story, name, f"None if {seen} is None else {holds}", expected, f"str({seen})")


def _value(value: Any) -> str:
    return literal(value) if isinstance(value, str) else repr(value)
