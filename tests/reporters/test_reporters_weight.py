"""The weight of the page: bytes and work in proportion to what is told, floods included."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping

import pytest
from sample import NEW, RUN, TIMELINES, provider_killed_mid_workload

from harness.model.timeline import Event, Kind, Timeline
from harness.model.verdict import Held, Result, RunRecord, Status
from harness.reporters import html, junit, tap, terminal
from harness.reporters.cases import ROWS_PER_CASE, ROWS_PER_PAGE, fitting_limit, row_limits


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ([], ROWS_PER_CASE),
        ([10**6], ROWS_PER_CASE),
        ([30] * 200, ROWS_PER_CASE),
        ([*[30] * 199, 10**5], ROWS_PER_CASE),
        ([400] * 200, 60),
        ([400] * 5000, 8),
    ],
)
def test_long_tables_are_cut_before_short_ones(sizes: list[int], limit: int) -> None:
    assert fitting_limit(sizes, ROWS_PER_PAGE, most=ROWS_PER_CASE, least=8) == limit
    assert row_limits([Result("a.b", NEW, Status.PASS)] * len(sizes), sizes) == [limit] * len(sizes)


def test_what_needs_attention_keeps_its_table_on_a_large_page() -> None:
    failed, passed = Result("a.b", NEW, Status.FAIL), Result("a.c", NEW, Status.PASS)
    limits = row_limits([*[passed] * 1000, failed, failed], [60] * 1002)
    assert limits == [11] * 1000 + [ROWS_PER_CASE] * 2
    # Also when all of them need it, the page has an end.
    assert row_limits([failed] * 1000, [60] * 1000) == [12] * 1000


def _long(count: int) -> Timeline:
    base = provider_killed_mid_workload().events
    said = Event(0, 0, 0, Kind.SUPERVISOR_SAID, "supervisor", {"name": "tick", "fields": {"n": 1}})
    more = [
        dataclasses.replace(said, seq=len(base) + n, wake=500 + n, t_ns=50_000_000 + n * 10_000)
        for n in range(count - len(base))
    ]
    return Timeline(base + more)


def _page_of(cases: int, events: int) -> tuple[RunRecord, str]:
    model = next(r for r in RUN.results if r.id == "network.provider-lost" and r.subject == NEW)
    results = tuple(
        dataclasses.replace(model, id=f"area{n % 9}.a-scenario-with-a-name-of-usual-length-{n}")
        for n in range(cases)
    )
    run = dataclasses.replace(RUN, results=results)
    timeline = _long(events)
    return run, html.render(run, {(r.id, r.subject): timeline for r in results})


def test_a_cut_table_says_how_much_is_missing_and_keeps_the_evidence() -> None:
    model = next(r for r in RUN.results if r.id == "network.provider-lost" and r.subject == NEW)
    finding = dataclasses.replace(model.findings[0], events=(9_000,))
    result = dataclasses.replace(model, findings=(finding,))
    page = html.render(
        dataclasses.replace(RUN, results=(result,)), {(result.id, NEW): _long(10_000)}
    )
    assert "10000 events, 400 shown" in page
    assert f'9600 more events are in the recording, <span class="mono">{result.timeline}<' in page
    assert 'id="cut"' in page
    assert 'id="e0-9000"' in page
    assert 'href="#e0-9000"' in page


def test_a_page_on_which_nothing_is_cut_does_not_say_so() -> None:
    page = html.render(RUN, TIMELINES)
    assert 'id="cut"' not in page
    assert "more events are in the recording" not in page


def test_a_cut_table_has_what_tells_most_and_every_cited_event() -> None:
    _, page = _page_of(1500, 60)
    table = page[page.index('<table class="events">') :]
    table = table[: table.index("</table>")]
    kinds = re.findall(r"<td>([a-z]+-[a-z]+)\n?<td>", table)
    assert len(kinds) == 8
    # How processes began, the trigger, and then what the findings cite, whatever that is.
    begun = ["process-started"] * 2 + ["process-identified", "process-started"]
    cited = ["connection-probed", "process-exited", "supervisor-said"]
    assert kinds == [*begun, "step-done", *cited]


def test_on_the_largest_page_every_link_of_a_finding_lands() -> None:
    run, _ = _page_of(1500, 60)
    cited = tuple(range(40, 58))
    first = run.results[0]
    finding = dataclasses.replace(first.findings[0], events=cited)
    run = dataclasses.replace(
        run, results=(dataclasses.replace(first, findings=(finding,)), *run.results[1:])
    )
    timeline = _long(60)
    page = html.render(run, {(result.id, result.subject): timeline for result in run.results})
    wanted = {f"e0-{seq}" for seq in cited}
    assert set(re.findall(r' href="#(e0-\d+)"', page)) == wanted
    assert set(re.findall(r' id="(e0-\d+)"', page)) == wanted


def test_rows_between_which_others_are_cut_are_not_joined() -> None:
    model = next(r for r in RUN.results if r.id == "network.provider-lost" and r.subject == NEW)
    finding = dataclasses.replace(model.findings[0], events=(450, 451))
    result = dataclasses.replace(model, findings=(finding,))
    # All of one wake-up, so that no order is known anywhere.
    events = [Event(n, 1_000, 1, Kind.PROCESS_EXITED, "monitor", {"pid": n}) for n in range(500)]
    page = html.render(
        dataclasses.replace(RUN, results=(result,)), {(result.id, NEW): Timeline(events)}
    )
    rows = re.findall(r'<tr(?: id="[^"]*")?(?: class="([^"]*)")?><td>(\d+)<td>', page)
    assert rows[-3:] == [("j", "397"), (" c", "450"), ("j c", "451")]


@pytest.mark.parametrize(
    ("cases", "events", "limit"),
    # The scenarios of the project have 32 events in the mean.  Measured: 11.4, 10.1 and 11.5 kB.
    [(280, 34, 12_500), (1700, 34, 11_000), (1700, 60, 12_500)],
)
def test_a_page_keeps_to_its_size_and_every_case_keeps_its_picture(
    cases: int, events: int, limit: int
) -> None:
    _, page = _page_of(cases, events)
    assert len(page.encode()) / cases < limit
    assert page.count("<figure>") == cases
    # All events are in the picture, or as many as there is room for: 40 of 60.
    assert page.count("<title>#") == cases * min(events, 40)
    assert page.count("more events are in the recording") == (cases if cases > 280 else 0)


def test_an_event_costs_less_than_three_hundred_bytes() -> None:
    few, many = (len(_page_of(100, events)[1].encode()) for events in (40, 100))
    # A row and a mark with its share of the axis: 262 bytes when this was measured.
    assert (many - few) / (100 * 60) < 300


def _flood(events: int) -> tuple[RunRecord, dict[tuple[str, str], Timeline]]:
    """A failed case of which three findings cite nearly every event."""
    model = next(r for r in RUN.results if r.id == "network.provider-lost" and r.subject == NEW)
    cited = tuple(range(10, events - 10))
    findings = tuple(
        dataclasses.replace(model.findings[0], rule=rule, held=Held.NO, events=cited)
        for rule in ("objects", "order", "field")
    )
    result = dataclasses.replace(model, status=Status.FAIL, findings=findings)
    return dataclasses.replace(RUN, results=(result,)), {(model.id, NEW): _long(events)}


def test_a_flood_that_is_cited_as_a_whole_does_not_flood_the_page() -> None:
    page = html.render(*_flood(10_000))
    bare = html.render(dataclasses.replace(RUN, results=()), {})
    assert len(page.encode()) - len(bare.encode()) < 100_000
    assert "and 9960 more" in page
    linked = set(re.findall(r' href="#(e[^"]+)"', page))
    assert len(linked) == 20
    assert linked == set(re.findall(r' id="(e[^"]+)"', page))


def _calls(work: Callable[[], object]) -> int:
    """How many Python functions and generators are entered: time without its noise."""
    count = 0

    def saw(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(saw)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _told_in_the_terminal(run: RunRecord, timelines: Mapping[tuple[str, str], Timeline]) -> str:
    (result,) = run.results
    return terminal.failure_block(result, timelines[result.id, result.subject], terminal.Style())


@pytest.mark.parametrize("reporter", [html.render, _told_in_the_terminal, junit.render, tap.render])
def test_four_times_the_events_are_at_most_six_times_the_work(
    reporter: Callable[[RunRecord, Mapping[tuple[str, str], Timeline]], object],
) -> None:
    few, many = (_flood(events) for events in (1_000, 4_000))
    assert _calls(lambda: reporter(*many)) < 6 * _calls(lambda: reporter(*few))
