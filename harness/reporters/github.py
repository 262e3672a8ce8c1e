"""GitHub Actions: annotations on the changed files, and the summary of a step.

GitHub shows ten annotations of a kind for a step and silently drops the rest, and it refuses a
summary over 1 MiB as a whole; so both are cut here, and say so.
"""

# No "from __future__ import annotations" here: it would be shadowed by the function of that name.

import re
from collections.abc import Iterable

from harness.model.verdict import Result, RunRecord, Status
from harness.reporters.matrix import contract_matrix
from harness.reporters.words import (
    NEEDS_ATTENTION,
    STATUS_ORDER,
    by_urgency,
    counts_sentence,
    missing_sentence,
    one_line,
    seconds,
    seen_on,
    visible,
    web_address,
    why,
)

#: Annotations of a kind before the one that counts the rest.
ANNOTATIONS_PER_KIND = 9

#: Bytes of a step summary; GitHub's own limit is 1 MiB.
SUMMARY_LIMIT = 900_000

_KINDS = {
    Status.FAIL: "error",
    Status.UNEXPECTED_PASS: "error",
    Status.ERROR: "error",
    Status.INCONCLUSIVE: "warning",
}

_SIGNS = {
    Status.FAIL: "❌",
    Status.UNEXPECTED_PASS: "❗",
    Status.ERROR: "💥",
    Status.INCONCLUSIVE: "❔",
    Status.KNOWN: "🟣",
    Status.SKIP: "⏭️",
    Status.PASS: "✅",
}


def annotations(run: RunRecord) -> str:
    """Workflow commands, one a line; empty when nothing needs attention."""
    commands: dict[str, list[str]] = {"error": [], "warning": []}
    if run.is_interrupted:
        commands["error"].append("::error title=incomplete run::the run was interrupted")
    for result in by_urgency(run.results):
        if result.status in _KINDS:
            kind = _KINDS[result.status]
            commands[kind].append(_annotation(kind, result))
    lines: list[str] = []
    for kind, found in commands.items():
        lines += found[:ANNOTATIONS_PER_KIND]
        more = len(found) - ANNOTATIONS_PER_KIND
        if more > 0:
            lines.append(f"::{kind} title=more::{more} more like these; see the report")
    return "".join(line + "\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _annotation(kind: str, result: Result) -> str:
    properties = {"file": result.file, "line": str(result.line or "") if result.file else ""}
    properties["title"] = f"{result.status.value}: {result.id} [{result.subject}]"
    joined = ",".join(f"{name}={_property(text)}" for name, text in properties.items() if text)
    message = why(result)
    if result.title:
        message = f"{visible(result.title, limit=300)}\n{message}"
    if result.rerun:
        message += f"\n{one_line(result.rerun)}"
    return f"::{kind} {joined}::{_data(message)}"


# Everything that Markdown, GitHub's extensions (tables, mentions, math, autolinks) or HTML act on.
_MARKUP = re.compile(r"[\\`*_{}\[\]()#+!|~<>&@$\"':]")


def _cell(text: object, *, limit: int = 300) -> str:
    """Foreign text for a Markdown table cell: no markup survives."""
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", one_line(text, limit=limit))


def _link(address: str) -> str:
    safe = web_address(address)
    if safe is None:
        return _cell(address)
    target = safe.replace("(", "%28").replace(")", "%29").replace("[", "%5B").replace("]", "%5D")
    return f"[{_cell(address)}]({target})"


def step_summary(run: RunRecord) -> str:
    """The run as Markdown for ``$GITHUB_STEP_SUMMARY``, at most :data:`SUMMARY_LIMIT` bytes."""
    lines = ["## bwrap supervision conformance", ""]
    if not run.complete:
        lines += [f"> **{missing_sentence(run)}**", ""]
    lines += [f"**{counts_sentence(run)}** in {seconds(run.duration_s)}", ""]
    lines += _counts(run)
    lines += _attention(run)
    lines += _known(run)
    lines += _contract(run)
    lines += _skips(run)
    hidden = [f"{_cell(name)} {count}" for name, count in run.hidden.items() if count]
    if hidden:
        lines += [f"Hidden by filters: {', '.join(hidden)}", ""]
    return _within_limit(lines)


def _table(title: str, head: Iterable[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    names = list(head)
    lines = [f"### {title}", "", f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _counts(run: RunRecord) -> list[str]:
    used = [status for status in STATUS_ORDER if run.count(status)]
    rows = []
    for subject in run.subjects:
        found = [result.status for result in run.results if result.subject == subject.spec]
        counted = [str(found.count(status)) for status in used]
        rows.append([_cell(subject.spec), _cell(subject.version), *counted])
    head = ["subject", "bwrap", *(f"{_SIGNS[status]} {status.value}" for status in used)]
    return _table("Subjects", head, rows)


def _attention(run: RunRecord) -> list[str]:
    rows = [
        [
            f"{_SIGNS[result.status]} {result.status.value}",
            f"<code>{_cell(result.id)}</code>",
            _cell(result.subject),
            _cell(why(result)),
        ]
        for result in by_urgency(run.results)
        if result.status in NEEDS_ATTENTION
    ]
    return _table("Needs attention", ["status", "scenario", "subject", "what"], rows)


def _known(run: RunRecord) -> list[str]:
    specs: dict[tuple[str, str, str, str], list[str]] = {}
    for result in run.results:
        for deviation in result.deviations if result.status is Status.KNOWN else ():
            fixed_in = deviation.fixed_in or "not yet"
            key = (result.id, deviation.because, deviation.issue, fixed_in)
            specs.setdefault(key, []).append(result.subject)
    rows = [
        [
            f"<code>{_cell(name)}</code>",
            _cell(seen_on(run, found)),
            _cell(because),
            _link(issue),
            _cell(fixed_in),
        ]
        for (name, because, issue, fixed_in), found in specs.items()
    ]
    head = ["scenario", "seen on", "reason", "issue", "fixed in"]
    return _table("Known deviations", head, rows)


def _contract(run: RunRecord) -> list[str]:
    matrix = contract_matrix(run)
    rows = []
    for row in matrix.rows:
        if row.is_tested:
            words = (f"{_SIGNS[c.status]} {c.status.value}" if c.status else "—" for c in row.cells)
            rows.append([_cell(row.clause), _cell(row.sentence), *words])
    return _table("Contract", ["clause", "sentence", *map(_cell, matrix.subjects)], rows)


def _skips(run: RunRecord) -> list[str]:
    skipped = [result for result in run.results if result.status is Status.SKIP]
    reasons = dict.fromkeys((result.reason, result.remedy) for result in skipped)
    rows = []
    for reason, remedy in reasons:
        count = sum((result.reason, result.remedy) == (reason, remedy) for result in skipped)
        rows.append([str(count), _cell(reason), _cell(remedy)])
    return _table("Skipped", ["cases", "reason", "remedy"], rows)


def _within_limit(lines: list[str]) -> str:
    note = "\n**Cut here: the summary is too long for GitHub. The HTML report has everything.**\n"
    room = SUMMARY_LIMIT - len(note.encode())
    used = 0
    for count, line in enumerate(lines):
        used += len(line.encode()) + 1
        if used > room:
            return "\n".join(lines[:count]) + "\n" + note
    return "\n".join(lines) + "\n"
