"""The GitHub Action, run here as GitHub's runner would run it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ci_place import (
    CHECKOUT,
    GUARDED_BWRAP,
    LONG,
    PASSES,
    PATIENCE_S,
    SUDO,
    Stepped,
    Workspace,
    action,
    copy_checkout,
    no_package_index,
    with_closed_tun,
    without_user_namespaces,
)
from necessities import missing

SCRIPT = (CHECKOUT / "tools" / "action.sh").read_text(encoding="utf-8")
#: Variables of the script that are no inputs: what tests alone may set.
FOR_TESTS = {"ACTION_USERNS_KNOB"}


# --- the description -----------------------------------------------------------------------------


def test_every_input_is_described_and_reaches_the_script_through_a_variable_of_its_name() -> None:
    described = action()
    (step,) = described["runs"]["steps"]
    expected = {
        f"ACTION_{name.upper().replace('-', '_')}": f"${{{{ inputs.{name} }}}}"
        for name in described["inputs"]
    }
    assert step["env"] == expected
    used = set(re.findall(r"\$\{(ACTION_[A-Z_]+):", SCRIPT))
    assert used == expected.keys() | FOR_TESTS
    for name, each in described["inputs"].items():
        assert each.keys() == {"description", "default"}, name
        assert isinstance(each["default"], str), name  # an input is a text, whatever YAML makes
        assert each["description"].endswith("."), name


def test_every_output_is_described_and_written_by_the_script() -> None:
    for name, each in action()["outputs"].items():
        assert each["description"].endswith("."), name
        assert each["value"] == f"${{{{ steps.harness.outputs.{name} }}}}"
        assert f"output {name} " in SCRIPT


def test_no_expression_is_in_shell_text_and_every_step_names_its_shell() -> None:
    steps = action()["runs"]["steps"]
    assert [step["shell"] for step in steps] == ["bash"] * len(steps)
    assert [step["run"] for step in steps if "${{" in step["run"]] == []


def test_shellcheck_finds_nothing_in_the_script() -> None:
    if shutil.which("shellcheck") is None:
        missing("shellcheck is missing: install the package shellcheck")
    done = subprocess.run(
        ["shellcheck", "tools/action.sh", "tools/install-system.sh", ".ci/run"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""


# --- a machine on which everything works ---------------------------------------------------------


@pytest.fixture(scope="module")
def installed() -> Iterator[tuple[Workspace, Stepped]]:
    """A job in which the action was used once, from a checkout of its own, with nothing there."""
    place = Workspace()
    place.write(
        "more scenarios/contract.yaml", (place.path / "own scenarios/contract.yaml").read_text()
    )
    place.write("more scenarios/other.yaml", PASSES.format(name="other", code=7))
    place.write("more scenarios/hidden.yaml", PASSES.format(name="hidden", code=8))
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        missing("bwrap is missing: install the package bubblewrap")
    place.program("a bwrap", f'#!/bin/sh\nexec {bwrap} "$@"\n')
    inputs = {
        "venv": "",
        "paths": "own scenarios\n\nmore scenarios\n",
        "subjects": f"bundled\npath:{place.programs}/a bwrap\n",
        "args": "-k\nown.o*\n",
        "reports": "my runs",
        "junit": "out put/junit.xml",
    }
    (place.path / "out put").mkdir()
    done = place.act(inputs, checkout=copy_checkout(place.base / "the action"))
    if "pip could not install" in done.log and no_package_index(place):
        missing("no package index can be reached")
    yield place, done
    place.remove()


def test_a_fresh_checkout_installs_itself_and_runs_what_was_asked(
    installed: tuple[Workspace, Stepped],
) -> None:
    place, done = installed
    assert done.code == 0, done.log
    suites = ElementTree.parse(done.outputs["junit"]).getroot()
    names = [[case.get("name") for case in suite.iter("testcase")] for suite in suites]
    assert names == [
        [f"own.one [{subject}]", f"own.other [{subject}]"]
        for subject in ("bundled", f"path:{place.programs}/a bwrap")
    ]
    run = Path(done.outputs["run"])
    assert run.parent == place.path / "my runs"
    assert done.outputs == {
        "exit-code": "0",
        "run": str(run),
        "html": str(run / "report.html"),
        "junit": str(place.path / "out put" / "junit.xml"),
    }
    assert Path(done.outputs["html"]).is_file()
    assert "**4 passed**" in done.summary


def test_a_second_use_installs_nothing_and_does_not_publish_the_first_ones_reports(
    installed: tuple[Workspace, Stepped],
) -> None:
    place, _ = installed
    inputs = {"venv": "", "args": "-k\nnowhere", "reports": "my runs", "junit": "out put/junit.xml"}
    done = place.act(inputs, checkout=place.base / "the action")
    assert "harness is in" in done.log
    assert (done.code, done.outputs) == (5, {"exit-code": "5"})
    assert not (place.path / "out put" / "junit.xml").exists()


NEEDS_TUN = PASSES.format(name="tun", code=7) + "needs: {devices: [/dev/net/tun]}\n"


@pytest.mark.usefixtures("as_root")
def test_an_unexpected_result_fails_the_step_and_nothing_is_changed_unasked_or_without_need(
    place: Workspace,
) -> None:
    place.write("own scenarios/tun.yaml", NEEDS_TUN)
    mode = place.base / "mode"
    knob = place.write("knob", "1\n")
    before = knob.stat().st_mtime_ns
    done = place.act(
        {"relax-userns": "true"},
        env={"ACTION_USERNS_KNOB": str(knob)},
        prelude=with_closed_tun(mode),
    )
    assert done.code == 1, done.log
    assert Path(done.outputs["junit"]) == Path(done.outputs["run"]) / "junit.xml"
    (error,) = done.annotations("error")
    (notice,) = done.annotations("notice")
    for text in (error, notice):
        assert "chmod 0666 /dev/net/tun" in text
    assert mode.read_text() == "600\n"
    # Sandboxes work here, so that nothing had to be relaxed.
    assert (knob.read_text(), knob.stat().st_mtime_ns) == ("1\n", before)


# --- a machine that refuses ----------------------------------------------------------------------


@pytest.mark.usefixtures("as_root")
def test_where_sandboxes_are_refused_the_step_fails_with_reason_and_remedy(
    place: Workspace,
) -> None:
    knob = place.write("knob", "1\n")
    before = knob.stat().st_mtime_ns
    done = place.act({}, env={"ACTION_USERNS_KNOB": str(knob)}, prelude=without_user_namespaces())
    assert (done.code, done.outputs) == (4, {"exit-code": "4"}), done.log
    (error,) = done.annotations("error")
    words = (
        "ENOSPC",
        "sysctl user.max_user_namespaces=10000",
        f"{knob} is 1",
        "relax-userns: true",
    )
    assert [word for word in words if word not in error] == []
    assert f"    {error}" in done.summary
    assert "no  user-namespaces: ENOSPC" in done.log  # doctor's word on which layer refuses
    # Not even written and put back.
    assert (knob.read_text(), knob.stat().st_mtime_ns) == ("1\n", before)


@pytest.mark.usefixtures("as_root")
def test_where_nothing_has_to_work_a_run_of_skips_alone_is_no_success_either(
    place: Workspace,
) -> None:
    done = place.act({"must-work": "false"}, prelude=without_user_namespaces())
    assert done.code == 5, done.log
    (warning,) = done.annotations("warning")
    assert "sysctl user.max_user_namespaces=10000" in warning
    assert Path(done.outputs["junit"]).is_file()


def guarded(place: Workspace) -> tuple[Path, dict[str, str]]:
    """A knob that says 1, and the inputs for a bwrap that does not work before it says 0."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        missing("bwrap is missing: install the package bubblewrap")
    # Whoever is not root turns it by sudo, and the file is the user's own.
    place.program("sudo", SUDO.format(log=place.base / "sudo.log"))
    knob = place.write("knob", "1\n")
    subject = place.program("bwrap", GUARDED_BWRAP.format(knob=knob, bwrap=bwrap))
    return knob, {"subjects": f"path:{subject}"}


def test_the_knob_is_turned_when_told_to_and_turned_back_after_the_run(place: Workspace) -> None:
    """By sudo, which keeps nothing of the environment for harness."""
    if os.geteuid() != 0:
        pytest.skip("the stand-in of sudo gives no rights: run the tests as root")
    place.program("id", '#!/bin/sh\n[ "$1" = -u ] && echo 1000 && exit\nexec /usr/bin/id "$@"\n')
    knob, inputs = guarded(place)
    told = {**inputs, "relax-userns": "true", "as-root": "true"}
    done = place.act(told, env={"ACTION_USERNS_KNOB": str(knob)})
    assert done.code == 0, done.log
    assert knob.read_text() == "1\n"
    assert any(f"{knob} was 1" in notice for notice in done.annotations("notice"))
    commands = (place.base / "sudo.log").read_text().splitlines()
    assert commands.count(f"tee -- {knob}") == 2
    (run,) = (line for line in commands if "own scenarios" in line)
    assert f"PATH={place.programs}:" in run
    assert " HARNESS_MUST_WORK=1 " in run
    assert "**1 passed**" in done.summary
    assert os.stat(done.outputs["run"]).st_uid == 1000


@pytest.mark.usefixtures("as_root")
def test_the_tun_device_is_opened_when_told_to_and_closed_after_the_run(place: Workspace) -> None:
    place.write("own scenarios/tun.yaml", NEEDS_TUN)
    mode = place.base / "mode"
    done = place.act({"open-tun": "true"}, prelude=with_closed_tun(mode))
    assert done.code == 0, done.log
    (notice,) = done.annotations("notice")
    assert "had mode 600" in notice
    assert mode.read_text() == "600\n"


# --- inputs --------------------------------------------------------------------------------------

WRONG = {
    "a word that is neither true nor false": ({"must-work": "yes"}, "must-work"),
    "an option and its value on one line": ({"args": "-j2\n-k own.one"}, "-k own.one"),
    "a second line for GITHUB_OUTPUT": ({"reports": "runs\nrun=/etc"}, "reports"),
    "an old interpreter": ({"venv": "", "python": "old-python"}, "Python 3.11"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_input_that_cannot_be_meant_is_exit_2_and_named(place: Workspace, kind: str) -> None:
    place.program("old-python", "#!/bin/sh\nexit 1\n")
    inputs, word = WRONG[kind]
    done = place.act(inputs)
    assert (done.code, done.outputs) == (2, {"exit-code": "2"}), done.log
    (error,) = done.annotations("error")
    assert word in error


def test_an_input_is_never_run_as_shell_text(place: Workspace) -> None:
    done = place.act({"subjects": "path:$(touch $PWD/pwned)`touch pwned`"})
    assert (done.code, os.listdir(place.path)) == (4, ["own scenarios"]), done.log
    assert "$(touch $PWD/pwned)`touch pwned`" in done.annotations("error")[0]


# --- a job that is cancelled ---------------------------------------------------------------------


def test_a_cancelled_job_still_has_its_reports_and_leaves_the_machine_as_it_was(
    place: Workspace,
) -> None:
    knob, inputs = guarded(place)
    fifo = place.base / "fifo"
    os.mkfifo(fifo, 0o666)
    fifo.chmod(0o666)  # the umask took away what the sandbox's user needs
    place.write("own scenarios/then.yaml", LONG.format(fifo=fifo))
    script, env = place.action_step({**inputs, "relax-userns": "true"})
    environment = place.environment({**env, "ACTION_USERNS_KNOB": str(knob)})
    log = place.base / "log"
    with log.open("wb") as output:
        step = subprocess.Popen(
            place.command(script),
            cwd=place.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    assert fifo.read_text() == "ran\n"
    assert knob.read_text() == "0\n"
    step.send_signal(signal.SIGINT)  # the runner's first, to this process alone
    code = step.wait(PATIENCE_S)
    done = place.stepped(code, log.read_text())
    assert (code, done.outputs["exit-code"]) == (130, "130"), done.log
    names = [case.get("name") for case in ElementTree.parse(done.outputs["junit"]).iter("testcase")]
    assert "own.one" in names
    assert knob.read_text() == "1\n"
    assert os.listdir(place.temporary) == []
