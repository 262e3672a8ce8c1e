"""A subject that is no bwrap makes no scenario pass: exit 4, and one message that says why."""

from __future__ import annotations

import pytest
from cli_place import Place, Ran, passes, side_by_side

STATUS = '{"child-pid": 4242, "mnt-namespace": 4026531840}\n{"exit-code": 7}'
SLEEPER = "#!/bin/sh\nexec sleep 300\n"
CANNED = f"#!/bin/sh\necho '{STATUS}'\nexit 7\n"
#: Says that it is bwrap, and then does what it was asked for, without any sandbox.
VERSION = 'case "$1" in --version) echo bubblewrap 0.11.0; exit 0;; esac\n'
IMPOSTOR = f"#!/bin/sh\n{VERSION}echo '{STATUS}'\nexit 7\n"
REFUSER = f"#!/bin/sh\n{VERSION}echo 'bwrap: nothing works' >&2\nexit 0\n"
NO_SANDBOX = f'#!/bin/sh\n{VERSION}while [ "$1" != cat ]; do shift; done\nexec "$@"\n'
LATE_SLEEPER = f"#!/bin/sh\n{VERSION}exec sleep 300\n"
#: Leaves a process in a session of its own behind, each time.
LITTERER = "#!/bin/sh\nsetsid sleep 300 &\necho bubblewrap 0.11.0\nexit 7\n"
LATE_LITTERER = f"#!/bin/sh\n{VERSION}setsid sleep 300 &\necho '{STATUS}'\nexit 7\n"
FLOOD = "#!/bin/sh\nexec yes bubblewrap\n"

#: Spec, or the text of a program, and words of the message.
SUBJECTS: dict[str, tuple[str, list[str]]] = {
    "nothing there": ("path:/nope", ["there is no file /nope"]),
    "a folder": ("path:/usr", ["/usr"]),
    "true": ("path:/bin/true", ["is not bubblewrap", "--version"]),
    "false": ("path:/bin/false", ["is not bubblewrap", "--version"]),
    "a text that is executable": ("words\n", ["cannot be executed"]),
    "a sleeper": (SLEEPER, ["did not end within 5 s"]),
    "a canned status": (CANNED, ["is not bubblewrap", "child-pid"]),
    "a canned version and status": (IMPOSTOR, ["is not bubblewrap", "status 7"]),
    "a canned refusal": (REFUSER, ["is not bubblewrap", "status 0"]),
    "no sandbox around the command": (NO_SANDBOX, ["is not bubblewrap", "mount namespace"]),
    "a sleeper with a version": (LATE_SLEEPER, ["is not bubblewrap", "within 5 s"]),
    "a litterer": (LITTERER, ["is not bubblewrap"]),
    "a litterer with a version": (LATE_LITTERER, ["is not bubblewrap", "status 7"]),
    "a flood": (FLOOD, ["is not bubblewrap"]),
}


@pytest.fixture(scope="module")
def answers(shared_place: Place) -> dict[str, Ran]:
    """A run on every subject, side by side."""
    place = shared_place
    place.write("s.yaml", passes("a"))
    specs = [
        spec if spec.startswith("path:") else place.program(f"p{number}/bwrap", spec)
        for number, (spec, _) in enumerate(SUBJECTS.values())
    ]
    jobs = [lambda s=spec: place.run("run", "s.yaml", "--subject", s) for spec in specs]
    done = dict(zip(SUBJECTS, side_by_side(jobs), strict=True))
    assert place.runs() == [], "something was recorded"
    return done


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_subject_that_is_no_bwrap_is_exit_4_and_told_why(
    answers: dict[str, Ran], name: str
) -> None:
    ran = answers[name]
    assert (ran.code, ran.out) == (4, b"")
    assert [word for word in SUBJECTS[name][1] if word not in ran.complaint] == []


def test_a_bwrap_that_may_not_be_executed_is_exit_4_and_told_how_to_mend_it(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    spec = place.program("bwrap", CANNED)
    (place.path / "bwrap").chmod(0o644)
    ran = place.run("run", "s.yaml", "--subject", spec)
    assert (ran.code, "chmod +x" in ran.complaint) == (4, True)


def test_host_without_bwrap_on_path_is_exit_4_and_told_what_to_install(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", "--subject", "host", env={"PATH": ""})
    assert (ran.code, "install the package bubblewrap" in ran.complaint) == (4, True)


def test_one_bad_subject_among_good_ones_ends_the_run_before_anything_is_recorded(
    place: Place,
) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", "--subject", "bundled", "--subject", "path:/bin/true")
    assert (ran.code, place.runs()) == (4, [])
    assert "path:/bin/true" in ran.complaint
