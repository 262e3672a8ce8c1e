"""Scenario files that are wrong: all problems at once, exit 3; the good ones still run."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from cli_place import Place, Ran, passes, several

MALFORMED = "id: a.b\ntitle: [never closed\n"
UNKNOWN_STEP = passes("unknown") + "steps:\n  - lanch: main\n    trigger: true\n"
IMPOSSIBLE = passes("never") + (
    "steps:\n  - wait: {exit: monitor}\n    within: 0s\n    trigger: true\n"
)
TOO_LONG = IMPOSSIBLE.replace("0s", "11min").replace("never", "later")


def write_all(place: Place) -> None:
    """One file of each kind, and two problems in one of them."""
    place.write("s/1-good.yaml", passes("good"))
    place.write("s/2-malformed.yaml", MALFORMED)
    place.write("s/3-step.yaml", UNKNOWN_STEP)
    place.write("s/4-deadline.yaml", several(IMPOSSIBLE, TOO_LONG))
    (place.path / "s/5-bytes.yaml").write_bytes(b"id: caf\xe9.x\n")
    place.write("s/6-last.yaml", passes("last"))


WORDS = {
    "2-malformed.yaml": "",
    "3-step.yaml": "did you mean launch",
    "4-deadline.yaml": "a deadline of 0 can never be met",
    "5-bytes.yaml": "UTF-8",
}


@pytest.mark.parametrize("command", ["validate", "list"])
def test_every_problem_of_every_file_is_told_at_once(place: Place, command: str) -> None:
    write_all(place)
    ran = place.run(command, "s")
    assert ran.code == 3
    said = ran.out.decode() if command == "validate" else ran.err
    for name, words in WORDS.items():
        assert f"s/{name}:" in said
        assert words in said
    assert said.count("s/4-deadline.yaml:") == 2
    assert "a deadline above 10min" in said
    assert "^\n" in said, "no caret"


@pytest.fixture(scope="module")
def mixed(shared_place: Place) -> Ran:
    """A run of good and bad files."""
    write_all(shared_place)
    return shared_place.run("run", "s", "--json", "-")


def test_a_bad_file_among_good_ones_is_exit_3_and_the_good_ones_run(
    shared_place: Place, mixed: Ran
) -> None:
    assert mixed.code == 3
    assert shared_place.results() == {
        "good.good": "pass",
        "good.last": "pass",
        **{f"unloadable.s/{name}": "error" for name in WORDS},
    }


def test_a_bad_file_is_a_case_of_its_own_in_junit_and_json(shared_place: Place, mixed: Ran) -> None:
    results = {each["file"]: each for each in mixed.json["results"]}
    suites = ET.parse(shared_place.reports / "latest" / "junit.xml")
    cases = {case.get("file"): case for case in suites.iter("testcase")}
    names = [case.get("name") for case in suites.iter("testcase")]
    assert len(names) == len(set(names)) == 6
    for name, words in WORDS.items():
        assert words in results[f"s/{name}"]["reason"]
        (error,) = cases[f"s/{name}"].iter("error")
        assert words in str(error.text)
        assert "\n" not in str(error.get("message"))


def test_a_path_that_does_not_exist_is_exit_3_and_named(place: Place) -> None:
    ran = place.run("run", "nope.yaml")
    assert ran.code == 3
    assert "nope.yaml:1:1: does not exist" in ran.err


def test_an_id_that_may_be_in_a_bad_file_is_told_with_that_files_problems(place: Place) -> None:
    place.write("s.yaml", MALFORMED)
    for command in (["run", "s.yaml::a.b"], ["explain", "a.b", "s.yaml"]):
        ran = place.run(*command)
        assert ran.code == 3
        assert "no scenario a.b" in ran.complaint
        assert "s.yaml:" in ran.err


def test_a_scenario_in_the_area_unloadable_is_no_file(place: Place) -> None:
    place.write(
        "s.yaml",
        passes("a").replace("good.a", "unloadable.a").replace('"exit 7"', '"sleep 20; exit 7"'),
    )
    assert place.run("run", "s.yaml", "--timeout", "0.3").code == 7


def test_a_file_name_that_is_no_utf_8_is_run_and_reported(place: Place) -> None:
    name = b"caf\xe9.yaml"
    (place.path / "x").mkdir()
    with open(bytes(place.path / "x") + b"/" + name, "w") as file:
        file.write(several(passes("a"), passes("b").replace("code: 7", "code: 8")))
    ran = place.run("run", "x", "--junit", "j.xml", "--tap", "t.tap", "--json", "-")
    assert ran.code == 1
    ET.parse(place.path / "j.xml")
    assert {each["id"] for each in ran.json["results"]} == {"good.a", "good.b"}
    again = place.run("judge", "latest")
    assert again.code == 1


def test_a_folder_without_scenarios_is_exit_3_not_a_green_run_of_nothing(place: Place) -> None:
    (place.path / "empty").mkdir()
    ran = place.run("run", "empty")
    assert ran.code in (3, 5)
    assert "empty" in ran.err


def test_a_scenario_that_cannot_fail_is_refused(place: Place) -> None:
    place.write("s.yaml", passes("a").partition("expect:")[0] + "expect: []\n")
    ran = place.run("validate", "s.yaml")
    assert (ran.code, b"expect" in ran.out) == (3, True)
