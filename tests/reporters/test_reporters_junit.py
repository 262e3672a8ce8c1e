"""JUnit XML: well-formed whatever is in it, counters that add up, bodies that stand alone."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from sample import NEW, OLD, RUN, TIMELINES

from harness.model.verdict import Result, Status
from harness.reporters import junit


def _root(run: object = RUN) -> ET.Element:
    return ET.fromstring(junit.render(run, TIMELINES).encode())  # type: ignore[arg-type]


def _case(name: str) -> ET.Element:
    return next(case for case in _root().iter("testcase") if case.get("name") == name)


def test_the_shape_is_the_one_that_jenkins_and_surefire_share() -> None:
    attributes = {
        "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
        "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}
        | {"hostname", "id"},
        "properties": set(),
        "property": {"name", "value"},
        "testcase": {"name", "classname", "time", "file", "line"},
        "failure": {"message", "type"},
        "error": {"message", "type"},
        "skipped": {"message", "type"},
        "system-out": set(),
    }
    children = {
        "testsuites": "(testsuite )+",
        "testsuite": "properties (testcase )+",
        "properties": "(property )+",
        "testcase": "((failure|error|skipped) )?(system-out )?",
    }
    for node in _root().iter():
        assert set(node.attrib) <= attributes[node.tag]
        below = "".join(f"{child.tag} " for child in node)
        assert re.fullmatch(children.get(node.tag, ""), below)
    assert junit.render(RUN, TIMELINES).startswith('<?xml version="1.0" encoding="UTF-8"?>\n')


def test_one_suite_for_each_subject_under_one_root() -> None:
    root = _root()
    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == [NEW, OLD]


def test_counters_are_those_of_the_elements() -> None:
    root = _root()
    totals: Counter[str] = Counter()
    for suite in root:
        found = {
            "tests": len(suite.findall("testcase")),
            "failures": len(suite.findall("testcase/failure")),
            "errors": len(suite.findall("testcase/error")),
            "skipped": len(suite.findall("testcase/skipped")),
        }
        assert {name: int(suite.get(name, "-1")) for name in found} == found
        totals.update(found)
    assert dict(totals) == {"tests": 13, "failures": 4, "errors": 2, "skipped": 2}
    assert {name: int(root.get(name, "-1")) for name in totals} == dict(totals)


def test_a_suite_says_where_and_on_what_it_ran() -> None:
    suite = _root()[1]
    properties = {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
    assert (suite.get("timestamp"), suite.get("hostname")) == ("2026-01-01T12:00:00", "builder-3")
    assert properties == {
        "run.id": "20260101-120000-7f3a",
        "seed": "7",
        "harness.version": "0.1.0",
        "command": RUN.command,
        "bwrap.version": "0.8.0",
        "bwrap.sha256": "91cd" * 16,
        "bwrap.path": "/usr/bin/bwrap",
        "kernel": "6.18.0-amd64",
        "image.digest": "sha256:" + "77" * 32,
        "uid": "1000",
    }


def test_dots_of_a_classname_only_separate() -> None:
    names = {case.get("classname") for case in _root().iter("testcase")}
    assert "bwrap.0_8_0.image_debian-bookworm.lock-file" in names
    assert all(name is not None and name.count(".") == 3 for name in names)


def test_names_are_unique_in_the_file() -> None:
    run = dataclasses.replace(RUN, results=RUN.results + RUN.results[:2])
    names = [case.get("name") for case in _root(run).iter("testcase")]
    assert len(set(names)) == len(names) == 15
    assert "hostile.text" in names


def test_every_case_has_at_most_one_outcome_of_the_right_kind() -> None:
    tags = {
        Status.PASS: [],
        Status.FAIL: ["failure"],
        Status.UNEXPECTED_PASS: ["failure"],
        Status.KNOWN: ["skipped"],
        Status.SKIP: ["skipped"],
        Status.INCONCLUSIVE: ["error"],
        Status.ERROR: ["error"],
    }
    expected = [
        (result.id, tags[result.status])
        for spec in (NEW, OLD)
        for result in RUN.results
        if result.subject == spec
    ]
    found = [
        ((case.get("name") or "").split(" [")[0], [c.tag for c in case if c.tag != "system-out"])
        for case in _root().iter("testcase")
    ]
    assert found == expected


def test_messages_are_one_line_and_bodies_stand_alone() -> None:
    failure = _case(f"block-fd.monitor-killed-while-gate-held [{NEW}]").find("failure")
    assert failure is not None
    assert failure.get("message") == (
        "survivors: expected no process left at the settle point, observed reaper (pid 4102) in "
        "state S, waiting for the gate"
    )
    assert (failure.text or "").strip().splitlines() == [
        "fail: block-fd.monitor-killed-while-gate-held on bundled (bwrap 0.11.0)",
        "Killing bwrap while the gate is held leaves nothing with --die-with-parent",
        "scenario: scenarios/block-fd.yaml:39",
        "",
        "survivors did not hold",
        "  clause DWP-3: Nothing of the sandbox outlives bwrap when --die-with-parent is given",
        "  expected: no process left at the settle point",
        "  observed: reaper (pid 4102) in state S, waiting for the gate",
        "  events: #11, #19",
        "",
        "events cited (ms, who, what)",
        "  #11 9.977 monitor SIGKILL sent to pid 4101",
        "  #19 511.133 observer census: reaper 4102 S",
        "",
        "rerun: harness run scenarios/block-fd.yaml -k block-fd.monitor-killed-while-gate-held "
        "--subject bundled --seed 7",
    ]


def test_a_known_deviation_is_skipped_with_reason_and_issue() -> None:
    skipped = _case(f"block-fd.monitor-killed-while-gate-held [{OLD}]").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == (
        "known deviation: the death signal is set only after the gate opens "
        "(https://github.com/containers/bubblewrap/issues/753)"
    )
    assert "applies to: bwrap < 0.9; fixed in: not yet" in (skipped.text or "")


def test_a_skip_names_what_is_missing_and_how_to_get_it() -> None:
    skipped = _case(f"network.provider-lost [{OLD}]").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "slirp4netns is not in the image"
    assert "remedy: apt-get install slirp4netns" in (skipped.text or "")


def test_rates_are_in_the_output() -> None:
    out = _case(f"die-with-parent.race [{OLD}]").findtext("system-out")
    assert out == (
        "rate of survivors: 0/200 (0.0%, 95 % CI 0.0% to 1.9%) failed, allowed at most 2 %"
    )


def test_file_line_and_time_are_always_there() -> None:
    case = _case(f"network.provider-lost [{OLD}]")
    assert (case.get("file"), case.get("line")) == ("scenarios/network.yaml", "21")
    assert all(re.fullmatch(r"\d+\.\d{6}", c.get("time", "")) for c in _root().iter("testcase"))


def test_hostile_text_is_readable_and_harmless() -> None:
    text = junit.render(RUN, TIMELINES)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", text)
    body = _case("hostile.text").findtext("failure") or ""
    assert "<script>alert(1)</script> \\x1b[31mred\\x1b[0m \\x00 \\x9b2J \\ud800 ]]> &" in body
    assert len(body) < 70_000


def test_an_incomplete_run_has_an_error_of_its_own() -> None:
    root = _root(dataclasses.replace(RUN, complete=False))
    assert [case.get("name") for case in root[-1].iter("testcase")] == ["run.complete"]
    assert (root.get("tests"), root.get("errors")) == ("14", "3")
    asked_for = _root(dataclasses.replace(RUN, complete=False, cut_short=True))
    assert (asked_for.get("tests"), asked_for.get("errors")) == ("13", "2")


def test_a_result_of_no_known_subject_is_not_lost() -> None:
    stray = Result("scenarios/bad.yaml", "", Status.ERROR, reason="the file could not be loaded")
    root = _root(dataclasses.replace(RUN, results=(*RUN.results, stray)))
    case = root[-1].find("testcase")
    assert case is not None
    assert case.get("classname") == "bwrap.unknown.none.scenarios_bad"


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASS])
def test_an_outcome_without_words_is_still_an_outcome(status: Status) -> None:
    # junit-xml leaves out a failure that has neither message nor output.
    run = dataclasses.replace(RUN, results=(Result("a.b", NEW, status),))
    case = next(_root(run).iter("testcase"))
    assert [child.get("message") for child in case] == [
        f"known deviation: {status.value}" if status is Status.KNOWN else status.value
    ]
