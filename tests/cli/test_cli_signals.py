"""Runs that are cut short: by a signal, and by the death of the harness or of an agent."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli_place import (
    LONG,
    Place,
    Started,
    below,
    living,
    passes,
    recorded,
    several,
    sweep,
    wait_until,
)

#: tgkill(2) sends a signal to one thread; the C library has none for those of other processes.
TGKILL = {"x86_64": 234, "aarch64": 131}[os.uname().machine]


def in_the_middle(place: Place, *options: str) -> Started:
    """A run that has judged one scenario and is in the middle of the next."""
    place.write("s.yaml", several(passes("a"), LONG.format(name="b"), passes("c")))
    started = place.start("run", "s.yaml", *options)
    wait_until(lambda: recorded(place, '"marker-seen"'))
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_partial_report_and_exit_130(
    place: Place, number: signal.Signals
) -> None:
    started = in_the_middle(place, "--json", "-")
    started.process.send_signal(number)
    ran = started.finish(10)
    assert ran.code == 130
    assert "interrupted: 1 of 3 case(s) were judged" in ran.complaint
    assert {each["id"]: each["status"] for each in ran.json["results"]} == {"good.a": "pass"}
    assert ran.json["run"]["complete"] is False
    ET.parse(place.reports / "latest" / "junit.xml")
    assert living() == []


def test_a_signal_twice_quickly_is_no_worse_than_once(place: Place) -> None:
    started = in_the_middle(place)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        started.process.send_signal(number)
    ran = started.finish(10)
    assert (ran.code, place.results()) == (130, {"good.a": "pass"})
    assert living() == []


def test_a_signal_that_another_thread_takes_is_heard_as_well(place: Place) -> None:
    # Of two that come at once, a worker may take both from the queue that all threads share.
    started = in_the_middle(place)
    pid = started.process.pid
    workers = [int(task) for task in os.listdir(f"/proc/{pid}/task") if int(task) != pid]
    assert workers
    for worker in workers:
        assert ctypes.CDLL(None).syscall(TGKILL, pid, worker, signal.SIGTERM) == 0
    ran = started.finish(10)
    assert (ran.code, place.results()) == (130, {"good.a": "pass"})
    assert living() == []


def test_what_the_caller_has_ignored_stays_ignored(place: Place) -> None:
    # nohup(1) means it, and so does a shell that starts something in the background.
    place.write("s.yaml", several(passes("a"), LONG.format(name="b")))
    prelude = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"]
    started = place.start("run", "s.yaml", prelude=prelude)
    wait_until(lambda: recorded(place, '"marker-seen"'))
    status = Path(f"/proc/{started.process.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    assert [
        n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if ignored >> (n - 1) & 1
    ] == [
        *(signal.SIGHUP, signal.SIGINT),
    ]
    started.process.terminate()
    ran = started.finish(10)
    assert (ran.code, place.results()) == (130, {"good.a": "pass"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_reports_are_written_ends_that_at_once_and_loses_nothing(
    place: Place, number: signal.Signals
) -> None:
    place.write("s.yaml", passes("a"))
    os.mkfifo(place.path / "nobody-reads")  # opening it waits for a reader
    started = place.start("run", "s.yaml", "--json", "nobody-reads")
    wait_until(lambda: (place.reports / "latest" / "report.html").exists())
    started.process.send_signal(number)
    ran = started.finish(10)
    assert ran.code == 130
    assert "interrupted while reports were written" in ran.complaint
    assert f"harness report reports/{place.runs()[0]}" in ran.complaint
    assert place.run("report", "latest").code == 0
    assert living() == []


def test_an_interrupted_run_can_be_reported_and_judged_and_stays_incomplete(place: Place) -> None:
    started = in_the_middle(place)
    started.process.send_signal(signal.SIGTERM)
    started.finish(10)
    for command in ("report", "judge"):
        ran = place.run(command, "latest", "--json", "-")
        assert ran.code == 7
        found = {each["id"]: each["status"] for each in ran.json["results"]}
        assert found["good.a"] == "pass"
        assert found.get("long.b", "error") == "error"
        assert "incomplete" in ran.err


def test_a_killed_harness_leaves_nothing_and_what_it_recorded_can_be_reported(
    place: Place,
) -> None:
    started = in_the_middle(place)
    started.process.kill()
    assert started.finish(10).code == -signal.SIGKILL
    assert sweep() == []
    assert os.listdir(place.temporary) == []
    ran = place.run("report", "latest", "--json", "-", "--junit", "j.xml")
    assert ran.code == 7
    found = {each["id"]: each["status"] for each in ran.json["results"]}
    assert found == {"good.a": "pass", "long.b": "error"}
    assert 'name="run.complete"' in (place.path / "j.xml").read_text()


@pytest.mark.parametrize("part", ["watchdog", "recorder"])
def test_a_killed_agent_costs_its_own_case_and_the_run_goes_on(place: Place, part: str) -> None:
    started = in_the_middle(place, "--json", "-")
    (watchdog,) = [each for each in below(os.getpid()) if each.parent == started.process.pid]
    (recorder,) = [each for each in below(os.getpid()) if each.parent == watchdog.pid]
    os.kill(watchdog.pid if part == "watchdog" else recorder.pid, signal.SIGKILL)
    ran = started.finish(20)
    assert ran.code == 7, ran.err
    found = {each["id"]: each for each in ran.json["results"]}
    assert {name: each["status"] for name, each in found.items()} == {
        "good.a": "pass",
        "long.b": "error",
        "good.c": "pass",
    }
    assert "the agent has ended" in found["long.b"]["reason"]
    assert living() == []


def test_a_stopped_agent_is_ended_at_the_limit_and_the_run_goes_on(place: Place) -> None:
    started = in_the_middle(place, "--timeout", "2", "--json", "-")
    (watchdog,) = [each for each in below(os.getpid()) if each.parent == started.process.pid]
    (recorder,) = [each for each in below(os.getpid()) if each.parent == watchdog.pid]
    os.kill(recorder.pid, signal.SIGSTOP)
    ran = started.finish()
    assert ran.code == 7, ran.err
    found = {each["id"]: each["status"] for each in ran.json["results"]}
    assert found == {"good.a": "pass", "long.b": "error", "good.c": "pass"}


def test_a_signal_before_anything_ran_is_exit_130(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    spec = place.program("bwrap", f"#!/bin/sh\ntouch {place.path}/asked\nexec sleep 300\n")
    # Whoever it runs as must be able to say that it was asked.
    place.path.chmod(0o777)
    started = place.start("run", "s.yaml", "--subject", spec)
    wait_until((place.path / "asked").exists)
    started.process.send_signal(signal.SIGINT)
    ran = started.finish(10)
    assert (ran.code, place.runs()) == (130, [])
    assert "interrupted before anything ran" in ran.complaint
    assert living() == []


def test_repeats_that_were_recorded_before_a_signal_are_kept(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    started = place.start("run", "s.yaml", "--repeat", "100000")
    wait_until(lambda: recorded(place, '"repeat":3'))
    started.process.send_signal(signal.SIGINT)
    assert started.finish(10).code == 130
    ran = place.run("judge", "latest", "--json", "-")
    assert ran.code == 7
    (result,) = json.loads(ran.out)["results"]
    assert result["repeats"] >= 4
