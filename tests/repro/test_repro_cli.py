"""``harness repro``: the script to stdout, everything else to stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from repro_place import SCENARIOS, Done, script_of

STEADY = "block-timeout.monitor-killed-while-held"


def harness(*arguments: str, cwd: Path = SCENARIOS.parent) -> Done:
    """Run the command."""
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "repro", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_script_goes_to_stdout_and_nothing_else_does() -> None:
    done = harness(STEADY)
    assert (done.code, done.err) == (0, "")
    body = done.out.partition("def attempt(")[2]
    assert body == script_of(STEADY).partition("def attempt(")[2]
    assert f"harness repro {STEADY}\n" in done.out


def test_scenarios_may_be_elsewhere(tmp_path: Path) -> None:
    done = harness(STEADY, str(SCENARIOS / "block-timeout.yaml"), cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("#!/usr/bin/env python3\n")


def test_the_subject_is_what_the_script_runs_by_itself() -> None:
    done = harness(STEADY, "--subject", "path:/opt/some/bwrap")
    assert done.code == 0
    assert 'else "/opt/some/bwrap"\n' in done.out


def test_a_container_is_no_subject_of_a_script() -> None:
    done = harness(STEADY, "--subject", "image:debian-12")
    assert (done.code, done.out) == (2, "")
    assert "inside" in done.err or "container" in done.err


def test_a_subject_of_no_known_form_is_refused() -> None:
    done = harness(STEADY, "--subject", "bwrap-next")
    assert (done.code, done.out) == (2, "")
    assert "unknown subject bwrap-next" in done.err


def test_a_typing_error_is_met_with_the_nearest_name() -> None:
    done = harness(STEADY[:-1])
    assert (done.code, done.out) == (2, "")
    assert STEADY in done.err


def test_what_no_script_can_say_is_refused_with_the_reason() -> None:
    done = harness("provider-loss.killed-mid-workload")
    assert (done.code, done.out) == (2, "")
    assert "provider-loss.killed-mid-workload: it is about the reference supervisor" in done.err
    assert "harness run -k provider-loss.killed-mid-workload" in done.err
