"""TAP version 14 (https://testanything.org/tap-version-14-specification.html).

TAP counts ``not ok … # TODO`` as fine and ``ok … # TODO`` as a bonus that changes nothing.  So a
known deviation is the former, and an unexpected pass is a plain ``not ok``: it must stop a gate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness.model.timeline import Timeline
from harness.model.verdict import Held, Result, RunRecord, Status
from harness.reporters.words import (
    clause_sentence,
    events_named,
    missing_sentence,
    one_line,
    visible,
    why,
)


def render(run: RunRecord, timelines: Mapping[tuple[str, str], Timeline]) -> str:
    """The run as TAP 14: one test point per result, in the order of the run."""
    del timelines  # the excerpt belongs to formats for people
    lines = ["TAP version 14", f"1..{len(run.results)}", f"# run {one_line(run.run_id)}"]
    for subject in run.subjects:
        lines.append(f"# subject {one_line(subject.spec)}: bwrap {one_line(subject.version)}")
    for number, result in enumerate(run.results, start=1):
        lines.append(_test_point(number, result))
        lines += _diagnostics(result, run)
    for name, count in run.hidden.items():
        lines.append(f"# hidden by {one_line(name)}: {count}")
    if not run.complete:
        lines.append(f"Bail out! {missing_sentence(run)}")
    return "\n".join(lines) + "\n"


def _test_point(number: int, result: Result) -> str:
    ok = "ok" if result.status in (Status.PASS, Status.SKIP) else "not ok"
    text = one_line(f"{result.id} [{result.subject}]")
    # Inside a description "#" would begin a directive; nothing after a directive is unescaped.
    description = text.replace("\\", "\\\\").replace("#", "\\#")
    directive = {Status.SKIP: f" # SKIP {why(result)}", Status.KNOWN: f" # TODO {why(result)}"}
    return f"{ok} {number} - {description}{directive.get(result.status, '')}".rstrip()


def _scalar(text: object) -> str:
    # A JSON string is a YAML double-quoted scalar as long as no surrogate pairs are written.
    return json.dumps(visible(text), ensure_ascii=False)


def _diagnostics(result: Result, run: RunRecord) -> list[str]:
    lines = ["---", f"status: {result.status.value}", f"duration_ms: {result.duration_s * 1e3:.3f}"]
    members = {
        "title": result.title,
        "message": why(result),
        "reason": result.reason,
        "remedy": result.remedy,
        "file": result.file,
        "rerun": result.rerun,
    }
    lines += [f"{name}: {_scalar(text)}" for name, text in members.items() if text]
    lines += [f"line: {result.line}"] if result.line else []
    broken = [finding for finding in result.findings if finding.held is not Held.YES]
    lines += ["findings:"] if broken else []
    for finding in broken:
        lines += [
            f"  - rule: {_scalar(finding.rule)}",
            f"    held: {_scalar(finding.held.value)}",
            f"    clause: {_scalar(finding.clause or '')}",
            f"    sentence: {_scalar(clause_sentence(run.contract, finding.clause))}",
            f"    expected: {_scalar(finding.expected)}",
            f"    observed: {_scalar(finding.seen)}",
            f"    events: {json.dumps(list(events_named(finding)))}",
        ]
    lines += ["rates:"] if result.rates else []
    for rate in result.rates:
        text = f"{rate.failures}, allowed {rate.allowed}"
        lines += [f"  - rule: {_scalar(rate.rule)}", f"    failures: {_scalar(text)}"]
    return ["  " + line for line in [*lines, "..."]]
