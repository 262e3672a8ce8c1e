"""The harness as an ordinary user: nothing needs root."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_place import CHECKOUT, FAILS, Place, Started, passes, several
from cli_preludes import as_nobody, with_mounts

SCRIPT = "from harness.cli import run_as_program; run_as_program()"


class Unprivileged(Place):
    """A place whose user is not root.

    Root's python and checkout may be where nobody else can go (below /root, say), so they are
    mounted within reach, in a mount namespace of the test's own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(sys.base_prefix)
        for name in ("python", "site", "code"):
            (self.path / name).mkdir()

    def start(self, *arguments: str, **how: object) -> Started:
        if os.geteuid() != 0:
            return super().start(*arguments, **how)  # type: ignore[arg-type]
        for folder, _, files in os.walk(self.path):
            os.chown(folder, 65534, 65534)
            for name in files:
                os.chown(os.path.join(folder, name), 65534, 65534)
        sources = [str(self.base), sysconfig.get_path("purelib"), str(CHECKOUT)]
        targets = [str(self.path / name) for name in ("python", "site", "code")]
        mounts = "; ".join(f'mount --bind "$A{n}" "$A{n + 3}"' for n in (1, 2, 3))
        python = f"{targets[0]}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        prelude = with_mounts(mounts, *sources, *targets) + as_nobody([])
        env = {
            "PYTHONHOME": targets[0],
            "PYTHONPATH": f"{targets[2]}:{targets[1]}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return super().start(*arguments, env=env, prelude=prelude, program=[python, "-c", SCRIPT])


@pytest.fixture
def place() -> Iterator[Place]:
    """A place whose user is not root."""
    made = Unprivileged()
    yield made
    assert os.listdir(made.temporary) == [], "temporary files left"
    made.remove()


def test_an_ordinary_user_gets_the_verdicts_of_root(place: Place) -> None:
    place.write("s.yaml", several(passes("a"), FAILS))
    ran = place.run("run", "s.yaml", "--json", "-")
    assert ran.code == 1, ran.err
    assert {each["id"]: each["status"] for each in ran.json["results"]} == {
        "good.a": "pass",
        "bad.status": "fail",
    }
    assert ran.json["subjects"][0]["uid"] == (os.geteuid() or 65534)


def test_an_ordinary_user_cannot_become_another_and_is_told_so(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", "--user", "root")
    assert (ran.code, "leave --user out" in ran.complaint) == (2, True)


def test_a_scenario_that_needs_root_is_skipped_with_its_remedy(place: Place) -> None:
    place.write("s.yaml", several(passes("a") + "user: root\n", passes("b")))
    ran = place.run("run", "s.yaml")
    assert (ran.code, place.results()) == (0, {"good.a": "skip", "good.b": "pass"})
    assert "run the harness as root" in ran.err


def test_a_reports_folder_without_the_right_to_write_is_exit_4_and_told(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    place.reports.mkdir()
    ran = place.run("run", "s.yaml", "--reports", "/proc/harness-reports")
    assert ran.code == 4
    denied = place.run("run", "s.yaml", "--reports", "/usr/harness-reports")
    assert denied.code == 4
    assert "Permission denied" in denied.complaint
    assert "--reports" in denied.complaint


def test_doctor_of_an_ordinary_user_speaks_of_that_user(place: Place) -> None:
    ran = place.run("doctor", "--format", "json")
    assert ran.json["uid"] == (os.geteuid() or 65534)
