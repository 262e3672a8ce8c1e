"""The view from inside: a command that says just what the checks ask for, and how to read it.

The built-in command of scenarios (``observe``) reports everything there is to see; a script asks
for no more than its checks compare, one line each: a word, and what is seen.  The shell's own
builtins read ``/proc/self``, so that what is seen is the shell itself.
"""

from __future__ import annotations

from harness.model.scenario import Command, Expectation
from harness.repro.check import check, wanted
from harness.repro.source import literal
from harness.repro.story import Box, Pipe, Story, refuse

_STATUS = 'while read -r name value; do echo "status $name $value"; done </proc/self/status'
_ENVIRONMENT = """\
echo environment-begin
{ tr '\\000\\n' '\\n\\000'; } </proc/self/environ
echo environment-end"""
_FDS = 'for fd in /proc/self/fd/*; do if test -h $fd; then echo "fd ${fd##*/}"; fi; done'
#: The first word of a path -> what the command does to say it.
_SAYINGS = {
    "pid": "echo pid $$",
    "ppid": "echo ppid $PPID",
    "environment": _ENVIRONMENT,
    "fds": _FDS,
    "tty": 'read -r stat </proc/self/stat; echo "stat $stat"',
    "namespaces": "echo namespace {rest} $(stat -L -c %i /proc/self/ns/{rest})",
    "session": _STATUS,
    "capabilities": _STATUS,
    "no_new_privs": _STATUS,
    "uid": _STATUS,
    "proc_is_own": "echo pid $$\n" + _STATUS,
}
#: What the built-in command says last, without its mark.
_END = "harness observation 1 end"
_CAPABILITIES = {
    "inheritable": "CapInh",
    "permitted": "CapPrm",
    "effective": "CapEff",
    "bounding": "CapBnd",
    "ambient": "CapAmb",
}


#: What is compared, where it is not the very thing that was said.
_VALUES = {
    "tty": "seen != 0",
    "no_new_privs": "seen == 1",
    "proc_is_own": 'seen == said_number({channel}, "pid") and '
    'len(said({channel}, "status NSpid:")[0].split()) == 1',
}


def observing_shell(story: Story, box: Box) -> str:
    """The shell text of a command that says what the checks of this sandbox are about."""
    command: Command = box.spec.command
    said: list[str] = []
    for path in paths_of(story, box):
        root, _, rest = path.partition(".")
        if root not in _SAYINGS:
            raise refuse(story.scenario, f"a rule asks what {path} is from inside (observed)")
        said += _SAYINGS[root].replace("{rest}", rest).split("\n")
    lines = list(dict.fromkeys(said))
    waits = [step.wait for step in story.scenario.all_steps if step.wait is not None]
    if any(wait.contains and wait.contains in _END for wait in waits):
        lines.append(f'echo "{_END}"')  # a step waits for it
    return "\n".join([*lines, *([command.then] if command.then else [])]) + "\n"


def paths_of(story: Story, box: Box) -> list[str]:
    """What the checks ask of the view from inside this sandbox."""
    found = []
    for _, rule in story.checks:
        if rule.observed is not None and rule.observed.of in (None, box.name):
            found.append(rule.observed.path)
        if rule.field is not None and (rule.field.inode_of or "").startswith("observed."):
            found.append((rule.field.inode_of or "").replace("observed.", "namespaces.", 1))
    return found


def stdout_of(story: Story, box: Box) -> Pipe:
    """The channel on which the command says it."""
    for pipe in box.channels.values():
        if pipe.spec.option in ("stdout", "terminal"):
            return pipe
    raise refuse(story.scenario, f"nobody reads what the command of {box.name} says")


def observed_check(story: Story, name: str, rule: Expectation) -> None:
    """What the command saw from inside the sandbox."""
    what = rule.observed
    assert what is not None
    box = story.boxes[what.of] if what.of is not None else next(iter(story.boxes.values()))
    if not box.spec.command.observe:
        raise refuse(story.scenario, f"rule {name} asks what no command of {box.name} says")
    channel = literal(stdout_of(story, box).lane)
    root, _, rest = what.path.partition(".")
    story.source.add(f"seen = {said(channel, what.path)}")
    if root == "environment" and rest:
        value = f"seen.get({literal(rest)})"
        is_there = f"{literal(rest)} in seen"
    else:
        value, is_there = _VALUES.get(root, "seen").format(channel=channel), "seen is not None"
    if what.absent:
        holds, expected = f"not ({is_there})", f"no {what.path} inside"
    elif what.keys is not None:
        holds = f"sorted(seen) == {wanted(story, sorted(what.keys))}"
        expected = f"{what.path} inside: {', '.join(sorted(what.keys))}"
    elif what.contains is not None or what.lacks is not None:
        word = "in" if what.contains is not None else "not in"
        item = what.contains if what.contains is not None else what.lacks
        holds = f"{literal(str(item))} {word} {value}"
        expected = f"{item} {word} {what.path} inside"
    else:
        expected = f"{what.path} inside is {what.equals!r}"
        if isinstance(what.equals, bool):
            holds = value if what.equals else f"not ({value})"
        else:
            equal = literal(what.equals) if isinstance(what.equals, str) else repr(what.equals)
            holds = f"{value} == {equal}"
    holds = f"None if seen is None else {holds}"
    check(story, name, holds, expected, "str(seen)")


def said(channel: str, path: str) -> str:
    """The expression of what the command said of a path; None where it said nothing."""
    root, _, rest = path.partition(".")
    match root:
        case "namespaces":
            return f"said_number({channel}, {literal('namespace ' + rest)})"
        case "pid" | "ppid":
            return f"said_number({channel}, {literal(root)})"
        case "session":
            return f'said_number({channel}, "status NSsid:")'
        case "capabilities":
            return f"said_number({channel}, {literal(f'status {_CAPABILITIES[rest]}:')}, base=16)"
        case "uid":
            return f'said_number({channel}, "status Uid:", index=1)'
        case "no_new_privs":
            return f'said_number({channel}, "status NoNewPrivs:")'
        case "tty":
            return f'said_number({channel}, "stat", index=6)'  # proc_pid_stat(5): tty_nr
        case "fds":
            return f'said({channel}, "fd")'
        case "proc_is_own":
            return f'said_number({channel}, "status Pid:")'
        case _:
            return f"environment_said({channel})"
