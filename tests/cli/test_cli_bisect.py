"""``harness bisect`` on real bwraps, some of which set a variable that the scenario forbids."""

from __future__ import annotations

import json
import signal

from cli_place import LONG, Place, living, passes, recorded, several, wait_until

SCENARIO = """\
id: bisected.variable
title: No variable of bwrap's own reaches the command
clauses: [T-1]
sandbox:
  command: {shell: "exit ${FLAG:-7}"}
expect:
  - exit: {of: monitor, code: 7}
"""
NEEDS = SCENARIO.replace("sandbox:", 'needs: {bwrap: "bwrap >= 99"}\nsandbox:', 1)


def subjects(place: Place, flags: str) -> list[str]:
    """``--subject`` for one bwrap a letter: ``x`` sets the variable."""
    found = []
    for number, flag in enumerate(flags):
        option = "--setenv FLAG 3 " if flag == "x" else ""
        program = place.program(
            f"bwrap-{number}",
            f'#!/bin/sh\n[ "$1" = --version ] && exec bwrap --version\nexec bwrap {option}"$@"\n',
        )
        found += ["--subject", program]
    return found


def test_the_flip_is_found_told_and_kept(place: Place) -> None:
    place.write("s.yaml", several(passes("a"), SCENARIO))
    ran = place.run("bisect", "bisected.variable", "s.yaml", *subjects(place, "...xx"))
    assert ran.code == 0
    last = ran.out.decode().splitlines()[-1]
    assert last.startswith("exit begins to fail between ")
    assert f"path:{place.path}/bwrap-2 " in last
    assert last.count(f"path:{place.path}/bwrap-3 ") == 1
    stored = json.loads((place.reports / "latest" / "results.json").read_text())
    assert stored["run"]["complete"] is True
    assert {each["status"] for each in stored["results"]} == {"pass", "fail"}
    assert (place.reports / "latest" / "report.html").is_file()
    assert place.run("judge", "latest").code == 1


def test_json_is_all_there_is_on_stdout(place: Place) -> None:
    place.write("s.yaml", SCENARIO)
    ran = place.run(
        "bisect", "bisected.variable", "s.yaml", "--format", "json", *subjects(place, "xx.")
    )
    assert (ran.code, ran.json["rule"], ran.json["before"], ran.json["after"]) == (0, "exit", 1, 2)


def test_ends_that_do_not_differ_are_exit_6(place: Place) -> None:
    place.write("s.yaml", SCENARIO)
    ran = place.run(
        "bisect", "bisected.variable", "s.yaml", "--max-repeats", "5", *subjects(place, "..")
    )
    assert ran.code == 6
    assert b"nothing to bisect" in ran.out


def test_what_cannot_be_bisected_is_refused_with_one_message(place: Place) -> None:
    place.write("s.yaml", SCENARIO)
    place.write("n.yaml", NEEDS)
    for arguments, code, words in (
        (["bisected.variable", "s.yaml", *subjects(place, ".")], 2, "at least two subjects"),
        (["bisected.variable", "s.yaml"], 2, "at least two subjects"),
        (["bisected.varable", "s.yaml", *subjects(place, "..")], 2, "bisected.variable"),
        (["bisected.variable", "n.yaml", *subjects(place, "..")], 4, "fewer than two"),
        (
            ["bisected.variable", "s.yaml", "--error-rate", "0.7", *subjects(place, "..")],
            2,
            "below 0.5",
        ),
        (
            ["bisected.variable", "s.yaml", "--subject", "host", "--subject", "path:/bin/true"],
            4,
            "/bin/true",
        ),
    ):
        ran = place.run("bisect", *arguments)
        assert (ran.code, ran.out) == (code, b""), ran.err
        assert words in ran.complaint


def test_an_interrupt_is_exit_130_and_keeps_what_was_recorded(place: Place) -> None:
    place.write("s.yaml", LONG.format(name="b"))
    started = place.start("bisect", "long.b", "s.yaml", *subjects(place, ".."))
    wait_until(lambda: recorded(place, '"marker-seen"'))
    started.process.send_signal(signal.SIGINT)
    ran = started.finish(10)
    assert (ran.code, ran.out) == (130, b"")
    assert "what was recorded is in reports/" in ran.complaint
    assert living() == []
    assert place.run("report", "latest").code == 7
