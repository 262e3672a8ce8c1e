"""The one statement that every check comes to."""

from __future__ import annotations

from collections.abc import Sequence

from harness.repro.source import WIDTH, literal
from harness.repro.story import Story


def check(story: Story, name: str, holds: str, expected: str, observed: str) -> None:
    """Say whether a rule held; ``holds`` and ``observed`` are expressions."""
    story.source.call("check(", [literal(name), holds, literal(expected), observed])


def wanted(story: Story, texts: Sequence[str]) -> str:
    """The expression of a list of texts; a long one gets a statement of its own before."""
    items = [literal(each) for each in texts]
    listed = f"[{', '.join(items)}]"
    if len(listed) < WIDTH - 44:
        return listed
    story.source.call("wanted = [", items, "]")
    return "wanted"
