"""What can be said on the command line without running anything, and what is refused."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cli_place import FAILS, Place, Ran, passes, several, side_by_side

from harness.cli.parser import build_parser

NAMES = ("a", "b", "c", "d", "e", "f", "g")
#: Commands that are refused as usage errors, and what the one message must say.
REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "no command": ([], ["COMMAND", "--help"]),
    "unknown command": (["frobnicate"], ["frobnicate", "run", "validate"]),
    "unknown option": (["list", "s.yaml", "--frob"], ["--frob", "--help"]),
    "no path": (["run"], ["PATH"]),
    "jobs not a number": (["run", "s.yaml", "-j", "many"], ["'many'", "number"]),
    "repeat of nought": (["run", "s.yaml", "--repeat", "0"], ["from 1", "got 0"]),
    "timeout not a number": (["run", "s.yaml", "--timeout", "soon"], ["'soon'", "number"]),
    "timeout below nought": (["run", "s.yaml", "--timeout=-1"], ["above 0"]),
    "shard beyond the last": (["run", "s.yaml", "--shard", "4/3"], ["4/3", "such as 1/3"]),
    "shard zero": (["run", "s.yaml", "--shard", "0/3"], ["0/3", "such as 1/3"]),
    "shard of odd digits": (["run", "s.yaml", "--shard", "²/3"], ["such as 1/3"]),
    "unknown tag": (["run", "s.yaml", "-t", "nix"], ["nix", "plain", "wrong"]),
    "unknown id": (["run", "s.yaml::good.aa"], ["good.aa", "did you mean good.a"]),
    "unknown subject, dry": (["run", "s.yaml", "-n", "--subject", "moon"], ["moon", "bundled"]),
    "unknown user": (["run", "s.yaml", "--user", "no-such"], ["no-such", "name or a number"]),
    "user too great": (["run", "s.yaml", "--user", "99999999999"], ["99999999999", "0 to"]),
    "user that means root": (["run", "s.yaml", "--user", "4294967295"], ["4294967295", "0 to"]),
    "two reports on stdout": (
        ["run", "s.yaml", "--json", "-", "--junit", "-"],
        ["--json", "--junit", "path"],
    ),
    "annotations and a report": (["run", "s.yaml", "--github", "--tap", "-"], ["--github"]),
    "rerun without a run": (["run", "s.yaml", "--rerun-failed"], ["no run", "reports/latest"]),
    "report of no run": (["report", "nope"], ["nope", "run.json"]),
    "judge of no run": (["judge", "nope"], ["nope", "run.json"]),
    "explain of unknown": (["explain", "good.aa", "s.yaml"], ["good.aa", "good.a"]),
}
#: Commands that are carried out.
TAKEN: dict[str, list[str]] = {
    "help": ["--help"],
    "list": ["list", "s.yaml"],
    "list json": ["list", "s.yaml", "--exclude-tag", "wrong", "--format", "json"],
    "schema": ["schema"],
    "doctor json": ["doctor", "--format", "json"],
    "doctor": ["doctor"],
    "explain": ["explain", "good.a", "s.yaml"],
    "validate": ["validate", "s.yaml"],
    "one id": ["list", "s.yaml::good.c"],
    "tag": ["list", "s.yaml", "-t", "wrong"],
    "pattern": ["list", "s.yaml", "-k", "good.*"],
    "dry run": ["run", "s.yaml", "-n", "-k", "good", "--reports", "never"],
    "shuffled": ["run", "s.yaml", "-n", "--shuffle", "--seed", "7"],
    "shuffled again": ["run", "s.yaml", "-n", "--shuffle", "--seed", "7"],
    "shuffled otherwise": ["run", "s.yaml", "-n", "--shuffle", "--seed", "8"],
    **{f"shard {i}": ["list", "s.yaml", "--shard", f"{i}/3"] for i in (1, 2, 3)},
    "empty": ["run", "s.yaml", "-k", "zebra"],
    "empty list": ["list", "s.yaml", "-k", "zebra"],
}


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, Ran]]:
    """Every command of both tables, run once, side by side."""
    place = Place()
    place.write("s.yaml", several(*(passes(name) for name in NAMES), FAILS))
    commands = {name: command for name, (command, _) in REFUSED.items()} | TAKEN
    jobs = [lambda c=command: place.run(*c) for command in commands.values()]
    yield dict(zip(commands, side_by_side(jobs), strict=True))
    left = {each.name for each in place.path.iterdir()}
    place.remove()
    assert left == {"contract.yaml", "s.yaml", "tmp"}, "something was run"


def ids(ran: Ran) -> list[str]:
    """The ids that a listing names, in its order."""
    return [line.split()[0] for line in ran.out.decode().splitlines()]


@pytest.mark.parametrize("name", REFUSED)
def test_a_usage_error_is_exit_2_and_one_message_that_says_what_to_do(
    answers: dict[str, Ran], name: str
) -> None:
    ran = answers[name]
    assert (ran.code, ran.out) == (2, b"")
    assert [word for word in REFUSED[name][1] if word not in ran.complaint] == []


def test_help_prints_every_exit_code_with_its_meaning(answers: dict[str, Ran]) -> None:
    text = answers["help"].out.decode().partition("exit codes:")[2]
    codes = [int(line.split()[0]) for line in text.splitlines() if line.strip()]
    assert codes == [0, 1, 2, 3, 4, 5, 6, 7, 70, 130]
    assert all(len(line.split()) > 1 for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("name", ["help", "list", "doctor", "explain", "validate", "dry run"])
def test_what_was_asked_for_is_exit_0_and_goes_to_stdout(
    answers: dict[str, Ran], name: str
) -> None:
    assert answers[name].code == 0, answers[name].err
    assert answers[name].out if name != "validate" else answers[name].err


@pytest.mark.parametrize("name", ["list json", "schema", "doctor json"])
def test_json_on_stdout_is_nothing_but_json(answers: dict[str, Ran], name: str) -> None:
    assert answers[name].json


def test_list_json_is_a_list_of_objects_with_the_promised_members(
    answers: dict[str, Ran],
) -> None:
    listed = answers["list json"].json
    assert [each["id"] for each in listed] == [f"good.{name}" for name in NAMES]
    members = {"id", "title", "tags", "clauses", "file", "line", "needs", "repeat"}
    assert [set(each) for each in listed] == [members] * len(listed)


def test_filters_choose_by_id_tag_and_pattern(answers: dict[str, Ran]) -> None:
    good = [f"good.{name}" for name in NAMES]
    assert ids(answers["one id"]) == ["good.c"]
    assert ids(answers["tag"]) == ["bad.status"]
    assert ids(answers["pattern"]) == good


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one id", "FILE::ID hid 7 scenario(s)"),
        ("tag", "--tag wrong hid 7 scenario(s)"),
        ("pattern", "-k good.* hid 1 scenario(s)"),
        ("shard 1", "--shard 1/3 hid 5 scenario(s)"),
        ("list json", "--exclude-tag wrong hid 1 scenario(s)"),
    ],
)
def test_a_filter_says_how_many_it_hid(answers: dict[str, Ran], name: str, said: str) -> None:
    assert said in answers[name].err.splitlines()


def test_shards_are_disjoint_and_complete(answers: dict[str, Ran]) -> None:
    parts = [ids(answers[f"shard {i}"]) for i in (1, 2, 3)]
    assert all(parts)
    assert sorted(each for part in parts for each in part) == sorted(ids(answers["list"]))


def test_a_seed_gives_the_same_order_twice_and_another_seed_another(
    answers: dict[str, Ran],
) -> None:
    first, again, other = (
        ids(answers[name]) for name in ("shuffled", "shuffled again", "shuffled otherwise")
    )
    assert first == again
    assert first != other
    assert sorted(first) == sorted(other) == sorted(ids(answers["list"]))


def test_a_dry_run_names_what_would_run_and_runs_nothing(answers: dict[str, Ran]) -> None:
    assert ids(answers["dry run"]) == [f"good.{name}" for name in NAMES]
    assert "7 scenario(s) on bundled would run" in answers["dry run"].err


@pytest.mark.parametrize("name", ["empty", "empty list"])
def test_an_empty_selection_is_exit_5_and_says_what_to_loosen(
    answers: dict[str, Ran], name: str
) -> None:
    assert (answers[name].code, answers[name].out) == (5, b"")
    assert "loosen the filters" in answers[name].complaint


def test_every_command_has_somebody_who_carries_it_out() -> None:
    def bodies(parser: argparse.ArgumentParser) -> Iterator[str]:
        if parser.get_default("body") is not None:
            yield parser.get_default("body")
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    yield from bodies(each)

    found = list(bodies(build_parser()))
    assert len(found) >= 11
    for body in found:
        module, _, name = body.partition(".")
        assert callable(getattr(importlib.import_module(f"harness.cli.{module}"), name))


@pytest.mark.parametrize("module", ["harness.cli.program", "harness.cli.running", "rich.progress"])
def test_an_interrupt_while_modules_are_imported_is_exit_130_without_a_word(
    shared_place: Place, module: str
) -> None:
    interrupted = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from harness.cli import run_as_program
run_as_program()
"""
    ran = subprocess.run(
        [sys.executable, "-c", interrupted, "run", "scenarios"],
        cwd=shared_place.path,
        env=shared_place.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_a_fault_of_our_own_is_exit_70_with_its_traceback_and_what_to_do(
    shared_place: Place,
) -> None:
    broken = (
        "import harness.cli.telling as t; from harness.cli import run_as_program;"
        "t.print_schema = lambda _: 1 / 0; run_as_program()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", broken, "schema"],
        cwd=shared_place.path,
        env=shared_place.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (70, "")
    assert "ZeroDivisionError" in ran.stderr
    assert "harness: this is a fault of the harness itself; please report" in ran.stderr
