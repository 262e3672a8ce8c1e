"""A bisection in words and as JSON.  Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.model.bisection import ANY_RULE, Bisection
from harness.model.verdict import Subject
from harness.reporters.terminal import Style
from harness.reporters.words import visible


def text(found: Bisection, scenario_id: str, subjects: Sequence[Subject], style: Style) -> str:
    """Every subject in its place, what was seen of it, and the answer in one sentence."""
    names = [f"{visible(each.spec)} (bwrap {visible(each.version)})" for each in subjects]
    width = max(map(len, names))
    lines = [f"{style.paint(scenario_id, '1')}: {found.rule or ANY_RULE}", ""]
    for place, name in enumerate(names):
        lines.append(f"  {name:<{width}}  {_seen(found, place)}")
        if found.rule and found.after - found.before == 1 and place == found.before:
            lines.append(style.paint(f"  {'flips here':-^{width}}", "33"))
    lines += ["", _sentence(found, names)]
    return style.encode("\n".join(lines)) + "\n"


def _seen(found: Bisection, place: int) -> str:
    seen = found.seen.get(place)
    if seen is None:
        return "not looked at"
    what = f"failed in {found.shares[place]}"
    if seen.tried > seen.n:
        what += f", {seen.tried - seen.n} more could not be decided"
    return what


def _sentence(found: Bisection, names: Sequence[str]) -> str:
    before, after = names[found.before], names[found.after]
    if not found.rule:
        return f"nothing to bisect: {found.trouble}"
    if found.trouble:
        return f"between {before} and {after}, no closer: {found.trouble}"
    # The ends were looked at longest, and each subject is like one of them.
    worse = found.shares[max(found.like)].rate > found.shares[min(found.like)].rate
    word = "begins to fail" if worse else "stops failing"
    return f"{found.rule} {word} between {before} and {after}"


def to_json(found: Bisection, scenario_id: str, subjects: Sequence[Subject]) -> str:
    """The same as one JSON object; ``before`` and ``after`` are places in ``subjects``."""
    shown = []
    for place, subject in enumerate(subjects):
        seen = found.seen.get(place)
        shown.append(
            {
                "subject": subject.spec,
                "version": subject.version,
                "like": str(found.like[place]) if place in found.like else None,
                "recordings": seen.tried if seen is not None else 0,
                "counted": seen.n if seen is not None else 0,
                "failures": dict(seen.failures) if seen is not None else {},
            }
        )
    value = {
        "id": scenario_id,
        "rule": found.rule,
        "before": found.before,
        "after": found.after,
        "trouble": found.trouble,
        "subjects": shown,
    }
    return json.dumps(value, indent=1) + "\n"
