"""One self-contained page of a run: what needs attention, where subjects differ or, with only one,
what it says of the contract, and every case with its proof.

The page asks the network for nothing (its content security policy forbids it) and works without
JavaScript except for filtering; a tooltip then has only the number and time of an event whose words
are in the table below.  This module decides what is shown and in which order; the look is
in ``report.html.j2``, ``report.css`` and ``report.js``.  Everything that the template prints goes
through ``words.visible`` and is then escaped, without the template asking for it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from harness.model.timeline import Timeline
from harness.model.verdict import Deviation, RunRecord, Status
from harness.reporters.cases import CaseView, case_views
from harness.reporters.matrix import (
    breadth,
    columns,
    contract_matrix,
    scenarios_by_difference,
    totals,
)
from harness.reporters.words import (
    NEEDS_ATTENTION,
    STATUS_ORDER,
    area,
    by_urgency,
    counts_sentence,
    missing_sentence,
    one_line,
    seconds,
    seen_on,
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

#: Cards of what needs attention before the rest is folded away, when a matrix has it all below.
_CARDS_OPEN = 4


@dataclass(frozen=True, slots=True)
class KnownRow:
    """Known deviations that were seen together, and where: each case once, with what it ran on."""

    deviations: tuple[Deviation, ...]
    seen: tuple[tuple[CaseView, str], ...]

    @property
    def reasons(self) -> list[tuple[str, list[str]]]:
        """The address of each issue, and what bwrap does there."""
        by_issue: dict[str, dict[str, None]] = {}
        for one in self.deviations:
            by_issue.setdefault(one.issue, {})[one.because] = None
        return [(issue, list(found)) for issue, found in by_issue.items()]

    @property
    def whens(self) -> list[str]:
        """What the deviations apply to, each once."""
        return list(dict.fromkeys(one.when for one in self.deviations))

    @property
    def fixed(self) -> list[str]:
        """The versions that mend them, each once; empty for one that none does."""
        return list(dict.fromkeys(one.fixed_in or "" for one in self.deviations))


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
        # With one subject the contract alone is the matrix: the cases are its scenarios.
        several=len(run.subjects) > 1,
        cards_open=_CARDS_OPEN,
        known=_known_by_scenario(run, cases) if len(run.subjects) > 1 else _known(cases),
        skips=_skips(cases),
        matrix=contract_matrix(run),
        scenarios=scenarios_by_difference(run),
        columns=columns(run),
        totals=totals(run),
        breadth=breadth(run),
        tables_are_cut=any(case.rows_hidden for case in cases),
        anchor_of=lambda result: anchors[id(result)],
        subjects=subject_order(run),
        tags=tags,
        counts=[(status, run.count(status)) for status in STATUS_ORDER if run.count(status)],
        headline=counts_sentence(run),
        missing=missing_sentence(run),
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


def _known(cases: Iterable[CaseView]) -> list[KnownRow]:
    """One row for each deviation, with every case that it was seen in."""
    grouped: dict[tuple[str, ...], tuple[Deviation, list[CaseView]]] = {}
    for case in cases:
        for one in _deviations([case]):
            grouped.setdefault(_same(one), (one, []))[1].append(case)
    return [
        KnownRow((one,), tuple((case, case.result.subject) for case in found))
        for one, found in grouped.values()
    ]


def _known_by_scenario(run: RunRecord, cases: Iterable[CaseView]) -> list[KnownRow]:
    """Every scenario once, with the subjects that it deviates on; those with the same deviations
    share a row."""
    by_id: dict[str, list[CaseView]] = {}
    for case in cases:
        if case.result.status is Status.KNOWN:
            by_id.setdefault(case.result.id, []).append(case)
    grouped: dict[tuple[tuple[str, ...], ...], list[list[CaseView]]] = {}
    for found in by_id.values():
        grouped.setdefault(tuple(map(_same, _deviations(found))), []).append(found)
    return [
        KnownRow(
            tuple(_deviations(together[0])),
            tuple((c[0], seen_on(run, (case.result.subject for case in c))) for c in together),
        )
        for together in grouped.values()
    ]


def _deviations(cases: Sequence[CaseView]) -> list[Deviation]:
    """The deviations of known cases, each once: two rules that deviate for one reason are one."""
    known = (case.result for case in cases if case.result.status is Status.KNOWN)
    return list({_same(one): one for result in known for one in result.deviations}.values())


def _same(one: Deviation) -> tuple[str, ...]:
    return (one.because, one.issue, one.when, one.fixed_in or "")


def _skips(cases: Iterable[CaseView]) -> list[tuple[str, str, list[CaseView]]]:
    grouped: dict[tuple[str, str], list[CaseView]] = {}
    for case in cases:
        if case.result.status is Status.SKIP:
            key = (case.message or "no reason given", case.result.remedy)
            grouped.setdefault(key, []).append(case)
    return [(reason, remedy, found) for (reason, remedy), found in grouped.items()]
