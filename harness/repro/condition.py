"""Conditions on what runs (``bwrap >= 0.5.0``) as Python expressions of a script."""

from __future__ import annotations

from harness.model.condition import Condition
from harness.repro.source import literal
from harness.repro.story import Story, refuse

VERSION = """\
VERSION = ""  # what bwrap says when it is asked for it
"""

VERSION_OF = '''\
def version_of(words):
    """The first version in a text as numbers to compare: bubblewrap 0.8.0 -> (0, 8, 0)."""
    found = re.search(r"\\d+(\\.\\d+)*", words)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    return tuple((numbers + [0, 0, 0, 0])[:4])
'''


def condition_expression(story: Story, condition: Condition) -> str:
    """A condition as an expression; refused when it asks for a fact that only doctor finds out."""
    terms = []
    for term in condition.terms:
        if term.name == "bwrap":
            terms.append(f"version_of(VERSION) {term.compare} version_of({literal(term.value)})")
        elif term.name == "kernel":
            release = "version_of(os.uname().release)"
            terms.append(f"{release} {term.compare} version_of({literal(term.value)})")
        elif term.name == "uid":
            terms.append(f"os.getuid() {term.compare} {int(term.value)}")
        else:
            raise refuse(story.scenario, f"the condition {condition} asks harness doctor")
    return " and ".join(terms)
