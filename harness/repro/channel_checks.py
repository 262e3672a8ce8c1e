"""Checks of channels: JSON objects and their members, text, end of file."""

from __future__ import annotations

from harness.model.scenario import Expectation, ExpectObjects
from harness.repro.check import check, wanted
from harness.repro.observing import said, stdout_of
from harness.repro.probes import variable
from harness.repro.source import literal
from harness.repro.story import Story, refuse


def objects_check(story: Story, name: str, rule: Expectation) -> None:
    """How many objects a channel carried, and which members they have."""
    assert rule.objects is not None
    what = rule.objects
    pipe = story.channel(what.on, f"rule {name}")
    if not pipe.is_read:
        raise refuse(story.scenario, f"rule {name} is about {what.on}, which nobody reads")
    channel = literal(what.on)
    story.source.add(f"seen = objects({channel})")
    terms, words = _object_terms(what, channel)
    expected = " and ".join(words) + f" on {what.on}"
    check(story, name, " and ".join(terms), expected, f"repr(text[{channel}])")


def _object_terms(what: ExpectObjects, channel: str) -> tuple[list[str], list[str]]:
    terms, words = [], []
    if what.count is not None:
        terms.append(f"len(seen) == {what.count}")
        words.append(f"exactly {what.count} object(s)")
    for number, members in enumerate(what.members or []):
        terms.append(f"len(seen) > {number}")
        terms += [f"{literal(member)} in seen[{number}]" for member in members]
        words.append(f"object {number + 1} with {', '.join(members) or 'anything'}")
    if what.none_has is not None:
        terms.append(f"not any({literal(what.none_has)} in each for each in seen)")
        words.append(f"no object with {what.none_has}")
    if what.some_has is not None:
        terms.append(f"any({literal(what.some_has)} in each for each in seen)")
        words.append(f"an object with {what.some_has}")
    if what.fragments_joined:
        whole = f'text[{channel}].count("\\n") >= len(seen)'
        terms += ["bool(seen)", whole, f'text[{channel}].endswith("\\n")']
        words.append("every byte part of a whole object in a line")
    return terms, words


def text_check(story: Story, name: str, rule: Expectation) -> None:
    """Text on a channel."""
    assert rule.text is not None
    what = rule.text
    if not story.channel(what.on, f"rule {name}").is_read:
        raise refuse(story.scenario, f"rule {name} is about {what.on}, which nobody reads")
    channel = literal(what.on)
    seen = f"repr(text[{channel}][:500])"
    if what.contains is not None:
        holds, expected = f"{literal(what.contains)} in text[{channel}]", f"{what.contains!r}"
    elif what.lacks is not None:
        holds, expected = f"{literal(what.lacks)} not in text[{channel}]", f"no {what.lacks!r}"
    elif what.lines is not None:
        holds = f"lines({channel}) == {wanted(story, what.lines)}"
        expected = f"the lines {what.lines}"
    elif what.at_least_bytes is not None:
        holds = f"len(text[{channel}].encode()) >= {what.at_least_bytes}"
        seen = f"str(len(text[{channel}].encode()))"
        expected = f"at least {what.at_least_bytes} bytes"
    else:
        holds = f"{'not ' if what.empty else ''}text[{channel}]"
        holds = holds if what.empty else f'text[{channel}] != ""'
        expected = "nothing" if what.empty else "something"
    check(story, name, holds, f"{expected} on {what.on}", seen)


def eof_check(story: Story, name: str, rule: Expectation) -> None:
    """Whether a channel came to its end."""
    assert rule.eof is not None
    what = rule.eof
    if not story.channel(what.on, f"rule {name}").is_read:
        raise refuse(story.scenario, f"rule {name} is about {what.on}, which nobody reads")
    story.source.add(f"is_over = {literal(what.on)} in at_end")
    holds = "is_over" if what.seen else "not is_over"
    expected = f"{'an' if what.seen else 'no'} end of file on {what.on}"
    check(story, name, holds, expected, '"end of file" if is_over else "no end of file"')


def field_check(story: Story, name: str, rule: Expectation) -> None:
    """The value of one member of the first object that has it."""
    assert rule.field is not None
    what, source = rule.field, story.source
    pipe = story.channel(what.on, f"rule {name}")
    if not pipe.is_read:
        raise refuse(story.scenario, f"rule {name} is about {what.on}, which nobody reads")
    source.add(f"value = member({literal(what.on)}, {literal(what.member)})")
    about = f"{what.member} on {what.on}"
    if what.absent:
        check(story, name, "value is None", f"no {about}", "str(value)")
    elif what.equals is not None:
        value = repr(what.equals) if not isinstance(what.equals, str) else literal(what.equals)
        same = f"value == {value}"
        if isinstance(what.equals, bool) or what.equals in (0, 1):
            same += f" and isinstance(value, bool) is {isinstance(what.equals, bool)}"
        check(story, name, same, f"{about} is {what.equals}", "str(value)")
    elif what.pid_of is not None:
        pid = story.pid(what.pid_of, f"rule {name}")
        expected = f"{about} is the pid of {what.pid_of} as seen from here"
        check(story, name, f"value == {pid}", expected, f'f"{{value}}, its pid is {{{pid}}}"')
    else:
        probe, _, kind = (what.inode_of or "").rpartition(".")
        if probe == "observed":
            found = story.box_of(
                what.on.rpartition(".")[0] + ".monitor" if "." in what.on else "monitor"
            )
            assert found is not None
            inode = said(literal(stdout_of(story, found[0]).lane), f"namespaces.{kind}")
        elif story.probes.get(probe) == "namespaces":
            inode = variable(probe, f"namespaces.{kind}")
        else:
            raise refuse(story.scenario, f"rule {name} is about {probe}, which nothing looked at")
        expected = f"{about} is the inode of that namespace"
        source.call("check_same(", [literal(name), literal(expected), "value", inode])
