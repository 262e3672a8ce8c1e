"""The page: self-contained, urgent things first, every link lands, nothing foreign runs."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser

from sample import CONTRACT, HOSTILE, NEW, OLD, RUN, TIMELINES

from harness.model.verdict import Held, Interval, Result, Status
from harness.reporters import html
from harness.reporters.cases import interval_bar, unique_anchors
from harness.reporters.matrix import clause_status, contract_matrix

PAGE = html.render(RUN, TIMELINES)


class Page(HTMLParser):
    """Collects what the assertions ask for: tags with attributes, ids, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


PARSED = Page(PAGE)


def test_the_page_asks_the_network_for_nothing() -> None:
    assert PARSED.all("src") == []
    assert [attrs for tag, attrs in PARSED.tags if tag in ("link", "img", "iframe", "base")] == []
    assert "@import" not in PAGE
    assert "url(" not in PAGE


def test_only_our_own_script_and_style_may_run() -> None:
    policy = next(attrs["content"] for tag, attrs in PARSED.tags if "http-equiv" in attrs)
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        found = re.findall(f"<{element}>(.*?)</{element}>", PAGE, flags=re.DOTALL)
        assert len(found) == 1
        digest = base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert [name for _, attrs in PARSED.tags for name in attrs if name.startswith("on")] == []
    assert PARSED.all("style") == []


def test_hostile_text_is_only_text() -> None:
    assert [tag for tag, _ in PARSED.tags].count("script") == 1
    assert "<script>alert(1)</script> \\x1b[31mred" in PARSED.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", PAGE)
    PAGE.encode("utf-8")


def test_links_are_fragments_or_web_addresses() -> None:
    assert [href for href in PARSED.all("href") if not re.match(r"#|https?://", href)] == []
    assert "https://example.org/?a=1&b=2" in PARSED.all("href")


def test_ids_are_unique_and_every_fragment_lands() -> None:
    ids = PARSED.all("id")
    assert len(ids) == len(set(ids))
    assert {href[1:] for href in PARSED.all("href") if href.startswith("#")} <= set(ids)


def test_only_events_that_a_finding_links_to_have_an_id_and_each_is_in_one_place() -> None:
    linked = {href[1:] for href in PARSED.all("href") if re.fullmatch(r"#e\d+-\d+", href)}
    assert {found for found in PARSED.all("id") if re.search(r"e\d+(-\d+)?$", found)} == linked
    cited = {
        f"e{number}-{seq}"
        for number, result in enumerate(RUN.results)
        if (timeline := TIMELINES.get((result.id, result.subject)))
        for finding in result.findings
        for seq in finding.events
        if seq < len(timeline.events)
    }
    assert linked == cited


def test_what_needs_attention_is_in_the_order_of_urgency() -> None:
    cards = re.findall(r'<article class="card s-([a-z-]+)"', PAGE)
    assert cards == ["fail", "fail", "fail", "unexpected-pass", "error", "inconclusive"]


def test_every_case_is_there_without_javascript() -> None:
    cases = [a for t, a in PARSED.tags if t == "details" and a.get("class", "").startswith("case")]
    assert sorted(case["data-status"] for case in cases) == sorted(r.status for r in RUN.results)
    hidden = [(tag, attrs.get("id")) for tag, attrs in PARSED.tags if "hidden" in attrs]
    assert {found for found in hidden if found[0] != "button"} == {
        ("form", "filter"),
        ("p", "none"),
    }


def test_the_contract_shows_differences_first_and_links_to_the_case() -> None:
    clauses = [row.clause for row in contract_matrix(RUN).rows]
    assert clauses == [
        *("STATUS-2", "DWP-3", "SIG-1", "LOCK-4"),
        *("STATUS-1", "BLOCK-2", "NET-1", HOSTILE, "INFO-9"),
    ]
    anchor = "case-block-fd.monitor-killed-while-gate-held--image-debian-bookworm"
    assert f'<a class="cell s-known" href="#{anchor}">' in PAGE


def test_a_clause_whose_own_findings_held_is_upheld_by_a_failed_case() -> None:
    failed = RUN.results[2]
    assert failed.status is Status.FAIL
    assert {clause: clause_status(clause, failed) for clause in ("DWP-3", "BLOCK-2", "X")} == {
        "DWP-3": Status.FAIL,
        "BLOCK-2": Status.PASS,
        "X": Status.FAIL,
    }
    unsure = dataclasses.replace(failed.findings[2], held=Held.UNKNOWN)
    undecided = dataclasses.replace(failed, findings=(failed.findings[0], unsure))
    assert clause_status("BLOCK-2", undecided) is Status.INCONCLUSIVE


def test_a_skip_is_no_difference() -> None:
    row = next(row for row in contract_matrix(RUN).rows if row.clause == "NET-1")
    assert [cell.status for cell in row.cells] == [Status.PASS, Status.SKIP]
    assert not row.differs


def test_an_untested_clause_is_listed_as_such() -> None:
    assert "1 not tested in this run" in PAGE
    assert CONTRACT["INFO-9"]["sentence"] in PARSED.text


def test_a_calm_run_says_so_and_an_empty_one_does_not() -> None:
    calm = dataclasses.replace(RUN, results=RUN.results[:2])
    assert "Nothing needs attention" in html.render(calm, TIMELINES)
    alone = dataclasses.replace(RUN, subjects=RUN.subjects[:1], results=RUN.results[:1])
    assert "Nothing. Every verdict is as expected." in html.render(alone, TIMELINES)
    empty = html.render(dataclasses.replace(RUN, results=()), {})
    assert "Nothing ran." in empty
    assert 'class="headline calm"' not in empty


def test_an_incomplete_run_is_announced_and_never_calm() -> None:
    run = dataclasses.replace(RUN, results=RUN.results[:2], complete=False)
    page = html.render(run, TIMELINES)
    assert "This run is incomplete." in page
    assert 'class="headline calm"' not in page
    assert "This run is incomplete." not in PAGE
    asked_for = html.render(dataclasses.replace(run, cut_short=True), TIMELINES)
    assert "This run is incomplete." not in asked_for
    assert 'role="status">Stopped at the first unexpected result' in asked_for


def test_a_run_without_subjects_contract_or_timelines_has_a_page() -> None:
    run = dataclasses.replace(RUN, subjects=(), contract={}, hidden={})
    assert Page(html.render(run, {})).text


def test_anchors_are_stable_and_never_shared() -> None:
    results = [Result("a.b", "x y", Status.PASS), Result("a.b", "x/y", Status.PASS)]
    assert unique_anchors(results) == ["case-a.b--x-y", "case-a.b--x-y--2"]
    assert unique_anchors([Result("é\x00", "🦀", Status.FAIL)]) == ["case-"]


def test_an_interval_is_drawn_in_proportion() -> None:
    bar = str(interval_bar(Interval(94, 200, 0.4021, 0.5391)))
    assert 'd="M101.5 9H134.4"' in bar
    assert 'cx="117.8"' in bar
    assert 'aria-label="94/200 (47.0%, 95 % CI 40.2% to 53.9%)"' in bar


def test_an_interval_of_no_width_can_still_be_seen() -> None:
    assert 'd="M5.0 9H6.0"' in str(interval_bar(Interval(0, 0, 0.0, 0.0)))
    assert 'cx="245.0"' in str(interval_bar(Interval(3, 2, 1.0, 7.0)))


def test_rows_of_one_wake_up_are_joined_in_the_table() -> None:
    result = RUN.results[0]
    run = dataclasses.replace(RUN, results=(dataclasses.replace(result, findings=()),))
    page = html.render(run, TIMELINES)
    joined = re.findall(r'<tr class="j"><td>(\d+)', page)
    # Never the first of a wake-up, and never what the recorder did itself.
    assert joined == ["5", "7", "10", "11", "12", "13", "17"]


def test_subjects_of_results_that_the_run_does_not_know_get_a_column() -> None:
    stray = Result("a.b", "lost", Status.ERROR, clauses=("LOCK-4",), reason="no agent")
    run = dataclasses.replace(RUN, results=(*RUN.results, stray))
    assert contract_matrix(run).subjects == (NEW, OLD, "lost")
    assert Page(html.render(run, TIMELINES)).text.count("no agent") >= 2
