"""TAP, GitHub and JSON: what each format promises, with text that tries to break out of it."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from ruamel.yaml import YAML
from sample import HOSTILE, NEW, OLD, RUN, TIMELINES

from harness.model.verdict import Result, RunRecord, Status
from harness.reporters import github, jsonreport, tap


def _only(*results: Result) -> RunRecord:
    return dataclasses.replace(RUN, results=results)


# TAP


def test_tap_has_a_version_a_plan_and_a_point_for_each_result() -> None:
    lines = tap.render(RUN, {}).splitlines()
    assert lines[:2] == ["TAP version 14", "1..13"]
    numbers = [int(m[1]) for line in lines if (m := re.match(r"(?:not )?ok (\d+)", line))]
    assert numbers == list(range(1, 14))


def test_tap_says_which_points_stop_a_gate() -> None:
    points = [line for line in tap.render(RUN, {}).splitlines() if re.match(r"(not )?ok ", line)]
    gate = "block-fd.monitor-killed-while-gate-held"
    assert points[:12] == [
        f"ok 1 - json-status.order [{NEW}]",
        f"ok 2 - json-status.order [{OLD}]",
        f"not ok 3 - {gate} [{NEW}]",
        f"not ok 4 - {gate} [{OLD}] # TODO the death signal is set only after the gate opens "
        "(https://github.com/containers/bubblewrap/issues/753)",
        f"not ok 5 - die-with-parent.race [{NEW}]",
        f"ok 6 - die-with-parent.race [{OLD}]",
        f"not ok 7 - sigchld.ignored [{NEW}]",
        f"not ok 8 - sigchld.ignored [{OLD}]",
        f"ok 9 - network.provider-lost [{NEW}]",
        f"ok 10 - network.provider-lost [{OLD}] # SKIP slirp4netns is not in the image",
        f"ok 11 - lock-file.two-readers [{NEW}]",
        f"not ok 12 - lock-file.two-readers [{OLD}]",
    ]


def test_tap_escapes_what_would_be_a_directive() -> None:
    text = tap.render(_only(Result("a # SKIP \\ b", "s", Status.FAIL)), {})
    assert "not ok 1 - a \\# SKIP \\\\ b [s]\n" in text


def test_tap_diagnostics_are_yaml_with_the_same_text() -> None:
    text = tap.render(_only(RUN.results[2], RUN.results[12]), {})
    blocks = re.findall(r"^  ---\n(.*?)^  \.\.\.$", text, flags=re.DOTALL | re.MULTILINE)
    first, second = (YAML(typ="safe", pure=True).load(block) for block in blocks)
    assert first["findings"] == [
        {
            "rule": "survivors",
            "held": "no",
            "clause": "DWP-3",
            "sentence": RUN.contract["DWP-3"]["sentence"],
            "expected": "no process left at the settle point",
            "observed": "reaper (pid 4102) in state S, waiting for the gate",
            "events": [11, 19],
        }
    ]
    assert second["title"].startswith("<script>alert(1)</script> \\x1b[31mred\\x1b[0m \\x00")
    assert "🦀" in second["title"]


def test_tap_of_an_incomplete_run_bails_out() -> None:
    text = tap.render(dataclasses.replace(RUN, complete=False), {})
    assert text.endswith("Bail out! The run is incomplete: only 13 results recorded.\n")


# GitHub


def test_annotations_point_at_the_scenario() -> None:
    lines = github.annotations(_only(RUN.results[2], RUN.results[7], RUN.results[0])).splitlines()
    assert lines == [
        "::error file=scenarios/block-fd.yaml,line=39,title=fail%3A block-fd.monitor-killed-while-"
        "gate-held [bundled]::Killing bwrap while the gate is held leaves nothing with "
        "--die-with-parent%0Asurvivors: expected no process left at the settle point, observed "
        "reaper (pid 4102) in state S, waiting for the gate%0Aharness run scenarios/block-fd.yaml "
        "-k block-fd.monitor-killed-while-gate-held --subject bundled --seed 7",
        "::warning file=scenarios/sigchld.yaml,line=15,title=inconclusive%3A sigchld.ignored "
        "[image%3Adebian-bookworm]::bwrap exits although its supervisor ignores SIGCHLD%0Athe "
        "trigger is not in the recording: step 2 (signal) never happened%0Aharness run "
        f"scenarios/sigchld.yaml -k sigchld.ignored --subject {OLD} --seed 7",
    ]


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (9, 9), (10, 10), (200, 10)])
def test_a_tenth_annotation_counts_the_rest(count: int, shown: int) -> None:
    results = tuple(Result(f"a.{n}", NEW, Status.FAIL) for n in range(count))
    lines = github.annotations(_only(*results)).splitlines()
    assert len(lines) == shown
    if count > 9:
        assert lines[-1] == f"::error title=more::{count - 9} more like these; see the report"


def test_annotations_cannot_be_broken_out_of() -> None:
    result = Result("a,b:c%\r\nd", NEW, Status.FAIL, title=HOSTILE, file="x,y:z", line=3)
    text = github.annotations(_only(dataclasses.replace(result, message=HOSTILE)))
    assert text.count("\n") == 1
    properties, message = text.removeprefix("::error ").split("::", 1)
    assert properties == ("file=x%2Cy%3Az,line=3,title=fail%3A a%2Cb%3Ac%25\\nd [bundled]")
    assert "%250A::error::x" in message
    assert not re.search(r"%(?!25|0A|0D)", message)


def test_an_incomplete_run_is_an_error_even_when_all_passed() -> None:
    run = dataclasses.replace(_only(RUN.results[0]), complete=False)
    assert github.annotations(run) == ("::error title=incomplete run::the run was interrupted\n")
    asked_for = dataclasses.replace(run, cut_short=True)
    assert github.annotations(asked_for) == ""
    assert "> **Stopped at the first unexpected result" in github.step_summary(asked_for)


def test_the_summary_has_the_tables_that_a_reviewer_needs() -> None:
    text = github.step_summary(_only(*RUN.results[:12]))
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## bwrap supervision conformance",
        "### Subjects",
        "### Needs attention",
        "### Known deviations",
        "### Contract",
        "### Skipped",
    ]
    assert (
        "[https&#58;//github.com/containers/bubblewrap/issues/753]"
        "(https://github.com/containers/bubblewrap/issues/753)"
    ) in text


def test_no_markup_of_the_data_survives_in_the_summary() -> None:
    text = github.step_summary(RUN)
    assert "<script" not in text
    assert "@root" not in text
    assert "**b**" not in text
    assert "](javascript" not in text
    rows = [line for line in text.splitlines() if "alert" in line]
    assert {line.count("|") for line in rows} == {5}


def test_a_summary_that_is_too_long_is_cut_and_says_so() -> None:
    # Four bytes a character: the limit is of bytes, and the cut is between lines.
    results = tuple(Result(f"a.{n}", NEW, Status.FAIL, message="🦀" * 290) for n in range(2000))
    text = github.step_summary(_only(*results))
    assert len(text.encode()) <= github.SUMMARY_LIMIT
    assert text.endswith("The HTML report has everything.**\n")
    assert github.step_summary(RUN).count("Cut here") == 0


# JSON


def test_a_run_survives_the_way_to_json_and_back() -> None:
    assert jsonreport.parse(jsonreport.render(RUN, TIMELINES)) == RUN


def test_json_is_ascii_and_cuts_nothing() -> None:
    text = jsonreport.render(RUN)
    assert text.isascii()
    assert json.loads(text)["results"][12]["findings"][0]["observed"] == HOSTILE + "A" * 1_000_000


def test_json_has_the_members_that_other_programs_read() -> None:
    document = json.loads(jsonreport.render(RUN))
    assert list(document) == ["run", "subjects", "results"]
    result = document["results"][4]
    assert {name: result[name] for name in ("id", "subject", "status", "clauses", "tags")} == {
        "id": "die-with-parent.race",
        "subject": NEW,
        "status": "fail",
        "clauses": ["DWP-3"],
        "tags": ["die-with-parent", "race"],
    }
    assert result["findings"] == [
        {
            "rule": "survivors",
            "held": "no",
            "expected": "none",
            "observed": "command (pid 4103) sleeping",
            "clause": "DWP-3",
            "events": [14, 15],
            "repeat": 3,
            "aside": "",
        }
    ]
    assert result["rates"] == [
        {
            "rule": "survivors",
            "failures": {"hits": 94, "n": 200, "low": 0.4021, "high": 0.5391, "rate": 0.47},
            "allowed": "0 %",
        }
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "not a stored run"),
        ("{}", "no member 'run'"),
        ('{"run": {"format": 2}}', "format 2, expected 1"),
        ('{"run": {"format": 1}, "subjects": [], "results": []}', "missing"),
        ('{"run": {"format": 1}, "subjects": [1], "results": []}', "not a stored run"),
        ("{", "Expecting"),
    ],
)
def test_what_is_not_a_stored_run_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        jsonreport.parse(text)


def test_members_of_a_newer_writer_are_ignored() -> None:
    document = json.loads(jsonreport.render(RUN))
    document["run"]["new"] = document["results"][0]["new"] = document["subjects"][0]["new"] = 1
    assert jsonreport.parse(json.dumps(document)) == RUN
