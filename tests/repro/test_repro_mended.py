"""Of a bwrap that has a deviation no more, its script says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from necessities import missing
from repro_place import by_id, run_script, script_of

from harness.subjects import choose_identity

MENDED = [
    "block-timeout.bad-fd-is-refused",
    "block-timeout.eof-before-the-start",
    "info-fd.closed-number",
    "info-fd.closed-number-of-the-status-fd",
    "info-fd.reader-gone-before-the-start",
    "lock-contention.command-ran-before-the-refusal",
    "lock-contention.missing-file-without-a-pid-namespace",
    "lock-contention.refused-with-die-with-parent",
    "lock-contention.refused-without-a-pid-namespace",
    "signals.command-sees-default-sigchld",
    "signals.sigchld-ignored-with-pid-namespace",
    "signals.sigchld-ignored-without-pid-namespace",
    "status-order.reader-gone-before-the-start",
    "status-order.reader-gone-before-the-start-without-sigpipe",
]


def find_python() -> str:
    """A Python that the user of a script can execute."""
    identity = choose_identity(None)
    become: dict[str, Any] = {}
    if os.geteuid() != identity.uid:
        become = {"user": identity.uid, "group": identity.gid, "extra_groups": []}
    for python in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        try:
            done = subprocess.run(
                [python, "-SE", "-c", "import os; os.pidfd_open"],
                check=False,
                cwd="/",
                **become,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    missing("the user of scenarios can execute no Python here")
    raise AssertionError


@pytest.fixture
def mended(one_bwrap: str, open_folder: Path) -> str:
    """A bwrap in the place of the real one, without these deviations."""
    text = (Path(__file__).parent / "mended.py").read_text().replace("@REAL@", one_bwrap)
    program = open_folder / "mended-bwrap"
    program.write_text(f"#!{find_python()} -SE\n{text}")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("scenario_id", MENDED)
def test_a_mended_bwrap_shows_no_deviation(scenario_id: str, mended: str, tmp_path: Path) -> None:
    done = run_script(script_of(scenario_id), tmp_path, mended)
    assert done.code == 0, done
    is_race = by_id()[scenario_id].scenario.repeat > 1
    assert ("A race may be there all the same" in done.out) == is_race
