"""A reports folder that is a file, read-only, full, or shared with another run."""

from __future__ import annotations

import os

import pytest
from cli_place import FAILS, Place, passes, several, side_by_side
from cli_preludes import with_mounts

#: Its recording does not fit into a disk of 1 MB.
TALKATIVE = """\
id: big.output
title: The command says more than the disk can take
clauses: [T-1]
sandbox:
  command: {shell: "seq 1 400000; seq 1 400000 >&2"}
expect:
  - exit: {of: monitor, code: 0}
"""

#: Needs an inode more than other scenarios do.
FILES = passes("files") + "files: {a: {}}\n"


def test_a_reports_path_that_is_a_file_is_exit_4_and_told_what_to_do(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", "--reports", "s.yaml")
    assert ran.code == 4
    assert "s.yaml" in ran.complaint
    assert "--reports" in ran.complaint


@pytest.mark.usefixtures("as_root")
def test_a_read_only_reports_folder_is_exit_4_and_told_what_to_do(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    place.reports.mkdir()
    prelude = with_mounts(
        'mount --bind "$A1" "$A1"; mount -o remount,ro,bind "$A1"', str(place.reports)
    )
    ran = place.run("run", "s.yaml", prelude=prelude)
    assert (ran.code, place.runs()) == (4, [])
    assert "Read-only file system" in ran.complaint
    assert "--reports" in ran.complaint


def small_disk(place: Place, size: str) -> list[str]:
    """A full disk for the reports: a tmpfs in a mount namespace of its own."""
    place.reports.mkdir(exist_ok=True)
    return with_mounts(f'mount -t tmpfs -o size={size} none "$A1"', str(place.reports))


@pytest.mark.usefixtures("as_root")
def test_a_disk_that_fills_up_ends_the_run_and_what_was_judged_is_told(place: Place) -> None:
    place.write("s.yaml", several(FAILS, TALKATIVE, passes("z")))
    ran = place.run("run", "s.yaml", prelude=small_disk(place, "1m"))
    assert ran.code == 7, ran.err
    assert "FAIL  bad.status" in ran.err
    assert "No space left on device" in ran.err
    assert "make room" in ran.err
    assert "incomplete" in ran.err


@pytest.mark.usefixtures("as_root")
def test_a_disk_that_is_full_from_the_start_is_exit_4_and_told_what_to_do(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", prelude=small_disk(place, "4k,nr_inodes=2"))
    assert ran.code == 4
    assert "No space left on device" in ran.complaint
    assert "make room" in ran.complaint


@pytest.mark.usefixtures("as_root")
def test_a_disk_without_inodes_is_told_wherever_in_a_run_they_end(place: Place) -> None:
    place.write("s.yaml", FAILS)
    place.reports.mkdir()
    done = side_by_side(
        lambda n=inodes: place.run("run", "s.yaml", prelude=small_disk(place, f"1m,nr_inodes={n}"))  # type: ignore[misc]
        for inodes in (5, 6, 7, 9)
    )
    for ran in done:
        assert ran.code in (4, 7), ran.err
        assert "No space left on device" in ran.err
        assert "make room" in ran.err


@pytest.mark.usefixtures("as_root")
def test_a_temporary_folder_that_fills_up_ends_the_run_and_what_was_judged_is_told(
    place: Place,
) -> None:
    place.write("s.yaml", several(FAILS, FILES))
    mount = 'mount -t tmpfs -o size=4k,nr_inodes=%d,mode=755 none "$A1"'
    done = side_by_side(
        lambda n=inodes: place.run(  # type: ignore[misc]
            "run", "s.yaml", prelude=with_mounts(mount % n, str(place.temporary))
        )
        for inodes in (3, 4)
    )
    for ran in done:
        assert ran.code == 7, ran.err
        assert "No space left on device" in ran.complaint
        assert "TMPDIR" in ran.complaint
    assert ["FAIL  bad.status" in ran.err for ran in done] == [False, True]


@pytest.mark.usefixtures("as_root")
def test_a_machine_without_any_temporary_folder_is_exit_4_and_told_what_to_do(
    place: Place,
) -> None:
    place.write("s.yaml", passes("a"))
    mounts = "; ".join(
        f"mount --bind {path} {path}; mount -o remount,ro,bind {path}"
        for path in ("/tmp", "/var/tmp")
    )
    for command in (["run", "s.yaml"], ["doctor"]):
        ran = place.run(*command, prelude=with_mounts(mounts))
        assert (ran.code, "TMPDIR" in ran.complaint) == (4, True)


def test_a_report_that_cannot_be_written_does_not_cost_the_others(place: Place) -> None:
    place.write("s.yaml", FAILS)
    ran = place.run(
        "run", "s.yaml", "--junit", "s.yaml/j.xml", "--tap", "t.tap", "--github",
        env={"GITHUB_STEP_SUMMARY": "s.yaml/summary.md"},
    )  # fmt: skip
    assert ran.code == 4
    assert (place.path / "t.tap").read_text().startswith("TAP version 14\n")
    assert ran.out.startswith(b"::error ")
    assert "FAIL  bad.status" in ran.err
    complaints = [line for line in ran.err.splitlines() if line.startswith("harness: ")]
    assert [("s.yaml" in line, "cannot write" in line) for line in complaints] == [(True, True)] * 2


def test_two_runs_at_once_in_one_folder_keep_everything_apart(place: Place) -> None:
    place.write("s.yaml", several(*map(passes, "abcd")))
    place.write("t.yaml", several(FAILS, *map(passes, "abcd")))
    both = side_by_side([lambda: place.run("run", "s.yaml"), lambda: place.run("run", "t.yaml")])
    assert [ran.code for ran in both] == [0, 1]
    assert sorted(len(place.results(run)) for run in place.runs()) == [4, 5]
    assert os.readlink(place.reports / "latest") in place.runs()


def test_a_folder_in_the_place_of_latest_is_left_alone(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    (place.reports / "latest").mkdir(parents=True)
    assert place.run("run", "s.yaml").code == 0
    left = {each.name for each in place.reports.iterdir()}
    assert left == {"latest", *place.runs()}
