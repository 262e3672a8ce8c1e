"""The page of several subjects: what differs comes first, every cell lands on its case."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest
from sample import CONTRACT, NEW, OLD, RUN, TIMELINES

from harness.model.verdict import Result, RunRecord, Status
from harness.reporters import html
from harness.reporters.cases import unique_anchors
from harness.reporters.matrix import contract_matrix, scenario_rows

PAGE = html.render(RUN, TIMELINES)

#: The same run on one subject.
ALONE = dataclasses.replace(
    RUN,
    subjects=RUN.subjects[:1],
    results=tuple(result for result in RUN.results if result.subject == NEW),
)
PAGE_ALONE = html.render(ALONE, TIMELINES)


def _sections(page: str) -> list[str]:
    found = re.findall(r'<(?:h2|p class="empty quiet") id="([a-z-]+)"', page)
    return [name.replace('" id="', "") for name in found]


def test_the_matrix_of_several_subjects_comes_right_after_what_needs_attention() -> None:
    order = ["h-attention", "h-matrix", "h-known", "h-subjects", "h-skips", "cases"]
    assert _sections(PAGE) == order


def test_the_page_of_one_subject_has_the_contract_and_no_matrix_of_scenarios() -> None:
    run = dataclasses.replace(ALONE, results=(*ALONE.results, RUN.results[3], RUN.results[9]))
    order = ["h-attention", "h-known", "h-subjects", "h-contract", "h-skips", "cases"]
    assert _sections(html.render(run, TIMELINES)) == order
    assert "versus" not in " ".join(re.findall(r'class="([^"]*)"', PAGE_ALONE)).split()
    assert 'class="matrix"' in PAGE_ALONE


def test_many_cards_are_folded_where_a_matrix_has_them_all() -> None:
    attention, matrix = PAGE.index('id="h-attention"'), PAGE.index('id="h-matrix"')
    head, folded = PAGE[attention:matrix].split('<details class="fold">')
    assert (head.count("<article"), folded.count("<article")) == (4, 2)
    assert "And 2 more" in folded
    alone = PAGE_ALONE[PAGE_ALONE.index('id="h-attention"') : PAGE_ALONE.index('id="h-subjects"')]
    assert (alone.count("<article"), "<details" in alone) == (4, False)


def test_nothing_to_look_at_is_one_line_above_the_matrix() -> None:
    calm = dataclasses.replace(RUN, results=RUN.results[:2])
    page = html.render(calm, TIMELINES)
    assert _sections(page)[:2] == ["h-attention", "h-matrix"]
    assert "Nothing needs attention: every verdict is as expected." in page
    assert '<h2 id="h-attention"' not in page
    assert "No subject was judged differently from another." in page


class Tables(HTMLParser):
    """The tables that have subjects side by side: their heads, and each row's cells and links."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.heads: list[list[str]] = []
        self.rows: list[list[tuple[str, list[tuple[str, str, str]]]]] = []
        self._in: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "table" and "versus" in given.get("class", "").split():
            self._in = ["table"]
            self.heads.append([])
            self.rows.append([])
        elif self._in and tag == "th" and given.get("scope") == "col":
            self._in = ["head"]
            self.heads[-1].append("")
        elif self._in and tag == "th" and given.get("scope") == "row":
            self._in = ["row"]
            self.rows[-1].append(("", []))
        elif self._in and tag == "td" and self.rows[-1]:
            self._in = ["cell"]
            self.rows[-1][-1][1].append(("", "", ""))
        elif self._in == ["cell"] and tag == "a":
            status = given["class"].removeprefix("cell s-")
            self.rows[-1][-1][1][-1] = (given["href"], status, "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("table", "th", "td") and self._in:
            self._in = [] if tag == "table" else ["table"]

    def handle_data(self, data: str) -> None:
        if self._in == ["head"]:
            self.heads[-1][-1] = " ".join(f"{self.heads[-1][-1]} {data}".split())
        elif self._in == ["row"]:
            name, cells = self.rows[-1][-1]
            self.rows[-1][-1] = (name + data, cells)
        elif self._in == ["cell"] and self.rows[-1][-1][1]:
            href, status, text = self.rows[-1][-1][1][-1]
            self.rows[-1][-1][1][-1] = (href, status, text + data)


MATRICES = Tables(PAGE)
_ORDER = {result.id: None for result in RUN.results}


def _names(table: int) -> list[str]:
    """The clauses and scenarios of a table in their order."""
    known = [*contract_matrix(RUN).rows, *scenario_rows(RUN)]
    names = [getattr(row, "id", "") or getattr(row, "clause", "") for row in known]
    words = [name for name, _ in MATRICES.rows[table]]
    return [next((n for n in names if word.split()[0] == n), word) for word in words]


def test_the_head_of_a_column_is_a_subject_with_its_version() -> None:
    assert MATRICES.heads == [["bundled 0.11.0", "image: debian-bookworm 0.8.0"]] * 3


def test_rows_in_which_subjects_differ_come_first_and_the_rest_is_folded_away() -> None:
    assert _names(0) == [
        "All scenarios 7",
        *("STATUS-2", "DWP-3", "SIG-1", "LOCK-4"),
        "block-fd.monitor-killed-while-gate-held",
        *("die-with-parent.race", "sigchld.ignored", "lock-file.two-readers"),
    ]
    assert _names(1)[:3] == ["STATUS-1", "BLOCK-2", "NET-1"]
    assert _names(2) == ["hostile.text", "json-status.order", "network.provider-lost"]
    matrix = PAGE[PAGE.index('id="h-matrix"') : PAGE.index('id="h-known"')]
    shown, *folded = matrix.split('<details class="fold">')
    assert [part.count("<table") for part in (shown, *folded)] == [1, 1, 1]


def test_every_result_has_one_cell_and_its_link_lands_on_that_case() -> None:
    anchors = unique_anchors(RUN.results)
    wanted = {
        (result.id, result.subject): (f"#{anchor}", result.status.value)
        for result, anchor in zip(RUN.results, anchors, strict=True)
    }
    found = {}
    for table in (0, 2):
        for name, row in zip(_names(table), MATRICES.rows[table], strict=True):
            if name in _ORDER:
                for subject, (href, status, text) in zip((NEW, OLD), row[1], strict=True):
                    if href:
                        found[name, subject] = (href, status)
                        # Never by colour alone: a sign, and the word for who cannot see it.
                        assert text == f"{html.SIGNS[Status(status)]}{status}"
                    else:
                        assert text == "·"
    assert found == wanted


def test_every_cell_of_a_clause_lands_on_a_case_that_tests_it() -> None:
    by_anchor = dict(zip(unique_anchors(RUN.results), RUN.results, strict=True))
    cells = [
        (name, subject, href)
        for table in (0, 1)
        for name, row in zip(_names(table), MATRICES.rows[table], strict=True)
        for subject, (href, _, _) in zip((NEW, OLD), row[1], strict=True)
        if href and name in {*CONTRACT}
    ]
    assert len(cells) == 14
    for clause, subject, href in cells:
        assert by_anchor[href[1:]].subject == subject
        assert clause in by_anchor[href[1:]].clauses


def test_scenarios_that_differ_in_the_same_way_are_neighbours() -> None:
    ways = {"a.1": "pf", "a.2": "fp", "b.1": "pf", "b.2": "kp", "c.1": "fp", "c.2": "pp"}
    status = {"p": Status.PASS, "f": Status.FAIL, "k": Status.KNOWN}
    results = tuple(
        Result(name, subject, status[letter])
        for name, letters in ways.items()
        for subject, letter in zip((NEW, OLD), letters, strict=True)
    )
    rows = scenario_rows(dataclasses.replace(RUN, results=results))
    assert [row.id for row in rows] == ["a.2", "c.1", "a.1", "b.1", "b.2", "c.2"]
    assert [row.differs for row in rows] == [True] * 5 + [False]


@pytest.mark.parametrize("other", [Status.SKIP, None])
def test_a_skip_or_an_absence_is_no_difference_but_is_shown(other: Status | None) -> None:
    results = [Result("a.b", NEW, Status.PASS)] + [Result("a.b", OLD, other)] * (other is not None)
    run = dataclasses.replace(RUN, results=tuple(results))
    (row,) = scenario_rows(run)
    assert ([cell.status for cell in row.cells], row.differs) == ([Status.PASS, other], False)
    page = html.render(run, {})
    assert 'class="cell s-skip" href="#case-a.b--image-debian-bookworm"' in page or not other
    assert '<span class="none" title="no result">·</span>' in page or other


def test_a_matrix_of_many_subjects_scrolls_in_a_box_that_the_keyboard_reaches() -> None:
    def box(count: int) -> str:
        subjects = tuple(
            dataclasses.replace(RUN.subjects[0], spec=f"image:s{n}") for n in range(count)
        )
        results = tuple(Result("a.b", subject.spec, Status.PASS) for subject in subjects)
        page = html.render(dataclasses.replace(RUN, subjects=subjects, results=results), {})
        return re.findall(r'<div class="scroll [^>]*>', page)[0]

    assert box(6) == '<div class="scroll some">'
    assert box(7) == (
        '<div class="scroll many" tabindex="0" role="group"'
        ' aria-label="Scenarios without a difference">'
    )


def _known_section(run: RunRecord) -> str:
    page = html.render(run, {})
    return page[page.index('id="h-known"') : page.index('id="h-subjects"')]


def _deviating(run: RunRecord, *subjects: str) -> RunRecord:
    """One scenario in which two rules deviate for one reason and a third for another."""
    known = next(result for result in run.results if result.status is Status.KNOWN)
    one = known.deviations[0]
    deviations = (
        one,
        dataclasses.replace(one, rule="exit"),
        dataclasses.replace(one, rule="order", because="another reason"),
    )
    results = tuple(
        dataclasses.replace(known, subject=subject, deviations=deviations) for subject in subjects
    )
    return dataclasses.replace(run, results=results)


def test_known_deviations_name_each_scenario_once_with_all_that_it_was_seen_on() -> None:
    section = _known_section(_deviating(RUN, NEW, OLD))
    assert section.count("block-fd.monitor-killed-while-gate-held</a>") == 1
    assert section.count("the death signal is set only after the gate opens") == 1
    assert section.count("another reason") == 1
    assert section.count("issues/753</a>") == 1
    assert "all 2 subjects" in section


def test_a_deviation_that_some_subjects_have_names_their_versions() -> None:
    section = _known_section(_deviating(RUN, OLD))
    assert '<span class="subject">0.8.0</span>' in section
    assert " subjects<" not in section


def test_a_deviation_of_one_subject_is_named_once_for_each_reason() -> None:
    alone = dataclasses.replace(RUN, subjects=RUN.subjects[1:])
    section = _known_section(_deviating(alone, OLD))
    assert section.count("<tr>") == 1 + 2
    assert section.count("block-fd.monitor-killed-while-gate-held</a>") == 2
