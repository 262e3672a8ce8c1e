"""A comparison in words, as JSON, as JUnit and as a page.  Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from markupsafe import Markup

from harness.model.change import Cause, Change, Comparison, Direction
from harness.model.verdict import Finding, Held, Result, RunRecord, Status, Subject
from harness.reporters import junit
from harness.reporters.html import content_hash, page_template, part
from harness.reporters.terminal import Style
from harness.reporters.words import one_line, plural, visible

#: What each direction is called, in the order in which it is told, with its colour (SGR).
WORDS = {
    Direction.REGRESSION: ("regression", "31"),
    Direction.LOST: ("verdict lost", "33"),
    Direction.IMPROVEMENT: ("improvement", "32"),
    Direction.NEUTRAL: ("other change", "36"),
}
_STATUS = {
    Direction.REGRESSION: Status.FAIL,
    Direction.LOST: Status.INCONCLUSIVE,
    Direction.IMPROVEMENT: Status.PASS,
    Direction.NEUTRAL: Status.PASS,
}


def headline(comparison: Comparison) -> str:
    """One sentence: how much was compared, and what came of it."""
    if comparison.refusal:
        return f"cannot be compared: {comparison.refusal}"
    counts = [
        plural(len(comparison.of(direction)), word)
        for direction, (word, _) in WORDS.items()
        if comparison.of(direction)
    ]
    found = ", ".join(counts) or "nothing changed"
    return f"{plural(comparison.compared, 'scenario')} compared: {found}"


def text(comparison: Comparison, style: Style) -> str:
    """The comparison for a terminal, ending in a newline."""
    lines = [f"before  {visible(comparison.before)}", f"after   {visible(comparison.after)}", ""]
    for cause in (Cause.ENVIRONMENT, Cause.SUITE, Cause.SUBJECT):
        changes = [change for change in comparison.changes if change.cause is cause]
        if changes:
            lines.append(style.paint(f"The {cause} changed", "1"))
            for change in changes:
                lines += _change_lines(change, style)
            lines.append("")
    lines.append(headline(comparison))
    return style.encode("\n".join(lines)) + "\n"


def _change_lines(change: Change, style: Style) -> list[str]:
    word, code = WORDS[change.direction]
    place = f"{change.scenario}: " if change.scenario else ""
    chance = f"  (p = {change.p_value:.2g})" if change.p_value is not None else ""
    return [
        f"  {style.paint(word, code)}  {visible(place)}{visible(change.what)}{chance}",
        f"      before  {one_line(change.before)}",
        f"      after   {one_line(change.after)}",
    ]


def to_json(comparison: Comparison) -> str:
    """The comparison as one JSON object."""
    whole = dataclasses.asdict(comparison)
    whole["headline"] = headline(comparison)
    return json.dumps(whole, indent=1) + "\n"


def to_junit(comparison: Comparison, run_id: str, later: Subject, hostname: str) -> str:
    """The comparison as JUnit: one case for each change; a regression is a failure.

    ``later`` is the subject of the later run, which goes into the properties.
    """
    subject = later.spec
    results = [_case(change, n, subject) for n, change in enumerate(comparison.changes)]
    if comparison.refusal:
        results = [_refused(comparison, subject)]
    elif not results:
        results = [Result("comparison.unchanged", subject, Status.PASS, "nothing changed")]
    compared = RunRecord(
        run_id=run_id,
        harness_version="",
        started_at="",
        hostname=hostname,
        command="harness compare",
        seed=0,
        duration_s=0.0,
        complete=True,
        subjects=(later,),
        results=tuple(results),
    )
    return junit.render(compared, {})


def _case(change: Change, number: int, subject: str) -> Result:
    finding = Finding(
        rule=change.what,
        held=Held.NO if change.direction is Direction.REGRESSION else Held.YES,
        expected=f"as before: {change.before}",
        observed=change.after,
    )
    return Result(
        id=f"{change.scenario or 'environment'} {change.what}",
        subject=subject,
        status=_STATUS[change.direction],
        title=f"{WORDS[change.direction][0]} {number}",
        findings=(finding,),
        message=f"{change.what}: {change.before} -> {change.after}",
        reason=f"{change.what}: {change.before} -> {change.after}",
    )


def _refused(comparison: Comparison, subject: str) -> Result:
    return Result(
        id="comparison.refused",
        subject=subject,
        status=Status.ERROR,
        message=comparison.refusal,
        reason=comparison.refusal,
    )


def page(comparison: Comparison) -> str:
    """The comparison as one self-contained page."""
    css = part("report.css")
    return page_template("comparison.html.j2").render(
        comparison=comparison,
        headline=headline(comparison),
        groups=_groups(comparison.changes),
        css=Markup(css),
        policy=f"default-src 'none'; style-src '{content_hash(css)}'; base-uri 'none'; "
        "form-action 'none'",
    )


def _groups(changes: Sequence[Change]) -> list[tuple[str, str, list[Change]]]:
    """(title, status for its colour, changes), what matters most first."""
    groups = []
    for direction, (word, _) in WORDS.items():
        found = [c for c in changes if c.direction is direction and c.cause is Cause.SUBJECT]
        if found:
            status = Status.KNOWN if direction is Direction.NEUTRAL else _STATUS[direction]
            groups.append((f"The subject changed: {word}", str(status), found))
    for cause in (Cause.SUITE, Cause.ENVIRONMENT):
        found = [c for c in changes if c.cause is cause]
        if found:
            groups.append((f"The {cause} changed", str(Status.SKIP), found))
    return groups
