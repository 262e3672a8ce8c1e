"""How a script ends: what cannot be said, what is missing, and ^C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from repro_place import PATIENCE_S, by_id, run_script, script_of

from harness.agent import procfs

KNOWN = [each.scenario.id for each in by_id().values() if each.scenario.known]
STEADY = "block-timeout.monitor-killed-while-held"


def test_without_a_bwrap_nothing_is_said(tmp_path: Path) -> None:
    done = run_script(script_of(STEADY), tmp_path, "/nonexistent/bwrap")
    assert (done.code, done.err) == (2, "")
    assert "no program /nonexistent/bwrap" in done.out


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false", "/bin/cat", "/bin/echo"])
def test_of_what_is_no_bwrap_nothing_is_said(program: str, tmp_path: Path) -> None:
    def run(scenario_id: str) -> int:
        folder = tmp_path / scenario_id
        folder.mkdir()
        return run_script(script_of(scenario_id), folder, program).code

    with ThreadPoolExecutor(2) as pool:
        codes = dict(zip(KNOWN, pool.map(run, KNOWN), strict=True))
    assert codes == dict.fromkeys(KNOWN, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root directory")
def test_of_a_bwrap_that_may_make_no_user_namespace_nothing_is_said(
    one_bwrap: str, open_folder: Path
) -> None:
    script = open_folder / "no-namespaces.py"
    script.write_text(script_of(STEADY))
    root = open_folder / "root"
    root.mkdir()
    # user_namespaces(7): who was put into another root directory may make none.
    shell = 'mount --rbind / "$0" && exec chroot "$0" "$@"'
    command = [sys.executable, str(script), one_bwrap]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", shell, str(root), *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    root.rmdir()
    assert done.returncode == 2, done
    assert f"{one_bwrap} makes no sandbox for uid " in done.stdout


def test_what_a_scenario_needs_is_missed_by_name(one_bwrap: str, tmp_path: Path) -> None:
    done = run_script(script_of("provider-loss.too-early"), tmp_path, one_bwrap, PATH="/nowhere")
    assert done.code == 2
    assert "needs the program slirp4netns" in done.out


def test_an_older_bwrap_than_is_needed_is_named(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        said["needs"] = {"bwrap": "bwrap >= 99.1"}

    done = run_script(script_of(STEADY, change), tmp_path, one_bwrap)
    assert done.code == 2
    assert "needs bwrap >= 99.1" in done.out


def test_a_rule_that_does_not_apply_is_not_checked(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        for rule in said["expect"]:
            rule["when"] = "bwrap >= 0.1 and uid != 4711"
        said["expect"].append({"ran": "never", "when": "bwrap >= 99.1", "name": "later"})

    done = run_script(script_of("pid-1.init-reaps-orphans", change), tmp_path, one_bwrap)
    assert done.code == 0, done
    assert "later: " not in done.out.partition("bubblewrap")[2]


def test_a_stimulus_that_never_comes_shows_nothing(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        said["steps"][0] = {"wait": {"marker": "no-such-file"}, "within": "200ms"}

    done = run_script(script_of(STEADY, change), tmp_path, one_bwrap)
    assert done.code == 2
    assert "did not come about within 0.2 s: step 2, wait: marker no-such-file" in done.out


def test_an_exit_that_nobody_can_know_is_not_judged(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        # bwrap's init waits for its command, and tells nobody how that one ended.
        said["sandbox"]["command"] = {"shell": "read x"}
        said["sandbox"]["channels"] = {"input": {"option": "stdin"}}
        said["steps"] = [
            {"wait": {"process": "command", "state": "running-command"}},
            {"write": {"to": "input", "text": "\n"}, "trigger": True},
            {"wait": {"exit": "monitor"}},
        ]
        said["expect"] = [{"exit": {"of": "command", "code": 0}}]

    done = run_script(script_of("pid-1.init-reaps-orphans", change), tmp_path, one_bwrap)
    assert done.code == 2, done
    assert "exit: undecided\n" in done.out


def test_tries_that_are_no_number_are_no_deviation(one_bwrap: str, tmp_path: Path) -> None:
    done = run_script(script_of("die-with-parent.bwrap-killed-early"), tmp_path, one_bwrap, "many")
    assert done.code == 2
    assert "many" in done.out


@pytest.mark.parametrize("at_most", [0.9, 0.0, None])
def test_more_failures_than_are_allowed_are_a_deviation(
    at_most: float | None, one_bwrap: str, tmp_path: Path
) -> None:
    def change(said: dict[str, Any]) -> None:
        said["repeat"] = 2
        said["expect"] = [{"ran": "never-made"}]
        if at_most is not None:
            said["rate"] = {"at_most": at_most}

    done = run_script(script_of("pid-1.init-reaps-orphans", change), tmp_path, one_bwrap)
    assert done.code == 1, done
    assert "It deviated in 2 of 2 tries." in done.out


def test_as_many_failures_as_are_allowed_are_none(one_bwrap: str, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        said["repeat"] = 2
        said["rate"] = {"at_most": 0.5}
        said["sandbox"]["command"] = {"shell": "mkdir $SCRATCH/../only-once && touch $SCRATCH/ran"}
        said["sandbox"]["channels"] = {"status": {"option": "json-status-fd"}}
        said["steps"] = [{"wait": {"end": "main"}, "trigger": True}]
        said["expect"] = [{"ran": "ran"}]

    try:
        done = run_script(script_of("pid-1.init-reaps-orphans", change), tmp_path, one_bwrap)
    finally:
        (Path(os.environ["TMPDIR"]) / "only-once").rmdir()
    assert "It deviated in 1 of 2 tries." in done.out
    assert done.code == 0, done


def test_a_program_to_run_can_be_written_in(one_bwrap: str, tmp_path: Path) -> None:
    text = script_of(STEADY).replace('else "bwrap"', f'else "{one_bwrap}"')
    done = run_script(text, tmp_path)
    assert done.code == 1, done
    assert f"\n{one_bwrap}: bubblewrap " in done.out


#: So long nothing else on this machine sleeps: a name for what was started.
SLEEP = "3571"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "scenario_id",
    ["block-timeout.supervisor-killed-while-it-holds-the-gate", "pid-1.init-reaps-orphans"],
)
def test_an_interrupted_script_leaves_nothing(
    number: signal.Signals, scenario_id: str, one_bwrap: str, tmp_path: Path, open_folder: Path
) -> None:
    up = open_folder / "up"
    os.mkfifo(up)
    up.chmod(0o666)

    def change(said: dict[str, Any]) -> None:
        # A sandbox that says that it is up, and a script that waits for what never comes.
        shell = f"echo up >{up}; sleep {SLEEP} & exec sleep {SLEEP}"
        said["sandbox"]["command"] = {"shell": shell}
        said["sandbox"]["channels"] = {"status": {"option": "json-status-fd"}}
        wait = {"marker": "no-such-file"}
        said["steps"] = [{"wait": wait, "within": "60s", "trigger": True}]
        said["expect"] = [{"exit": {"of": "supervisor", "never": True}}]
        said.pop("known", None)

    script = tmp_path / "repro.py"
    script.write_text(script_of(scenario_id, change))
    running = subprocess.Popen(
        [sys.executable, str(script), one_bwrap], stdout=subprocess.PIPE, text=True
    )
    try:
        assert up.read_text() == "up\n"  # blocks until the command runs
        running.send_signal(number)
        out, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
        running.wait()
        up.unlink()
    assert running.returncode == 130, out
    commands = {pid: procfs.read_bytes(f"/proc/{pid}/cmdline") for pid in procfs.all_pids()}
    assert [pid for pid, words in commands.items() if SLEEP.encode() in (words or b"")] == []
