"""The folder of a run: what is kept, how it is found again, and what cannot be written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.errors import ReportNotWritten, UsageError
from harness.model.timeline import FORMAT, Event, Kind
from harness.model.verdict import RunRecord
from harness.reporters import jsonreport
from harness.store import LATEST, RESULTS, RunFolder, record_of_run, subject_slug, write_output

LONE = "lone \udc80 surrogate"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "20260101T000000Z-1-0001")
    made.write_json("run.json", {"run_id": made.path.name})
    return made


def record(run_id: str) -> RunRecord:
    return RunRecord(
        run_id, "0.1", "2026-01-01T00:00:00+00:00", "here", "harness run", 1, 0.5, True, (), ()
    )


SPECS = [
    *("bundled", "host", "path:/a/b", "path:/a-b", "path:/a_b", "path:a/b", "image:a:b"),
    *("image:a-b", "..", ".", "", "-", "a" * 300, "a" * 301, "ü", "ö"),
]


def test_different_subjects_of_one_run_have_different_names() -> None:
    assert len({subject_slug(spec) for spec in SPECS}) == len(SPECS)


@pytest.mark.parametrize("spec", SPECS[:-4])
def test_the_name_of_a_subject_is_one_plain_part_of_a_path(spec: str) -> None:
    slug = subject_slug(spec)
    assert slug == os.path.basename(slug)
    assert slug not in ("", ".", "..")
    assert slug.isascii()
    assert len(slug) < 200


def test_a_plain_subject_keeps_its_name() -> None:
    assert subject_slug("bundled") == "bundled"


# --- finding a run ------------------------------------------------------------------------------


def test_a_run_is_found_by_its_path_its_id_and_as_the_latest(folder: RunFolder) -> None:
    reports = folder.path.parent
    folder.point_latest()
    for given in (folder.path, Path(folder.path.name), Path(LATEST), reports / LATEST):
        assert RunFolder.open(given, reports).path == folder.path


def test_no_run_is_an_error_that_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run at nowhere: expected a folder with run\.json"):
        RunFolder.open(Path("nowhere"), tmp_path)


def test_the_latest_run_is_the_last_one_that_said_so(folder: RunFolder) -> None:
    second = RunFolder.create(folder.path.parent, "second")
    second.write_json("run.json", {})
    folder.point_latest()
    second.point_latest()
    assert RunFolder.open(Path(LATEST), folder.path.parent).path == second.path
    assert sorted(os.listdir(folder.path.parent)) == [folder.path.name, LATEST, "second"]


def test_a_folder_called_latest_is_left_alone_and_nothing_is_left_beside_it(
    folder: RunFolder,
) -> None:
    (folder.path.parent / LATEST).mkdir()
    folder.point_latest()
    assert (folder.path.parent / LATEST).is_dir()
    assert sorted(os.listdir(folder.path.parent)) == [folder.path.name, LATEST]


def test_a_run_never_writes_into_the_folder_of_another(folder: RunFolder) -> None:
    with pytest.raises(ReportNotWritten, match="File exists"):
        RunFolder.create(folder.path.parent, folder.path.name)


# --- files --------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_and_leaves_no_draft(folder: RunFolder) -> None:
    folder.write_json("scenarios.json", {"a": [1, LONE]})
    folder.write_json("scenarios.json", {"b": LONE})
    assert folder.read_json("scenarios.json") == {"b": LONE}
    assert sorted(os.listdir(folder.path)) == ["run.json", "scenarios.json", "timelines"]


def test_text_that_no_encoding_has_is_written_as_an_escape(folder: RunFolder) -> None:
    path = folder.write("junit.xml", LONE)
    assert path.read_bytes() == b"lone \\udc80 surrogate"


@pytest.mark.parametrize("content", [None, "{", ""], ids=["missing", "torn", "empty"])
def test_a_file_that_cannot_be_read_is_named(folder: RunFolder, content: str | None) -> None:
    if content is not None:
        (folder.path / "x.json").write_text(content)
    with pytest.raises(UsageError, match=r"x\.json cannot be read"):
        folder.read_json("x.json")


def test_results_are_those_that_were_stored(folder: RunFolder) -> None:
    assert folder.results() is None
    folder.write(RESULTS, jsonreport.render(record("r")))
    assert folder.results() == record("r")


@pytest.mark.parametrize("content", ["{", "", "{}", "[]", '{"run": {"format": 99}}'])
def test_results_that_cannot_be_read_are_an_error_that_names_the_file(
    folder: RunFolder, content: str
) -> None:
    (folder.path / RESULTS).write_text(content)
    with pytest.raises(UsageError, match=r"results\.json cannot be read"):
        folder.results()


def test_what_run_json_says_and_a_record_has_goes_from_one_to_the_other() -> None:
    names = ["run_id", "harness_version", "started_at", "hostname", "command", "seed", "hidden"]
    meta = {name: name for name in [*names, "contract", "subjects", "more"]}
    assert record_of_run(meta) == {name: name for name in [*names, "contract"]}


# --- recordings ---------------------------------------------------------------------------------


def recording(repeat: int) -> list[str]:
    data = {"format": FORMAT, "repeat": repeat}
    closing = {"events": 1, "complete": True}
    return [
        Event(0, 0, 0, Kind.RECORDING_OPENED, "observer", data).to_line() + "\n",
        Event(1, 9, 1, Kind.RECORDING_CLOSED, "observer", closing).to_line() + "\n",
    ]


def test_recordings_are_kept_one_after_the_other_and_found_by_their_repeat(
    folder: RunFolder,
) -> None:
    name = folder.timeline_name("path:/a/b", "area.case")
    path = folder.timeline_path(name)
    assert path == folder.path / name
    for repeat in range(3):
        with path.open("a") as file:
            file.writelines(recording(repeat))
    assert [each.header["repeat"] for each in folder.timelines(name)] == [0, 1, 2]
    found = folder.timeline(name, 1)
    assert found is not None
    assert (found.header["repeat"], found.closed) == (1, True)
    assert folder.timeline(name, 3) is None


def test_what_was_recorded_before_the_recorder_was_killed_is_kept(folder: RunFolder) -> None:
    path = folder.timeline_path(folder.timeline_name("host", "area.case"))
    path.write_text("".join(recording(0)) + recording(1)[0] + recording(1)[1][:20])
    first, second = folder.timelines(folder.timeline_name("host", "area.case"))
    assert (first.closed, second.closed, len(second.events)) == (True, False, 1)


def test_without_a_file_there_are_no_recordings(folder: RunFolder) -> None:
    assert list(folder.timelines("timelines/host/area.case.jsonl")) == []
    assert folder.timeline("timelines/host/area.case.jsonl", 0) is None


def test_two_subjects_never_share_the_file_of_a_scenario(folder: RunFolder) -> None:
    names = {folder.timeline_name(spec, "area.case") for spec in SPECS}
    assert len(names) == len(SPECS)


# --- what cannot be written ---------------------------------------------------------------------


@pytest.fixture
def no_room(tmp_path: Path) -> Path:
    """A path below a file, where not even root can make a folder."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "reports"


def test_a_run_that_cannot_be_kept_says_where_and_what_to_try(no_room: Path) -> None:
    message = r"cannot write .*file.*: Not a directory; choose another folder with --reports"
    with pytest.raises(ReportNotWritten, match=message):
        RunFolder.create(no_room, "run")
    with pytest.raises(ReportNotWritten, match=message):
        RunFolder(no_room).write("run.json", "{}")
    with pytest.raises(ReportNotWritten, match=message):
        RunFolder(no_room).timeline_path("timelines/x/y.jsonl")
    with pytest.raises(ReportNotWritten, match=message):
        write_output(str(no_room / "junit.xml"), "")


def test_a_disk_that_is_full_is_said_so() -> None:
    with pytest.raises(ReportNotWritten, match="cannot write /dev/full: No space left on device"):
        write_output("/dev/full", "text")


def test_a_report_is_written_where_the_user_wants_it(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "junit.xml"
    write_output(str(target), LONE)
    write_output(str(target), "again")
    assert target.read_text() == "again"
    write_output(str(target), "more", append=True)
    assert target.read_text() == "againmore"


def test_stored_json_is_json_for_others_as_well(folder: RunFolder) -> None:
    path = folder.write_json("run.json", {"text": LONE})
    assert json.loads(path.read_bytes().decode("ascii")) == {"text": LONE}
