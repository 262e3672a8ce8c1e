"""What facts claims, with refusals made for real where that needs nothing from outside."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_processes import in_child

from harness.agent import facts, kernel, procfs

STEPS = list(facts._STEPS)
GOOD = dict.fromkeys(STEPS, 0)
NO_SETTINGS: dict[str, str | None] = dict.fromkeys(facts._SYSCTLS)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    fds = procfs.fds(os.getpid())
    own = procfs.namespaces(os.getpid())
    yield
    assert procfs.fds(os.getpid()) == fds, "an fd is left open"
    assert procfs.children_of(os.getpid()) == [], "a child is left"
    assert procfs.namespaces(os.getpid()) == own, "the trial changed this process"


def enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    facts._map_ids(uid, gid)


def verdicts(found: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    return {step: (found[step]["ok"], found[step]["layer"]) for step in STEPS}


# --- the whole -----------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", [None, pytest.param(1000, marks=needs_root)])
def test_every_fact_is_complete_and_a_refusal_has_a_remedy(uid: int | None) -> None:
    found = facts.collect_facts(uid)
    assert json.loads(json.dumps(found)) == found
    for name, fact in found.items():
        assert set(fact) == {"name", "value", "ok", "layer", "detail", "remedy"}
        assert fact["name"] == name
        assert fact["layer"] in {
            "kernel",
            "sysctl",
            "apparmor",
            "seccomp",
            "procfs",
            "device",
            "tool",
            "identity",
        }
        assert fact["ok"] is (fact["remedy"] == "")
    assert found["identity"]["value"] == (os.geteuid() if uid is None else uid)
    assert {*STEPS, "kernel", "apparmor", "seccomp", "tun", "cgroup", "container"} <= set(found)
    assert {*facts._SYSCTLS, "pidfd", "subreaper", "children-files", "tool:sh"} <= set(found)


@needs_root
def test_the_trial_runs_as_the_uid_that_was_asked_for() -> None:
    seen = facts._in_child(
        1000, lambda report: report("uids", sum(os.getresuid() + os.getresgid()))
    )
    assert seen == {"uids": 6000}


@needs_root
def test_after_the_change_of_uid_the_id_maps_can_still_be_written() -> None:
    found = facts.collect_facts(1000)
    if not found["user-namespaces"]["ok"]:
        pytest.skip(found["user-namespaces"]["remedy"])
    assert found["id-maps"]["detail"] == "tried, and it works"


@needs_root
def test_another_uid_than_ones_own_needs_root() -> None:
    def as_nobody() -> Any:
        os.setresuid(65534, 65534, 65534)
        return facts.collect_facts(1000)["identity"]

    assert in_child(as_nobody) == {
        "name": "identity",
        "value": 1000,
        "ok": False,
        "layer": "identity",
        "detail": "running as uid 65534, sandboxes as uid 1000",
        "remedy": "Run as root, or as uid 1000.",
    }


# --- refusals for real ---------------------------------------------------------------------------


def test_a_limit_of_no_user_namespaces_is_found_and_named() -> None:
    def limited() -> Any:
        enter_user_namespace()
        # These limits belong to each user namespace, so nobody else is affected.
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        return facts.collect_facts()

    found = in_child(limited)
    assert found["user.max_user_namespaces"]["value"] == "0"
    assert found["user-namespaces"] == {
        "name": "user-namespaces",
        "value": False,
        "ok": False,
        "layer": "sysctl",
        "detail": "ENOSPC: No space left on device",
        "remedy": "Raise the limit: sysctl user.max_user_namespaces=10000.",
    }
    assert found["proc-mount"]["detail"] == "not tried, since user-namespaces failed"
    assert found["container"]["value"] != "none"


def test_a_limit_of_no_network_namespaces_refuses_that_step_only() -> None:
    def limited() -> Any:
        enter_user_namespace()
        Path("/proc/sys/user/max_net_namespaces").write_text("0")
        return facts.collect_facts()

    found = in_child(limited)
    assert [step for step in STEPS if not found[step]["ok"]] == ["network-namespace"]
    assert found["network-namespace"]["remedy"].endswith("sysctl user.max_net_namespaces=10000.")


def test_a_masked_proc_is_found_and_named() -> None:
    def masked() -> Any:
        enter_user_namespace()
        kernel.mount("tmpfs", "/proc/tty", "tmpfs")
        return facts.collect_facts()

    found = in_child(masked)
    assert [step for step in STEPS if not found[step]["ok"]] == ["proc-mount"]
    assert found["proc-mount"]["layer"] == "procfs"
    assert found["proc-mount"]["detail"] == "EPERM: Operation not permitted"
    assert "systempaths=unconfined" in found["proc-mount"]["remedy"]


def test_a_missing_tun_device_and_missing_tools_are_named(tmp_path: Path) -> None:
    def bare() -> Any:
        enter_user_namespace()
        kernel.mount("tmpfs", "/dev", "tmpfs")
        os.environ["PATH"] = str(tmp_path)
        found = {fact["name"]: fact for fact in facts._tools()}
        return [facts._tun({"tun": errno.ENOENT}), found["tool:slirp4netns"], found["tool:sh"]]

    tun, slirp, shell = in_child(bare)
    assert (tun["ok"], tun["layer"]) == (False, "device")
    assert tun["detail"] == "/dev/net/tun: No such file or directory"
    assert (slirp["ok"], slirp["value"], slirp["remedy"]) == (False, None, "Install slirp4netns.")
    assert (shell["ok"], shell["detail"]) == (False, "not in PATH")


def test_a_trial_that_is_killed_is_reported_with_its_signal_and_last_step() -> None:
    def killed(report: Callable[[str, int], None]) -> None:
        report("user-namespaces", 0)
        os.kill(os.getpid(), 9)

    assert facts._in_child(None, killed) == {"user-namespaces": 0, "killed": 9}


def test_facts_are_collected_although_the_caller_ignores_sigchld() -> None:
    def deaf() -> Any:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        return [fact["ok"] for fact in facts.collect_facts().values()]

    assert in_child(deaf) == [fact["ok"] for fact in facts.collect_facts().values()]


def test_a_tool_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "endless"
    script.write_text("#!/bin/sh\necho endless 1.0\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(facts, "_TOOL_DEADLINE_S", 0.2)
    assert facts._versions({"endless": str(script), "absent": "/nonexistent"}) == {
        "endless": "endless 1.0"
    }


# --- verdicts ------------------------------------------------------------------------------------


def judged(results: dict[str, int], **settings: Any) -> dict[str, Any]:
    seccomp = settings.pop("seccomp", 0)
    apparmor = settings.pop("apparmor", "")
    found = facts.judge_trial(results, {**NO_SETTINGS, **settings}, apparmor, seccomp)
    assert [fact["name"] for fact in found] == STEPS
    return {fact["name"]: fact for fact in found}


def test_a_trial_without_refusals_is_good_throughout() -> None:
    assert verdicts(judged(GOOD)) == dict.fromkeys(STEPS, (True, "kernel"))


@pytest.mark.parametrize(
    ("step", "code", "settings", "layer"),
    [
        ("user-namespaces", errno.EPERM, {"kernel.unprivileged_userns_clone": "0"}, "sysctl"),
        ("user-namespaces", errno.EPERM, {"kernel.unprivileged_userns_clone": "1"}, "kernel"),
        ("user-namespaces", errno.EUSERS, {}, "sysctl"),
        ("user-namespaces", errno.EINVAL, {}, "kernel"),
        ("user-namespaces", errno.ENOSYS, {}, "kernel"),
        ("user-namespaces", errno.ENOSYS, {"seccomp": 2}, "seccomp"),
        ("user-namespaces", errno.EPERM, {"seccomp": 2}, "seccomp"),
        ("user-namespaces", errno.EPERM, {"apparmor": "docker-default"}, "apparmor"),
        ("user-namespaces", errno.EPERM, {"apparmor": "unconfined"}, "kernel"),
        (
            "mount-namespace",
            errno.EPERM,
            {"kernel.apparmor_restrict_unprivileged_userns": "1"},
            "apparmor",
        ),
        ("mount-namespace", errno.EPERM, {"kernel.unprivileged_userns_clone": "0"}, "kernel"),
        ("proc-mount", errno.EPERM, {"seccomp": 2}, "procfs"),
        ("proc-mount", errno.EACCES, {"apparmor": "docker-default"}, "apparmor"),
    ],
)
def test_each_refusal_names_its_layer(
    step: str, code: int, settings: dict[str, Any], layer: str
) -> None:
    found = judged({**GOOD, step: code}, **settings)
    assert (found[step]["ok"], found[step]["layer"]) == (False, layer)
    assert found[step]["detail"].startswith(errno.errorcode[code])
    assert found[step]["remedy"].endswith(".")
    assert all(found[other]["ok"] for other in STEPS if other != step)


def test_a_killed_trial_blames_seccomp_once_and_leaves_the_rest_untried() -> None:
    found = judged({"user-namespaces": 0, "killed": 31})
    assert found["id-maps"]["layer"] == "seccomp"
    assert found["id-maps"]["detail"] == "the trial was killed by SIGSYS"
    assert found["proc-mount"]["detail"] == "not tried, since id-maps failed"


def test_an_identity_that_could_not_be_taken_is_the_reason() -> None:
    found = judged({"identity": errno.EPERM})
    assert {fact["detail"] for fact in found.values()} == {"not tried, since identity failed"} | {
        "not tried, since user-namespaces failed"
    }
