"""Streams that are closed, locales, colours, and what a terminal gets that a log does not."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from cli_place import FAILS, HARNESS, LONG, PATIENCE_S, Place, passes, several, side_by_side

#: Anything that moves a cursor, clears, or hides: CSI sequences other than SGR, and CR.
MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-LN-Zac-ln-z]|\r(?!\n)")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def shell(place: Place, text: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell pipeline with ``harness`` on it as $H; ``err`` is a file beside it."""
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=place.path,
        env=place.environment({"H": HARNESS, **env}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert b"Exception ignored" not in done.stderr, done.stderr.decode()
    return done


def on_terminal(place: Place, *arguments: str, env: Mapping[str, str | None]) -> bytes:
    """Run with a terminal for stderr; all that it got."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [HARNESS, *arguments],
            cwd=place.path,
            env=place.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    got = b""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:  # EIO: nobody has the terminal any more
                break
            if not data:
                break
            got += data
    finally:
        os.close(ours)
    process.wait(PATIENCE_S)
    return got


def many(place: Place) -> None:
    """So many scenarios that their listing is more than a pipe takes."""
    texts = [passes(f"n{n}").replace("The exit", "The long " * 200 + "exit") for n in range(60)]
    place.write("many.yaml", several(*texts))


def test_a_reader_that_has_seen_enough_ends_a_listing_quietly(place: Place) -> None:
    many(place)
    ran = shell(place, '"$H" list many.yaml | head -1; echo ${PIPESTATUS[0]}')
    first, code = ran.stdout.decode().splitlines()
    assert first.startswith("good.n0")
    assert (code, ran.stderr) == ("130", b"")


def test_a_reader_of_the_report_that_leaves_does_not_hide_a_failure(place: Place) -> None:
    place.write("s.yaml", FAILS)
    ran = shell(place, '"$H" run s.yaml --html - | true; echo ${PIPESTATUS[0]}')
    assert ran.stdout == b"4\n"
    assert b"FAIL  bad.status" in ran.stderr
    assert place.results() == {"bad.status": "fail"}


def test_a_reader_of_the_progress_that_leaves_does_not_stop_the_run(place: Place) -> None:
    place.write("s.yaml", several(FAILS, *map(passes, "abc")))
    ran = shell(place, '"$H" run s.yaml 2>&1 | head -1; echo ${PIPESTATUS[0]}')
    assert ran.stdout.endswith(b"\n1\n")
    assert len(place.results()) == 4


def test_a_full_device_for_stdout_is_exit_4_and_told(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = shell(place, '"$H" list s.yaml > /dev/full')
    assert ran.returncode == 4
    assert ran.stderr.count(b"harness: ") == 1
    assert b"No space left on device" in ran.stderr


#: Shell text that ends a run of a pass and a failure, by what is odd about it.
ODD = {
    "no stderr": '"$H" run s.yaml --json - --reports r0 2>&-',
    "no stream at all": '"$H" run s.yaml --json - --reports r1 <&- >&- 2>&-',
    "locale C, strictly": "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "
    '"$H" run s.yaml --json - --reports r2',
    "no such locale": 'LC_ALL=no_SUCH.locale "$H" run s.yaml --json - --reports r3',
}


@pytest.fixture(scope="module")
def odd(shared_place: Place) -> dict[str, subprocess.CompletedProcess[bytes]]:
    """Every run of the table."""
    text = FAILS.replace("The exit", "Der Ausgang ✓ — ö, the exit")
    (shared_place.path / "s.yaml").write_bytes(several(text, passes("a")).encode())
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda text: shell(shared_place, text), ODD.values())
        return dict(zip(ODD, found, strict=True))


@pytest.mark.parametrize("name", ODD)
def test_closed_streams_and_locales_change_neither_verdict_nor_json(
    shared_place: Place, odd: dict[str, subprocess.CompletedProcess[bytes]], name: str
) -> None:
    ran = odd[name]
    assert ran.returncode == 1, ran.stderr
    text = (shared_place.path / f"r{list(ODD).index(name)}/latest/results.json").read_text()
    results = json.loads(text)["results"]
    assert {each["id"]: each["status"] for each in results} == {
        "good.a": "pass",
        "bad.status": "fail",
    }
    assert "Der Ausgang ✓ — ö" in results[0]["title"]
    assert ran.stdout == (b"" if name == "no stream at all" else text.encode())


def test_words_for_people_are_ascii_where_the_locale_has_nothing_else(
    odd: dict[str, subprocess.CompletedProcess[bytes]],
) -> None:
    assert odd["locale C, strictly"].stderr.isascii()
    assert "—".encode() in odd["no such locale"].stderr


#: Options and environment, and whether a log is coloured then.
COLOURS: list[tuple[list[str], dict[str, str], bool]] = [
    ([], {}, False),
    ([], {"FORCE_COLOR": "1"}, True),
    (["--color", "always"], {"NO_COLOR": "1"}, True),
    (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
]


def test_colour_in_a_log_is_what_was_asked_for_and_never_moves_the_cursor(place: Place) -> None:
    place.write("s.yaml", FAILS)
    done = side_by_side(
        lambda o=options, e=env: place.run("run", "s.yaml", *o, env=e)  # type: ignore[misc]
        for options, env, _ in COLOURS
    )
    told = [each.err.encode("utf-8", "surrogateescape") for each in done]
    assert [bool(COLOUR.search(each)) for each in told] == [each for _, _, each in COLOURS]
    assert [MOVES.findall(each) for each in told] == [[]] * len(told)


def test_a_log_has_one_plain_line_a_case(place: Place) -> None:
    place.write("s.yaml", several(*map(passes, "abc")))
    lines = place.run("run", "s.yaml").err.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["PASS", f"good.{n}"] for n in "abc"]


SLOW = LONG.format(name="shown").replace("sleep 300", "sleep 1")


def test_a_terminal_gets_a_bar_with_the_running_scenario_and_the_time(place: Place) -> None:
    place.write("s.yaml", several(SLOW, passes("z")))
    got = on_terminal(place, "run", "s.yaml", env={"TERM": "xterm-256color", "COLUMNS": "100"})
    assert MOVES.search(got)
    plain = COLOUR.sub(b"", got)
    assert re.search(rb"long\.shown \[bundled\].*0/2.*0:00:0", plain)
    assert COLOUR.search(got)
    assert b"\x1b[?25h" in got, "the cursor stays hidden"


@pytest.mark.parametrize(
    ("options", "env"), [(["--color", "never"], {}), ([], {"NO_COLOR": "1"})], ids=["flag", "env"]
)
def test_a_terminal_without_colour_gets_none_also_from_the_bar(
    place: Place, options: list[str], env: dict[str, str]
) -> None:
    place.write("s.yaml", SLOW)
    got = on_terminal(place, "run", "s.yaml", *options, env={"TERM": "xterm-256color", **env})
    assert [each for each in COLOUR.findall(got) if each not in (b"\x1b[0m", b"\x1b[m")] == []
    assert b"long.shown" in got


def test_a_dumb_terminal_and_a_quiet_run_get_no_bar(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    for options, term in (([], "dumb"), (["-q"], "xterm-256color")):
        got = on_terminal(place, "run", "s.yaml", *options, env={"TERM": term})
        assert MOVES.findall(got) == []
