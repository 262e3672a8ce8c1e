"""JUnit XML, in the shape that Jenkins, GitLab, GitHub actions and Surefire readers share.

The elements are made by the junit-xml package; what it leaves out (``time`` of an instant case,
``skipped`` on the root) is set afterwards on the elements that it made.  It would delete the
characters that XML 1.0 forbids; ``words.visible`` has already shown them as escapes instead.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping

from junit_xml import TestCase, TestSuite

from harness.model.timeline import Timeline
from harness.model.verdict import Finding, Held, Result, RunRecord, Status, Subject
from harness.reporters.events import describe
from harness.reporters.words import (
    area,
    clause_sentence,
    events_sentence,
    milliseconds,
    one_line,
    plural,
    subject_of,
    subject_order,
    visible,
    why,
)

#: A failure shows this many of its events; the report for people has them all.
_EVENTS_SHOWN = 20


def render(run: RunRecord, timelines: Mapping[tuple[str, str], Timeline]) -> str:
    """The run as one JUnit XML document, with its XML declaration (UTF-8)."""
    root = ET.Element("testsuites", {"name": f"bwrap supervision {one_line(run.run_id)}"})
    names = _unique_names(run.results)
    for number, spec in enumerate(subject_order(run)):
        chosen = [i for i, result in enumerate(run.results) if result.subject == spec]
        subject = subject_of(run, spec)
        cases = [_case(run.results[i], names[i], subject, run, timelines) for i in chosen]
        suite = TestSuite(
            name=one_line(spec) or "no subject",
            test_cases=cases,
            id=str(number),
            hostname=one_line(run.hostname),
            timestamp=_timestamp(run.started_at),
            properties=_properties(run, subject),
        )
        element = suite.build_xml_doc()
        _complete(element, [run.results[i] for i in chosen])
        root.append(element)
    if run.is_interrupted:
        root.append(_incomplete(run))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{run.duration_s:.3f}")
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _timestamp(started_at: str) -> str:
    # The schema of Surefire and of Jenkins wants ISO 8601 without a zone; run records are in UTC.
    return re.sub(r"(\.\d+)?(Z|[+-]00:?00)$", "", one_line(started_at))


def _unique_names(results: Iterable[Result]) -> list[str]:
    """The name of each case: its id, with the subject where the id alone is not unique."""
    found = list(results)
    ids = [one_line(result.id) or "unnamed" for result in found]
    names = [
        f"{name} [{one_line(result.subject)}]" if ids.count(name) > 1 else name
        for name, result in zip(ids, found, strict=True)
    ]
    unique: list[str] = []
    taken: set[str] = set()
    for name in names:
        candidate, number = name, 2
        while candidate in taken:
            candidate, number = f"{name} ({number})", number + 1
        taken.add(candidate)
        unique.append(candidate)
    return unique


def _sanitised(text: str) -> str:
    # Jenkins reads every dot of a classname as a package separator.
    return re.sub(r"[^A-Za-z0-9_+-]", "_", text) or "none"


def _classname(result: Result, subject: Subject | None) -> str:
    version = subject.version if subject else "unknown"
    parts = ("bwrap", version, result.subject, area(result.id))
    return ".".join(_sanitised(part) for part in parts)


def _properties(run: RunRecord, subject: Subject | None) -> dict[str, str]:
    properties = {
        "run.id": run.run_id,
        "seed": str(run.seed),
        "harness.version": run.harness_version,
        "command": run.command,
    }
    if subject is not None:
        properties |= {
            "bwrap.version": subject.version,
            "bwrap.sha256": subject.sha256,
            "bwrap.path": subject.path,
            "kernel": subject.kernel,
            "image.digest": subject.image_digest,
            "uid": str(subject.uid),
        }
    return {name: one_line(value, limit=2000) for name, value in properties.items()}


def _case(
    result: Result,
    name: str,
    subject: Subject | None,
    run: RunRecord,
    timelines: Mapping[tuple[str, str], Timeline],
) -> TestCase:
    rates = "\n".join(_rates(result))
    case = TestCase(
        name,
        classname=_classname(result, subject),
        elapsed_sec=result.duration_s,
        file=one_line(result.file) or None,
        line=str(result.line) if result.line else None,
        stdout=rates or None,
    )
    message = why(result) or result.status.value
    body = _body(result, run, timelines.get((result.id, result.subject)))
    match result.status:
        case Status.PASS:
            pass
        case Status.FAIL | Status.UNEXPECTED_PASS:
            case.add_failure_info(message, body, result.status.value)
        case Status.KNOWN | Status.SKIP:
            prefix = "known deviation: " if result.status is Status.KNOWN else ""
            case.add_skipped_info(prefix + message, body)
        case Status.INCONCLUSIVE | Status.ERROR:
            case.add_error_info(message, body, result.status.value)
    return case


def _complete(suite: ET.Element, results: list[Result]) -> None:
    suite.set("time", f"{sum(result.duration_s for result in results):.3f}")
    suite.attrib.pop("disabled", None)  # not ours, and Surefire's schema does not have it
    for element, result in zip(suite.findall("testcase"), results, strict=True):
        element.set("time", f"{result.duration_s:.6f}")


def _incomplete(run: RunRecord) -> ET.Element:
    """A suite of its own: a run that was cut short must be seen, also by who only counts."""
    case = TestCase("run.complete", classname="bwrap.run")
    case.add_error_info("the run is incomplete", f"the command was: {one_line(run.command)}")
    suite = TestSuite("run", [case], timestamp=_timestamp(run.started_at), id="run")
    element: ET.Element = suite.build_xml_doc()
    _complete(element, [Result("run.complete", "run", Status.ERROR)])
    return element


def _rates(result: Result) -> list[str]:
    return [
        one_line(f"rate of {rate.rule}: {rate.failures} failed, allowed {rate.allowed}")
        for rate in result.rates
    ]


def _body(result: Result, run: RunRecord, timeline: Timeline | None) -> str:
    """What a reader needs who sees nothing but this text (GitLab shows mostly the body)."""
    subject = subject_of(run, result.subject)
    version = f" (bwrap {subject.version})" if subject else ""
    lines = [f"{result.status.value}: {one_line(result.id)} on {result.subject}{version}"]
    lines += [visible(result.title, limit=500)] if result.title else []
    lines += [f"scenario: {result.file}:{result.line}"] if result.file else []
    lines += [f"reason: {visible(result.reason)}"] if result.reason else []
    lines += [f"remedy: {visible(result.remedy)}"] if result.remedy else []
    for deviation in result.deviations:
        lines.append(f"known deviation: {deviation.because}")
        lines.append(f"  issue: {deviation.issue}")
        lines.append(f"  applies to: {deviation.when}; fixed in: {deviation.fixed_in or 'not yet'}")
        lines += [f"  entry: {deviation.file}:{deviation.line}"] if deviation.file else []
    broken = [finding for finding in result.findings if finding.held is not Held.YES]
    for finding in broken:
        lines += ["", *_finding(finding, run)]
    lines += _rates(result)
    lines += _cited(broken, timeline)
    lines += ["", f"rerun: {result.rerun}"] if result.rerun else []
    return "\n" + visible("\n".join(lines), limit=60_000) + "\n"


def _finding(finding: Finding, run: RunRecord) -> list[str]:
    word = "did not hold" if finding.held is Held.NO else "could not be decided"
    lines = [f"{one_line(finding.rule)} {word}"]
    if finding.clause:
        lines.append(f"  clause {finding.clause}: {clause_sentence(run.contract, finding.clause)}")
    return [
        *lines,
        f"  expected: {visible(finding.expected)}",
        f"  observed: {visible(finding.seen)}",
        f"  events: {events_sentence(finding)}",
    ]


def _cited(broken: list[Finding], timeline: Timeline | None) -> list[str]:
    seqs = {seq for finding in broken for seq in finding.events}
    events = [event for event in timeline.events if event.seq in seqs] if timeline else []
    if not events:
        return []
    lines = ["", "events cited (ms, who, what)"]
    for event in events[:_EVENTS_SHOWN]:
        said = one_line(describe(event), limit=200)
        lines.append(f"  #{event.seq} {milliseconds(event.t_ns)} {one_line(event.lane)} {said}")
    more = len(events) - _EVENTS_SHOWN
    return [*lines, f"  and {plural(more, 'more event')}"] if more > 0 else lines
