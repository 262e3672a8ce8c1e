"""What a run ends with: exit codes one by one, reports, and what can be done with a stored run."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_place import FAILS, UNDECIDED, Place, Ran, passes, several, side_by_side

#: Skipped everywhere: the tool does not exist.
SKIPPED = """\
id: other.skipped
title: A scenario that needs a tool which nobody has
clauses: [T-1]
needs: {tools: [no-such-tool-anywhere]}
sandbox:
  command: {shell: "exit 7"}
expect:
  - exit: {of: monitor, code: 7}
"""

#: Fails as its known deviation says.
KNOWN = FAILS.replace("bad.status", "other.known").replace("[wrong]", "[plain]") + (
    "known:\n"
    '  - {rule: exit, when: "bwrap >= 0.1", because: "the expectation is wrong on purpose",\n'
    '     issue: "https://example.org/1", observed: "it exited 7"}\n'
)

#: Holds although its known deviation says that it fails.
UNEXPECTED = passes("unexpected") + KNOWN[KNOWN.index("known:") :]

BROKEN = "id: no.scenario\n"


def slow(name: str) -> str:
    """A scenario that takes longer than a limit of half a second."""
    return passes(name).replace('shell: "exit 7"', 'shell: "sleep 20; exit 7"') + (
        "steps:\n  - wait: {exit: monitor}\n    within: 30s\n    trigger: true\n"
    )


#: What is asserted, by its name: the scenarios, the options, and the exit code.
ENDS: dict[str, tuple[list[str], list[str], int]] = {
    "all as expected is 0": ([passes("a"), KNOWN], [], 0),
    "a failure is 1": ([passes("a"), FAILS], [], 1),
    "an unexpected pass is 1": ([passes("a"), UNEXPECTED], [], 1),
    "a missing verdict is 6": ([passes("a"), UNDECIDED], [], 6),
    "a skip beside a pass is 0": ([passes("a"), SKIPPED], [], 0),
    "nothing but skips is 5": ([SKIPPED], [], 5),
    "an empty selection that is allowed is 0": (
        [passes("a")],
        ["-k", "zebra", "--allow-empty"],
        0,
    ),
    "a lost recording is 7": ([passes("a"), slow("slow")], ["--timeout", "0.5"], 7),
    "a failure is worse than a missing verdict": ([FAILS, UNDECIDED], [], 1),
    "a lost recording is worse than a failure": (
        [FAILS, slow("slow"), UNDECIDED],
        ["--timeout", "0.5"],
        7,
    ),
    "an invalid file is worse than a failure": ([FAILS, BROKEN], [], 3),
    "a lost recording is worse than an invalid file": (
        [slow("slow"), BROKEN],
        ["--timeout", "0.5"],
        7,
    ),
    "a need that is not met where all must be met is 4": ([SKIPPED], ["--require-env"], 4),
    "an invalid file is worse than a missing subject": ([BROKEN], ["--subject=path:/nope"], 3),
    "a missing subject is 4": ([passes("a")], ["--subject=path:/nope"], 4),
}


@pytest.fixture(scope="module")
def ends(shared_place: Place) -> dict[str, Ran]:
    """Every run of the table, side by side."""
    for number, (texts, _, _) in enumerate(ENDS.values()):
        shared_place.write(f"{number}.yaml", several(*texts))
    jobs = [
        lambda n=number, o=options: shared_place.run("run", f"{n}.yaml", "--reports", f"r{n}", *o)
        for number, (_, options, _) in enumerate(ENDS.values())
    ]
    return dict(zip(ENDS, side_by_side(jobs), strict=True))


@pytest.mark.parametrize("name", ENDS)
def test_exit_code(ends: dict[str, Ran], name: str) -> None:
    assert ends[name].code == ENDS[name][2], ends[name].err


# --- one stored run, looked at from all sides ----------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A run with a pass, a failure, a known deviation and a skip, and where its reports are."""

    place: Place
    ran: Ran
    run: str

    def path(self, name: str) -> Path:
        return self.place.path / "out" / name


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    place = Place()
    place.write("s.yaml", several(passes("a"), passes("b", "other"), FAILS, KNOWN, SKIPPED))
    # The same scenarios, two of them with another expectation.
    place.write("t.yaml", several(passes("a").replace("code: 7", "code: 9"), FAILS))
    changed = place.path / "t.yaml"
    changed.write_text(changed.read_text().replace("code: 8", "code: 7"))
    outputs = [f"--{kind}=out/deep/{kind}.txt" for kind in ("junit", "html", "json", "tap")]
    ran = place.run(
        "run", "s.yaml", "--github", *outputs, env={"GITHUB_STEP_SUMMARY": "out/summary.md"}
    )
    yield Stored(place, ran, place.runs()[0])
    place.remove()


VERDICTS = {
    "good.a": "pass",
    "good.b": "pass",
    "bad.status": "fail",
    "other.known": "known",
    "other.skipped": "skip",
}


def test_a_run_keeps_its_verdicts_in_its_own_folder(stored: Stored) -> None:
    assert stored.ran.code == 1
    assert stored.place.results() == VERDICTS
    assert (stored.place.reports / "latest").resolve().name == stored.run


def test_every_report_is_written_where_it_was_asked_for(stored: Stored) -> None:
    suites = ET.fromstring(stored.path("deep/junit.txt").read_bytes())
    assert sorted(str(case.get("name")) for case in suites.iter("testcase")) == sorted(VERDICTS)
    assert stored.path("deep/html.txt").read_text().startswith("<!doctype html>")
    results = json.loads(stored.path("deep/json.txt").read_text())["results"]
    assert {each["id"]: each["status"] for each in results} == VERDICTS
    tap = stored.path("deep/tap.txt").read_text()
    assert tap.startswith("TAP version 14\n")
    assert tap.count("\nok ") + tap.count("\nnot ok ") == len(VERDICTS)


def test_github_gets_annotations_on_stdout_and_a_step_summary(stored: Stored) -> None:
    (line,) = stored.ran.out.decode().splitlines()
    assert line.startswith("::error file=s.yaml,line=")
    assert "bad.status" in line
    assert "bad.status" in stored.path("summary.md").read_text()


def test_a_terminal_report_names_the_skip_its_remedy_and_how_to_run_the_failure_again(
    stored: Stored,
) -> None:
    said = stored.ran.err
    assert "no-such-tool-anywhere is missing" in said
    assert "install no-such-tool-anywhere" in said
    assert "harness run s.yaml::bad.status --subject bundled --seed" in said


def test_later_commands_take_a_stored_run(stored: Stored) -> None:
    commands = {
        "judged": ("judge", stored.run, "--json", "-"),
        "changed": ("judge", "latest", "--scenarios", "t.yaml", "--json", "-"),
        "told": ("report", f"reports/{stored.run}", "--json", "-"),
        "tap": ("report", "latest", "--tap", "-"),
    }
    before = sorted(stored.place.reports.glob("*/timelines/*/*"))
    jobs = [lambda c=command: stored.place.run(*c) for command in commands.values()]
    # One after the other would do; the first two write the same folder, so the order is kept.
    done = dict(zip(commands, [jobs[2](), jobs[0](), *side_by_side(jobs[3:])], strict=False))
    told, judged, tap = done.values()
    changed = jobs[1]()
    for ran in (told, judged):
        assert ran.code == 1
        assert {each["id"]: each["status"] for each in ran.json["results"]} == VERDICTS
    assert tap.out.startswith(b"TAP version 14\n")
    # Other expectations, other verdicts; and nothing was recorded for them.
    assert {each["id"]: each["status"] for each in changed.json["results"]} == {
        **VERDICTS,
        "good.a": "fail",
        "bad.status": "pass",
    }
    assert stored.place.runs() == [stored.run]
    assert sorted(stored.place.reports.glob("*/timelines/*/*")) == before


# --- options of a run ----------------------------------------------------------------------------


def test_two_jobs_give_the_verdicts_of_one(place: Place) -> None:
    place.write("s.yaml", several(*map(passes, "abcdef"), FAILS, KNOWN, UNDECIDED, SKIPPED))
    ran = [place.run("run", "s.yaml", "-j", jobs, "--json", "-") for jobs in ("1", "2", "500")]
    assert [each.code for each in ran] == [1, 1, 1]
    one, two, many = ({r["id"]: r["status"] for r in each.json["results"]} for each in ran)
    assert one == two == many
    assert len(one) == 10


def test_fail_fast_ends_the_run_at_the_first_failure_and_tells_what_was_judged(
    place: Place,
) -> None:
    place.write("s.yaml", several(FAILS, *map(passes, "abcd")))
    ran = place.run("run", "s.yaml", "-x")
    assert ran.code == 1
    assert place.results() == {"bad.status": "fail"}
    assert "Stopped at the first unexpected result, as --fail-fast asks: 1 result" in ran.err
    # What was asked for is no accident, neither now nor when the run is looked at again.
    assert "run.complete" not in (place.reports / "latest" / "junit.xml").read_text()
    for verb in ("report", "judge"):
        again = place.run(verb, "latest")
        assert again.code == 1
        assert "Stopped at the first unexpected result" in again.err


def test_rerun_failed_runs_what_was_not_as_expected_and_says_what_it_hid(place: Place) -> None:
    place.write("s.yaml", several(passes("a"), FAILS, UNDECIDED, KNOWN))
    place.run("run", "s.yaml")
    again = place.run("run", "s.yaml", "--rerun-failed")
    assert place.results() == {"bad.status": "fail", "bad.undecided": "inconclusive"}
    assert "--rerun-failed hid 2 scenario(s)" in again.err


def test_repeat_records_every_scenario_so_often(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    (result,) = place.run("run", "s.yaml", "--repeat", "5", "--json", "-").json["results"]
    assert result["repeats"] == 5
    (recording,) = place.reports.glob("latest/timelines/bundled/good.a.jsonl")
    assert recording.read_text().count('"recording-closed"') == 5


def test_json_on_stdout_is_the_whole_run_and_nothing_else(place: Place) -> None:
    place.write("s.yaml", several(passes("a"), FAILS))
    ran = place.run("run", "s.yaml", "--json", "-", "-v")
    assert set(ran.json) == {"run", "subjects", "results"}
    members = {"id", "subject", "status", "tags", "clauses", "duration_s", "findings"}
    assert all(members <= set(result) for result in ran.json["results"])


def test_quiet_tells_only_what_was_not_as_expected(place: Place) -> None:
    place.write("s.yaml", several(passes("a"), FAILS))
    ran = place.run("run", "s.yaml", "-q")
    assert "PASS" not in ran.err
    assert "FAIL  bad.status" in ran.err


def test_two_subjects_whose_paths_read_alike_keep_recordings_of_their_own(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    real = json.loads(place.run("run", "s.yaml", "--json", "-").out)["subjects"][0]["path"]
    script = f'#!/bin/sh\nexec {real} "$@"\n'
    subjects = [place.program("x/bwrap", script), place.program("x-bwrap", script)]
    ran = place.run("run", "s.yaml", *(f"--subject={each}" for each in subjects))
    assert ran.code == 0
    assert len(list(place.reports.glob("latest/timelines/*/good.a.jsonl"))) == 2


TAMPERED = [
    ("run.json", "[]"),
    ("run.json", "{}"),
    ("run.json", '{"run_id": '),
    ("scenarios.json", '[{"scenario": {}}]'),
    ("scenarios.json", "7"),
    ("results.json", "[]"),
    ("timelines/bundled/good.a.jsonl", "nothing\nof the kind\n"),
    ("timelines/bundled/good.a.jsonl", '{"seq": 0}\n{"seq": 1}\n'),
]


def test_a_stored_run_that_was_tampered_with_is_exit_2_and_names_the_file(stored: Stored) -> None:
    place = stored.place
    for number, (name, text) in enumerate(TAMPERED):
        copy = place.path / f"copy{number}"
        shutil.copytree(place.reports / stored.run, copy)
        (copy / name).write_text(text)
    jobs = [lambda n=n: place.run("judge", f"copy{n}") for n in range(len(TAMPERED))]
    done = side_by_side(jobs)
    assert [ran.code for ran in done] == [2] * len(done)
    told = [name in ran.complaint for ran, (name, _) in zip(done, TAMPERED, strict=True)]
    assert told == [True] * len(done)
