"""The terminal's text: colours only when wanted, nothing that moves a cursor, nothing hidden."""

from __future__ import annotations

import dataclasses
import re

import pytest
from sample import CONTRACT, HOSTILE, NEW, OLD, RUN, TIMELINES

from harness.model.verdict import Result, RunRecord, Status
from harness.reporters.terminal import Style, case_line, failure_block, summary, wants_color

PLAIN = Style()
FAILED = next(r for r in RUN.results if r.id.startswith("block-fd") and r.subject == NEW)
RACE = next(r for r in RUN.results if r.id == "die-with-parent.race" and r.subject == NEW)
HOSTILE_CASE = next(r for r in RUN.results if r.id == "hostile.text")


@pytest.mark.parametrize(
    ("flag", "environ", "isatty", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": ""}, False, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_about_colour(
    flag: str, environ: dict[str, str], isatty: bool, expected: bool
) -> None:
    assert wants_color(flag, environ, isatty) is expected


def test_one_line_for_each_case() -> None:
    lines = [case_line(result, PLAIN) for result in RUN.results if result is not HOSTILE_CASE]
    assert lines == [
        "PASS  json-status.order [bundled] 16 ms",
        "PASS  json-status.order [image:debian-bookworm] 16 ms",
        "FAIL  block-fd.monitor-killed-while-gate-held [bundled] 516 ms  survivors: expected no "
        "process left at the settle point, observed reaper (pid 4102) in state S, waiting for the "
        "gate",
        "KNOWN block-fd.monitor-killed-while-gate-held [image:debian-bookworm] 516 ms  the death "
        "signal is set only after the gate opens "
        "(https://github.com/containers/bubblewrap/issues/753)",
        "FAIL  die-with-parent.race [bundled] 3 min 23 s  survivors: 94 of 200 repeats left the "
        "command running, allowed 0 %",
        "PASS  die-with-parent.race [image:debian-bookworm] 3 min 19 s",
        "UNEXPECTED PASS sigchld.ignored [bundled] 21 ms  the known deviation did not happen; "
        "change the entry at scenarios/sigchld.yaml:22",
        "INCONCLUSIVE sigchld.ignored [image:debian-bookworm] 5.00 s  the trigger is not in the "
        "recording: step 2 (signal) never happened",
        "PASS  network.provider-lost [bundled] 43 ms",
        "SKIP  network.provider-lost [image:debian-bookworm] 0 ms  slirp4netns is not in the image",
        "PASS  lock-file.two-readers [bundled] 3.20 s",
        "ERROR lock-file.two-readers [image:debian-bookworm] 900 ms  the recorder went away "
        "before it closed the recording",
    ]


@pytest.mark.parametrize("result", RUN.results)
def test_without_colour_there_is_no_escape_and_no_second_line(result: Result) -> None:
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", case_line(result, PLAIN))


def test_with_colour_only_sgr_sequences_are_printed() -> None:
    block = failure_block(HOSTILE_CASE, TIMELINES[("hostile.text", NEW)], Style(color=True))
    rest = re.sub(r"\x1b\[[0-9;]+m", "", block + summary(RUN, Style(color=True)))
    assert "\x1b" not in rest
    assert "\\x1b[31mred" in rest


def test_the_failure_block_says_everything_once() -> None:
    timeline = TIMELINES[(FAILED.id, NEW)]
    assert failure_block(FAILED, timeline, PLAIN, contract=CONTRACT).splitlines() == [
        "── FAIL  block-fd.monitor-killed-while-gate-held [bundled] " + "─" * 41,
        "   Killing bwrap while the gate is held leaves nothing with --die-with-parent",
        "   scenarios/block-fd.yaml:39",
        "",
        "   ✗ survivors",
        f"     clause    DWP-3: {CONTRACT['DWP-3']['sentence']}",
        "     expected  no process left at the settle point",
        "     observed  reaper (pid 4102) in state S, waiting for the gate",
        "     events    #11, #19",
        "",
        "   ✓ 2 other expectations held",
        "",
        "   timeline around the cited events, times in ms",
        "     #9         9.463  observer    step 1 (wait) done",
        "     #10        9.970  observer    step 2 (signal) started",
        "   ▸ #11        9.977  monitor     SIGKILL sent to pid 4101",
        "     #12        9.984  observer    step 2 (signal) done — the trigger",
        "     #13        9.991  observer    step 3 (settle) started",
        "        … 3 events …",
        "     #17      510.419  observer    step 3 (settle) done",
        "     #18      510.426  observer    step 4 (probe) started",
        "   ▸ #19      511.133  observer    census: reaper 4102 S",
        "     #20      511.140  observer    step 4 (probe) done",
        "     #21      514.147  supervisor  exited, pid 4100",
        "",
        "   rerun     harness run scenarios/block-fd.yaml -k "
        "block-fd.monitor-killed-while-gate-held --subject bundled --seed 7",
    ]


def test_the_failure_of_a_race_shows_its_rate_and_which_repeat() -> None:
    block = failure_block(RACE, TIMELINES[(RACE.id, NEW)], PLAIN)
    assert "survivors: 94/200 (47.0%, 95 % CI 40.2% to 53.9%) failed, allowed 0 %" in block
    assert "timeline around the cited events, repeat 4 of 200, times in ms" in block


def test_events_of_one_wake_up_are_joined_in_the_excerpt() -> None:
    finding = dataclasses.replace(FAILED.findings[0], events=(15,))
    result = dataclasses.replace(FAILED, findings=(finding,))
    block = failure_block(result, TIMELINES[(FAILED.id, NEW)], PLAIN)
    assert "     #14       10.898  monitor   exited, pid 4101\n   ▸ #15  =    10.905" in block


def test_a_failure_without_a_timeline_is_still_explained() -> None:
    block = failure_block(FAILED, None, PLAIN)
    assert "observed  reaper (pid 4102)" in block
    assert "timeline" not in block


def test_an_error_shows_its_reason_and_remedy() -> None:
    lost = next(r for r in RUN.results if r.status is Status.ERROR)
    block = failure_block(lost, None, PLAIN)
    assert "the recorder went away before it closed the recording" in block
    assert "   reason    container lost: exit status 137" in block
    assert "   remedy    look for the out-of-memory killer in the kernel log" in block


def test_no_line_of_a_block_is_a_workflow_command() -> None:
    finding = dataclasses.replace(FAILED.findings[0], observed="x\n::add-mask::*\n  ::error::y")
    result = dataclasses.replace(
        FAILED, findings=(finding,), title="t\n::error::z", reason="a\n::error::w"
    )
    block = failure_block(result, None, PLAIN)
    assert [line for line in block.splitlines() if line.strip().startswith("::")] == []


def test_ascii_is_ascii() -> None:
    style = Style(unicode=False)
    text = "".join(case_line(result, style) for result in RUN.results)
    text += failure_block(HOSTILE_CASE, TIMELINES[("hostile.text", NEW)], style)
    text += summary(RUN, style)
    assert text.isascii()


def test_the_summary_ends_with_what_matters_most() -> None:
    lines = summary(RUN, PLAIN, reports={"html": "reports/latest/report.html"}).splitlines()
    assert lines[-3:] == [
        "Hidden by --exclude-tag slow: 3 scenarios",
        "html  reports/latest/report.html",
        "3 failed, 1 passed unexpectedly, 1 in error, 1 inconclusive, 1 known, 1 skipped, 5 passed "
        "in 6 min 53 s — bundled 0.11.0, image:debian-bookworm 0.8.0",
    ]


def test_the_summary_lists_known_deviations_and_grouped_skips() -> None:
    text = summary(RUN, PLAIN)
    assert (
        "Known deviations\n"
        "  the death signal is set only after the gate opens (bwrap < 0.9)\n"
        "    https://github.com/containers/bubblewrap/issues/753\n"
        "    block-fd.monitor-killed-while-gate-held [0.8.0]\n"
    ) in text
    assert (
        "Skipped\n"
        "    1  slirp4netns is not in the image\n"
        "       remedy: apt-get install slirp4netns in containers/debian-bookworm, then rebuild\n"
    ) in text


def test_an_interrupted_run_says_so() -> None:
    text = summary(dataclasses.replace(RUN, complete=False), PLAIN)
    assert "The run is incomplete: only 13 results recorded." in text
    assert "incomplete" not in summary(RUN, PLAIN)


def test_a_run_that_was_to_stop_at_the_first_failure_says_that_instead() -> None:
    text = summary(dataclasses.replace(RUN, complete=False, cut_short=True), PLAIN)
    assert "Stopped at the first unexpected result, as --fail-fast asks: 13 results" in text
    assert "incomplete" not in text


def test_a_known_deviation_names_a_scenario_once_and_the_subjects_in_few_words() -> None:
    known = next(result for result in RUN.results if result.status is Status.KNOWN)
    everywhere = tuple(
        dataclasses.replace(known, subject=subject.spec, deviations=known.deviations * 2)
        for subject in RUN.subjects
    )
    text = summary(dataclasses.replace(RUN, results=everywhere), PLAIN)
    assert text.count(known.id) == 1
    assert f"{known.id} [all 2 subjects]" in text


def test_cases_in_error_for_one_reason_are_told_three_times_and_counted() -> None:
    lost = [Result(f"a.b{n}", OLD, Status.ERROR, message="the engine went away") for n in range(40)]
    other = [Result("a.other", OLD, Status.ERROR, message="no agent")]
    failed = [Result("a.fail", OLD, Status.FAIL, message="the engine went away")] * 5
    text = summary(dataclasses.replace(RUN, results=(*lost, *other, *failed)), PLAIN)
    assert [name for name in ("a.b0", "a.b2", "a.b3", "a.other") if f"{name} [" in text] == [
        *("a.b0", "a.b2", "a.other"),
    ]
    assert "… and 37 more in error for the same reason: the engine went away" in text
    assert text.count("a.fail [") == 5


def test_a_run_of_nothing_is_not_green() -> None:
    empty: RunRecord = dataclasses.replace(RUN, results=(), hidden={})
    assert summary(empty, Style(color=True)).startswith("\x1b[1;33mnothing ran")


def test_hostile_text_is_shown_where_it_belongs() -> None:
    assert HOSTILE not in case_line(HOSTILE_CASE, PLAIN)
    assert "<script>alert(1)</script> \\x1b[31mred" in case_line(HOSTILE_CASE, PLAIN)
