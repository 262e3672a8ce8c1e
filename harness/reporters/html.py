"""One self-contained page of a run: what needs attention, the contract, every case with its proof.

The page asks the network for nothing (its content security policy forbids it) and works without
JavaScript except for filtering.  This module decides what is shown and in which order; the look is
in ``report.html.j2``, ``report.css`` and ``report.js``.  Everything that the template prints goes
through ``words.visible`` and is then escaped, without the template asking for it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from importlib import resources

import jinja2
from markupsafe import Markup

from harness.model.timeline import Timeline
from harness.model.verdict import Deviation, RunRecord, Status
from harness.reporters.cases import CaseView, case_views
from harness.reporters.matrix import contract_matrix
from harness.reporters.words import (
    NEEDS_ATTENTION,
    STATUS_ORDER,
    area,
    by_urgency,
    counts_sentence,
    one_line,
    seconds,
    subject_order,
    visible,
    web_address,
)

#: Signs beside the word of a status: colour alone says nothing to many readers, or on paper.
SIGNS = {
    Status.FAIL: "✗",
    Status.UNEXPECTED_PASS: "!",
    Status.ERROR: "⚠",
    Status.INCONCLUSIVE: "?",
    Status.KNOWN: "≈",
    Status.SKIP: "→",
    Status.PASS: "✓",
}


def render(run: RunRecord, timelines: Mapping[tuple[str, str], Timeline]) -> str:
    """The page of a run, as text to be encoded in UTF-8."""
    css, script = part("report.css"), part("report.js")
    tags = sorted({tag for result in run.results for tag in result.tags})
    cases = case_views(run, timelines, tags)
    # By identity, not by key: nothing but good manners makes (id, subject) unique.
    anchors = {id(case.result): case.anchor for case in cases}
    return page_template("report.html.j2").render(
        run=run,
        cases=cases,
        areas=_areas(cases),
        urgent=_urgent(cases),
        known=_known(cases),
        skips=_skips(cases),
        matrix=contract_matrix(run),
        anchor_of=lambda result: anchors[id(result)],
        subjects=subject_order(run),
        tags=tags,
        counts=[(status, run.count(status)) for status in STATUS_ORDER if run.count(status)],
        headline=counts_sentence(run),
        signs=SIGNS,
        needs_attention=any(run.count(status) for status in NEEDS_ATTENTION),
        css=Markup(css),
        script=Markup(script),
        policy=f"default-src 'none'; style-src '{content_hash(css)}'; "
        f"script-src '{content_hash(script)}'; base-uri 'none'; form-action 'none'",
    )


def page_template(name: str) -> jinja2.Template:
    """A page of this package, which prints nothing that acts."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({"page": part(name)}),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"line": one_line, "seconds": seconds, "href": web_address}
    return environment.get_template("page")


def part(name: str) -> str:
    """A file of this package, as text: a template, style or script."""
    return resources.files("harness.reporters").joinpath(name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """How a content security policy names a style or script that it allows."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def printable(value: object) -> object:
    """What the template prints of any value: nothing that acts, and nothing for None."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(value)


def _urgent(cases: Iterable[CaseView]) -> list[CaseView]:
    chosen = {id(case.result): case for case in cases if case.result.status in NEEDS_ATTENTION}
    return [chosen[id(result)] for result in by_urgency(case.result for case in chosen.values())]


def _areas(cases: Iterable[CaseView]) -> list[tuple[str, list[CaseView]]]:
    grouped: dict[str, list[CaseView]] = {}
    for case in cases:
        grouped.setdefault(area(case.result.id), []).append(case)
    return [
        (name, sorted(grouped[name], key=lambda case: (case.result.id, case.subject_index)))
        for name in sorted(grouped)
    ]


def _known(cases: Iterable[CaseView]) -> list[tuple[Deviation, list[CaseView]]]:
    grouped: dict[tuple[str, ...], tuple[Deviation, list[CaseView]]] = {}
    for case in cases:
        if case.result.status is Status.KNOWN:
            for one in case.result.deviations:
                key = (one.because, one.issue, one.when, one.fixed_in or "")
                grouped.setdefault(key, (one, []))[1].append(case)
    return list(grouped.values())


def _skips(cases: Iterable[CaseView]) -> list[tuple[str, str, list[CaseView]]]:
    grouped: dict[tuple[str, str], list[CaseView]] = {}
    for case in cases:
        if case.result.status is Status.SKIP:
            key = (case.message or "no reason given", case.result.remedy)
            grouped.setdefault(key, []).append(case)
    return [(reason, remedy, found) for (reason, remedy), found in grouped.items()]
