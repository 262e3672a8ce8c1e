"""The sandbox spec's argument list, without spawning anything."""

from __future__ import annotations

import pytest

from harness.supervise import SandboxSpec, SpecConflict, bwrap_arguments
from harness.supervise.spec import DEFAULT_PATH, HOME


def build(
    spec: SandboxSpec, *, environ: dict[str, str] | None = None, there: str = ""
) -> list[str]:
    present = there.split()
    return bwrap_arguments(spec, environ=environ or {}, exists=lambda path: path in present)


def mounts(arguments: list[str]) -> list[tuple[str, str, str]]:
    return [
        (arguments[i], arguments[i + 1], arguments[i + 2])
        for i, each in enumerate(arguments)
        if each in ("--bind", "--ro-bind")
    ]


def conflicts(spec: SandboxSpec) -> tuple[str, ...]:
    with pytest.raises(SpecConflict) as caught:
        build(spec)
    return caught.value.conflicts


def test_an_empty_spec_is_isolated_and_has_only_its_own_directories() -> None:
    assert build(SandboxSpec()) == [
        *("--die-with-parent", "--unshare-all", "--cap-drop", "ALL"),
        *("--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--dir", HOME),
        *("--clearenv", "--setenv", "HOME", HOME, "--setenv", "PATH", DEFAULT_PATH),
        *("--chdir", HOME),
    ]


def test_system_directories_are_bound_read_only_where_they_exist() -> None:
    arguments = build(SandboxSpec(), there="/usr /bin /nix/store /home")
    assert mounts(arguments) == [
        ("--ro-bind", "/usr", "/usr"),
        ("--ro-bind", "/bin", "/bin"),
        ("--ro-bind", "/nix/store", "/nix/store"),
    ]


@pytest.mark.parametrize(("network", "shared"), [("none", 0), ("host", 1), ("provider", 0)])
def test_only_the_host_network_is_shared(network: str, shared: int) -> None:
    assert build(SandboxSpec(network=network)).count("--share-net") == shared


def test_a_bind_beneath_tmp_comes_after_the_tmpfs() -> None:
    arguments = build(SandboxSpec(read_only=["/tmp/work"]))
    assert arguments.index("--tmpfs") < arguments.index("/tmp/work")


def test_binds_come_parents_first_whatever_their_mode() -> None:
    spec = SandboxSpec(read_only=["/srv/a/b/c", "/srv/a"], read_write=["/srv/a/b"])
    assert mounts(build(spec)) == [
        ("--ro-bind", "/srv/a", "/srv/a"),
        ("--bind", "/srv/a/b", "/srv/a/b"),
        ("--ro-bind", "/srv/a/b/c", "/srv/a/b/c"),
    ]


def test_a_pair_is_source_and_destination() -> None:
    spec = SandboxSpec(read_only=[("/srv/x", "/data")])
    assert mounts(build(spec)) == [("--ro-bind", "/srv/x", "/data")]


def test_the_control_sockets_directory_is_bound_read_write_at_its_own_path() -> None:
    arguments = build(SandboxSpec(control_socket="/run/editor/socket"))
    assert mounts(arguments) == [("--bind", "/run/editor", "/run/editor")]


def test_the_same_bind_twice_is_one_bind() -> None:
    spec = SandboxSpec(read_write=["/run/e", "/run/e/"], control_socket="/run/e/s")
    assert mounts(build(spec)) == [("--bind", "/run/e", "/run/e")]


def test_unset_environment_names_are_dropped_and_set_ones_carried_once() -> None:
    arguments = build(SandboxSpec(environment=["A", "B", "A"]), environ={"A": "1", "C": "3"})
    assert arguments[arguments.index("--clearenv") :] == [
        *("--clearenv", "--setenv", "HOME", HOME, "--setenv", "PATH", DEFAULT_PATH),
        *("--setenv", "A", "1", "--chdir", HOME),
    ]


def test_a_carried_path_replaces_the_default() -> None:
    arguments = build(SandboxSpec(environment=["PATH"]), environ={"PATH": "/opt/bin"})
    assert DEFAULT_PATH not in arguments
    assert arguments[arguments.index("PATH") + 1] == "/opt/bin"


def test_an_unset_path_falls_back_to_the_default() -> None:
    assert DEFAULT_PATH in build(SandboxSpec(environment=["PATH"]))


def test_chdir_and_hostname_are_passed_on() -> None:
    arguments = build(SandboxSpec(chdir="/srv", hostname="box"))
    assert arguments[-2:] == ["--chdir", "/srv"]
    assert arguments[arguments.index("--hostname") + 1] == "box"


@pytest.mark.parametrize(
    ("spec", "conflict"),
    [
        (SandboxSpec(read_only=["a"]), "bind path 'a' is not absolute"),
        (SandboxSpec(read_only=[("/a", "b")]), "bind path 'b' is not absolute"),
        (SandboxSpec(read_only=["/a/../b"]), "bind path '/a/../b' contains '..'"),
        (SandboxSpec(read_only=["/a\0"]), "bind path '/a\\x00' contains a NUL"),
        (SandboxSpec(control_socket="s"), "control socket 's' is not absolute"),
        (SandboxSpec(chdir="x"), "chdir 'x' is not absolute"),
        (
            SandboxSpec(read_only=["/a"], read_write=["/a"]),
            "/a is bound both read-only and read-write",
        ),
        (
            SandboxSpec(read_only=["/a", ("/b", "/a")]),
            "/a is bound from both /a and /b",
        ),
        (
            SandboxSpec(read_only=["/run/e"], control_socket="/run/e/s"),
            "/run/e is bound both read-only and read-write",
        ),
        (
            SandboxSpec(read_write=[("/x", "/run/e")], control_socket="/run/e/s"),
            "/run/e is bound from both /x and /run/e",
        ),
        (SandboxSpec(read_only=[("/a", "/proc/x")]), "/proc/x is in the sandbox's own /proc"),
        (SandboxSpec(read_write=["/dev"]), "/dev is in the sandbox's own /dev"),
        (SandboxSpec(control_socket="/tmp/s"), "a bind onto /tmp would hide the sandbox's own"),
        (SandboxSpec(read_only=[("/", "/host")]), "binding / would show the sandbox everything"),
        (SandboxSpec(read_only=[("/a", "/")]), "a bind onto / would hide the whole sandbox"),
        (
            SandboxSpec(read_write=["/usr"]),
            "a bind onto /usr would replace the read-only /usr",
        ),
        (
            SandboxSpec(read_only=["/nix"]),
            "a bind onto /nix would replace the read-only /nix/store",
        ),
        (SandboxSpec(environment=["HOME"]), f"HOME is {HOME} inside and cannot be carried in"),
        (SandboxSpec(environment=["A=B"]), "'A=B' is not the name of an environment variable"),
        (SandboxSpec(environment=[""]), "'' is not the name of an environment variable"),
        (SandboxSpec(network="wifi"), "network 'wifi' is not one of none, host, provider"),
        (SandboxSpec(hostname=""), "hostname '' is not 1 to 64 bytes"),
    ],
)
def test_a_contradiction_is_refused(spec: SandboxSpec, conflict: str) -> None:
    assert conflict in conflicts(spec)


def test_all_contradictions_are_told_at_once() -> None:
    spec = SandboxSpec(read_only=["a"], environment=["HOME", "="], network="x")
    assert len(conflicts(spec)) == 4


def test_a_system_directory_may_be_named_again_read_only() -> None:
    arguments = build(SandboxSpec(read_only=["/usr"]), there="/usr")
    assert mounts(arguments) == [("--ro-bind", "/usr", "/usr")] * 2
