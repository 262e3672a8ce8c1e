"""What a script says about itself, before its first statement."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from harness.model.scenario import Expectation, Scenario
from harness.repro.source import WIDTH
from harness.repro.story import Story


def docstring(story: Story, version: str) -> str:
    """What the script is about, for whoever opens it."""
    scenario = story.scenario
    lines = [scenario.title + ".", ""]
    if scenario.notes:
        lines += [*_wrapped(scenario.notes), ""]
    lines.append("Checked here:")
    for said, names in _promises(story).items():
        lines += _wrapped(f"{', '.join(names)}: {said}", "  ")
    if scenario.known:
        left = len(scenario.expect) - len(story.checks)
        lines += ["", "Known not to hold:"]
        for entry in scenario.known:
            fixed = f", fixed in {entry.fixed_in}" if entry.fixed_in else ""
            seen = f" (seen: {entry.observed})" if entry.observed else ""
            often = ""
            if entry.rate_at_least is not None:
                often = f" (a race: seen in no less than {entry.rate_at_least:.1%} of many tries)"
            text = f"{entry.rule}, {entry.when}{fixed}: {entry.because}{seen}{often}"
            lines += [*_wrapped(text, "  "), f"    {entry.issue}"]
        if left:
            lines.append(f"  ({left} more expectation(s) of the scenario are not checked here.)")
    issues = {entry.issue for entry in scenario.known}
    shown = [ref for ref in scenario.refs if ref not in issues and not ref.startswith("how-to")]
    lines += ["", *(f"See also {ref}" for ref in shown)] if shown else []
    lines += ["", *_legend(story), *_usage(scenario), ""]
    lines += [f"Written by bwrap-harness {version}:", f"  harness repro {scenario.id}"]
    text = "\n".join(line.rstrip() for line in lines)
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{escaped}\n"""\n'


def _promises(story: Story) -> dict[str, list[str]]:
    """What each check is about, with the checks that are about it."""
    found: dict[str, list[str]] = {}
    for name, rule in story.checks:
        found.setdefault(_clauses(story, rule), []).append(name)
    return found


def _clauses(story: Story, rule: Expectation) -> str:
    found = []
    for name in [rule.clause] if rule.clause else story.scenario.clauses:
        clause = story.clauses.get(name)
        found.append(f"{clause.sentence} ({clause.source})" if clause else name)
    return " ".join(found)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + ("  " if indent else ""),
        break_on_hyphens=False,
        break_long_words=False,
    )


#: Who is who, for whoever has not read how bwrap forks.
_CAST = {
    "monitor": "the bwrap that is started",
    "child": "the process that it clones",
    "reaper": "that child, where it stays as an init",
    "command": "what runs in the sandbox",
    "descendant": "anybody else below",
}


def _legend(story: Story) -> Iterator[str]:
    """The words of the cast that the script uses."""
    said = "\n".join(story.source.lines)
    named = [f"{who}: {what}" for who, what in _CAST.items() if who in said]
    if named:
        yield from _wrapped("; ".join(named) + ".")
        yield ""


def _usage(scenario: Scenario) -> Iterator[str]:
    if scenario.repeat > 1:
        yield "Usage: python3 repro.py [BWRAP [TRIES]]"
    else:
        yield "Usage: python3 repro.py [BWRAP]"
    what = "a deviation shows" if scenario.known else "something is otherwise"
    yield f"Exit status: 0 all is as expected, 1 {what}, 2 it cannot be said (it says why)."
