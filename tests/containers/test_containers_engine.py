"""The real harness with real containers, on an engine of our own: what is left, what is said."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest
from engine_place import CHECKOUT, HARNESS, OwnEngine, harness, surroundings

from harness.backends.docker import IMAGE_DEADLINE_S, SILENT_DEADLINE_S, Engine
from harness.backends.ownership import LABEL_OWNER
from harness.containers import Containers
from harness.errors import EnvironmentUnfit
from harness.images import default_cache, read_catalogue

#: The first test waits for the image, which a loaded machine without a cache may take minutes over.
pytestmark = pytest.mark.timeout(900)

SIMPLE = """\
id: simple.{name}
title: The exit status of a command is the one it gave
clauses: [T-1]
sandbox:
  command: {{shell: "exit 7"}}
expect:
  - exit: {{of: monitor, code: 7}}
"""

ROOT = """\
id: simple.root
title: A sandbox of root's has its own network, and root's bwrap needs capabilities for that
clauses: [T-1]
user: root
sandbox:
  args: [--unshare-net, --unshare-pid]
  command: {shell: "exit 7"}
expect:
  - exit: {of: monitor, code: 7}
"""

LONG = """\
id: long.{name}
title: The command of this scenario runs until it is ended
clauses: [T-1]
sandbox:
  command: {{shell: "touch $SCRATCH/ran; sleep 300"}}
steps:
  - wait: {{marker: ran}}
  - wait: {{exit: monitor}}
    within: 250s
    trigger: true
expect:
  - exit: {{of: monitor, code: 0}}
"""

#: More lines than all pipes on the way have room for, so that each of them is full for a while.
FLOOD = """\
id: flood.lines
title: The last of many lines arrives as well as the first
clauses: [T-1]
sandbox:
  command: {shell: "i=0; while [ $i -lt 4000 ]; do echo $i; i=$((i+1)); done; exit 7"}
expect:
  - exit: {of: monitor, code: 7}
"""


def run_of(place: Path) -> dict[str, Any]:
    """``results.json`` of the newest run."""
    found: dict[str, Any] = json.loads((place / "reports/latest/results.json").read_text())
    return found


def statuses(place: Path) -> dict[str, str]:
    return {each["id"]: each["status"] for each in run_of(place)["results"]}


def assert_civil(said: str) -> None:
    """Words for people, and no traceback."""
    assert "Traceback" not in said
    assert "fault of the harness itself" not in said


class Running:
    """A harness in the background, whose words are read as they come."""

    def __init__(self, place: Path, address: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [HARNESS, *arguments],
            cwd=place,
            env=surroundings(address),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self._stderr: IO[str] = self.process.stderr
        self.said = ""

    def hear(self, words: str) -> None:
        """Wait until it has said that."""
        while words not in self.said:
            line = self._stderr.readline()
            assert line, f"it ended without saying {words!r}: {self.said}"
            self.said += line

    def finish(self) -> int:
        """Wait for its end; returns its exit status."""
        self.said += self._stderr.read()
        self._stderr.close()
        return self.process.wait(60)


def wait_until_recorded(place: Path, count: int, words: str) -> None:
    """Wait until so many recordings have these words; the files grow as things happen."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = place.glob("reports/latest/timelines/*/long.*.jsonl")
        if sum(words in file.read_text() for file in files) == count:
            return
        time.sleep(0.02)
    raise AssertionError("the scenarios did not come so far")


@pytest.fixture
def long_run(engine: OwnEngine, image: str, place: Path) -> Iterator[Running]:
    """A run that has finished one scenario and is in the middle of two others."""
    (place / "a.yaml").write_text(SIMPLE.format(name="done"))
    for name in ("one", "two", "three"):
        (place / f"{name}.yaml").write_text(LONG.format(name=name))
    running = Running(place, engine.address, "run", ".", "-j2", "--subject", image)
    running.hear("simple.done")
    wait_until_recorded(place, 2, '"marker-seen"')
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.finish()


# --- images --------------------------------------------------------------------------------------


def listed(engine: OwnEngine, place: Path, *more: str) -> dict[str, dict[str, Any]]:
    done = harness(["images", "list", "--format", "json", *more], place, engine.address)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


@pytest.mark.usefixtures("image")
def test_a_built_image_is_listed_with_what_is_in_it(engine: OwnEngine, place: Path) -> None:
    found = listed(engine, place)
    bookworm = found["debian-bookworm"]
    assert (bookworm["state"], bookworm["bwrap"]) == ("built", "0.8.0")
    assert bookworm["built_from"] == "bootstrap"
    assert bookworm["digest"].startswith("sha256:")
    assert set(bookworm["packages"]) == {
        *("bubblewrap", "slirp4netns", "passt", "python3", "strace", "iproute2"),
        *("util-linux", "bash"),
    }
    assert found["debian-trixie"]["state"] == "missing"


def changed_definitions(place: Path, registry: str) -> Path:
    """A copy of ``containers/`` with one image of another base and nothing to install."""
    folder = place / "definitions"
    (folder / "images").mkdir(parents=True)
    (folder / "profile.toml").write_bytes((CHECKOUT / "containers/profile.toml").read_bytes())
    (folder / "Dockerfile.template").write_text("FROM {{registry}}\nRUN true\n{{config}}\n")
    text = (CHECKOUT / "containers/images/debian-bookworm.toml").read_text()
    (folder / "images/debian-bookworm.toml").write_text(
        text.replace("debian:bookworm-slim", registry)
    )
    return folder


@pytest.mark.usefixtures("image")
def test_an_image_of_another_definition_is_stale(engine: OwnEngine, place: Path) -> None:
    folder = changed_definitions(place, "debian:other")
    assert listed(engine, place, "--containers", str(folder))["debian-bookworm"]["state"] == "stale"


@pytest.mark.usefixtures("image")
def test_a_registrys_image_ends_in_the_same_tag_and_labels(engine: OwnEngine, place: Path) -> None:
    # A base that the engine has counts as one that it could pull: no registry is reached.
    folder = changed_definitions(place, "bwrap-harness:debian-bookworm")
    (folder / "images/debian-bookworm.toml").rename(folder / "images/other.toml")
    containers = ["--containers", str(folder)]
    built = harness(
        ["images", "build", "other", "--from", "registry", *containers], place, engine.address
    )
    assert built.returncode == 0, built.stderr
    other = listed(engine, place, *containers)["other"]
    bookworm = listed(engine, place)["debian-bookworm"]
    assert (other["state"], other["built_from"]) == ("built", "registry")
    assert other["tag"] == "bwrap-harness:other"
    assert (other["bwrap"], other["packages"]) == (bookworm["bwrap"], bookworm["packages"])


@pytest.mark.usefixtures("image")
def test_auto_falls_back_to_bootstrap_with_one_line(engine: OwnEngine, place: Path) -> None:
    folder = changed_definitions(place, "localhost:1/debian:bookworm-slim")
    (folder / "images/debian-bookworm.toml").rename(folder / "images/fallen.toml")
    catalogue = read_catalogue(folder)
    ours, known = read_catalogue(CHECKOUT / "containers"), "debian-bookworm"
    cache = place / "cache"
    cache.mkdir()
    digest = ours[known].digest(ours.template)[:16]
    new = catalogue["fallen"].digest(catalogue.template)[:16]
    (cache / f"fallen-{new}.tar").symlink_to(default_cache() / f"{known}-{digest}.tar")
    done = harness(
        ["images", "build", "fallen", "--containers", str(folder), "--cache", str(cache)],
        place,
        engine.address,
    )
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("fallen: no registry (")
    assert first.endswith("bootstrapping instead")
    assert listed(engine, place, "--containers", str(folder))["fallen"]["built_from"] == "bootstrap"


# --- runs ----------------------------------------------------------------------------------------


def test_two_workers_share_one_container_and_scenarios_pass(
    engine: OwnEngine, image: str, place: Path
) -> None:
    for name in ("one", "two", "three", "four"):
        (place / f"{name}.yaml").write_text(SIMPLE.format(name=name))
    done = harness(["run", ".", "-j2", "--subject", image], place, engine.address)
    assert done.returncode == 0, done.stderr
    assert set(statuses(place).values()) == {"pass"}
    (subject,) = run_of(place)["subjects"]
    assert (subject["version"], subject["uid"]) == ("0.8.0", 65534)
    assert subject["image_digest"].startswith("sha256:")
    assert engine.containers() == []


def test_a_scenario_of_roots_runs_in_a_container(
    engine: OwnEngine, image: str, place: Path
) -> None:
    (place / "root.yaml").write_text(ROOT)
    done = harness(["run", ".", "--subject", image], place, engine.address)
    assert (done.returncode, statuses(place)) == (0, {"simple.root": "pass"}), done.stderr


def test_an_image_and_a_local_subject_give_the_same_kinds_of_events(
    engine: OwnEngine, image: str, place: Path
) -> None:
    (place / "one.yaml").write_text(SIMPLE.format(name="one"))
    arguments = ["run", ".", "--subject", image, "--subject", "bundled"]
    done = harness(arguments, place, engine.address)
    assert done.returncode == 0, done.stderr
    files = sorted((place / "reports/latest/timelines").glob("*/simple.one.jsonl"))
    assert len(files) == 2
    kinds = [
        sorted({json.loads(line)["kind"] for line in file.read_text().splitlines()})
        for file in files
    ]
    assert kinds[0] == kinds[1]


def test_a_flood_of_lines_arrives_whole_and_in_order(
    engine: OwnEngine, image: str, place: Path
) -> None:
    (place / "flood.yaml").write_text(FLOOD)
    done = harness(["run", ".", "--subject", image], place, engine.address)
    assert done.returncode == 0, done.stderr
    (file,) = (place / "reports/latest/timelines").glob("*/flood.lines.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    lines = [event["data"]["text"] for event in events if event["kind"] == "line-read"]
    assert lines == [str(n) for n in range(4000)]


# --- what is left --------------------------------------------------------------------------------


def test_a_killed_harness_leaves_no_container(engine: OwnEngine, long_run: Running) -> None:
    assert len(engine.containers()) == 1
    long_run.process.kill()
    long_run.finish()
    assert engine.wait_for_no_container(20) == []


def test_an_interrupted_harness_leaves_no_container_and_a_report(
    engine: OwnEngine, long_run: Running, place: Path
) -> None:
    long_run.process.send_signal(signal.SIGINT)
    assert long_run.finish() == 130
    assert_civil(long_run.said)
    assert engine.containers() == []
    assert statuses(place) == {"simple.done": "pass"}


def test_a_dead_engine_gives_an_incomplete_run_and_keeps_what_was_recorded(
    engine: OwnEngine, long_run: Running, place: Path
) -> None:
    engine.kill()
    try:
        status = long_run.finish()
    finally:
        assert engine.start() == ""
    assert status == 7
    assert_civil(long_run.said)
    assert "the docker engine at" in long_run.said
    assert statuses(place) == {
        "simple.done": "pass",
        **{f"long.{name}": "error" for name in ("one", "two", "three")},
    }
    wait_until_recorded(place, 2, '"marker-seen"')
    again = harness(["report", "latest"], place, engine.address)
    assert again.returncode == 7
    assert engine.wait_for_no_container(20) == []


def test_what_a_dead_harness_left_is_swept_at_the_next_start(
    engine: OwnEngine, image: str, place: Path
) -> None:
    client = engine.client()
    try:
        labels = {
            "ours": "gone-boot/1 1 1",
            "dead": f"{_machine()} {_pid_of_nobody()} 12345",
        }
        made = {
            name: client.api.create_container(
                "bwrap-harness:debian-bookworm", ["true"], labels={LABEL_OWNER: owner}
            )["Id"]
            for name, owner in labels.items()
        }
        try:
            (place / "one.yaml").write_text(SIMPLE.format(name="one"))
            done = harness(["run", ".", "--subject", image], place, engine.address)
            assert done.returncode == 0, done.stderr
            assert engine.containers() == [made["ours"]]  # another machine's: none of our business
        finally:
            client.api.remove_container(made["ours"], force=True)
    finally:
        client.close()


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _pid_of_nobody() -> int:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


# --- what is said when it cannot be --------------------------------------------------------------


@pytest.mark.usefixtures("image")
def test_a_missing_image_names_the_command_that_builds_it(engine: OwnEngine, place: Path) -> None:
    (place / "one.yaml").write_text(SIMPLE.format(name="one"))
    done = harness(["run", ".", "--subject", "image:debian-trixie"], place, engine.address)
    assert done.returncode == 4
    assert "harness images build debian-trixie" in done.stderr
    assert_civil(done.stderr)


@pytest.mark.usefixtures("image")
def test_an_unknown_image_lists_those_there_are(engine: OwnEngine, place: Path) -> None:
    (place / "one.yaml").write_text(SIMPLE.format(name="one"))
    done = harness(["run", ".", "--subject", "image:debian-potato"], place, engine.address)
    assert done.returncode == 4
    assert "debian-bookworm" in done.stderr


@pytest.mark.parametrize("command", [["images", "list"], ["run", ".", "--subject", "image:x"]])
def test_no_engine_is_one_message_and_exit_4(place: Path, command: list[str]) -> None:
    (place / "one.yaml").write_text(SIMPLE.format(name="one"))
    done = harness(command, place, f"unix://{place}/nobody.sock")
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "DOCKER_HOST" in done.stderr


def test_an_engine_that_never_says_a_word_is_given_up(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.backends.docker.ANSWER_DEADLINE_S", 0.2)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/silent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place / "silent.sock"))
        silent.listen()
        with pytest.raises(EnvironmentUnfit, match=r"no docker engine answers at .*silent\.sock"):
            Engine.connect()


def test_an_engine_that_hangs_later_is_given_up_too(
    engine: OwnEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.backends.docker.REQUEST_DEADLINE_S", 0.5)
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    client = Engine.connect()
    try:
        with engine.stopped(), pytest.raises(EnvironmentUnfit, match=r"list containers: timed out"):
            client.sweep()
        assert client._api.timeout == SILENT_DEADLINE_S
        assert client.sweep() == []
        with client._made("an image"):
            assert client._api.timeout == IMAGE_DEADLINE_S
        assert client._api.timeout == 0.5
    finally:
        client.close()


@pytest.mark.parametrize("is_there", [False, True], ids=["nobody there", "hangs up"])
def test_an_engine_that_does_not_answer_leaves_no_connection_open(
    place: Path, is_there: bool
) -> None:
    with socket.socket(socket.AF_UNIX) as deaf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{place}/deaf.sock")
        hanging_up = threading.Thread(target=lambda: deaf.accept()[0].close())
        if is_there:
            deaf.bind(str(place / "deaf.sock"))
            deaf.listen()
            hanging_up.start()
        gc.disable()  # whether it ran by chance must not decide
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(EnvironmentUnfit, match="DOCKER_HOST"):
            Engine.connect()
        after = len(os.listdir("/proc/self/fd"))
        gc.enable()
        if is_there:
            hanging_up.join()
    assert after == before


def without(engine: OwnEngine, name: str, command: str) -> None:
    """An image less something, as ``bwrap-harness:NAME``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.address)
        own = Engine.connect()
    try:
        made = own.build(f"FROM bwrap-harness:debian-bookworm\nRUN {command}\n")
        own.commit(made, f"bwrap-harness:{name}", [])
    finally:
        own.close()


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        ("no-python", "rm /usr/bin/python3*", "has no python3"),
        ("little-python", "rm -r /usr/lib/python3*/ctypes", "not python3-minimal"),
        ("no-bwrap", "rm /usr/bin/bwrap", "no bwrap"),
        ("no-shell", "rm /bin/sh", "would not start a container"),
    ],
)
def test_an_image_that_lacks_something_is_one_message_and_exit_4(
    engine: OwnEngine, place: Path, name: str, command: str, words: str
) -> None:
    without(engine, name, command)
    (place / "one.yaml").write_text(SIMPLE.format(name="one"))
    done = harness(["run", ".", "--subject", f"image:{name}"], place, engine.address)
    assert done.returncode == 4, done.stderr
    assert words in done.stderr
    assert_civil(done.stderr)
    assert engine.containers() == []


# --- the profile ---------------------------------------------------------------------------------


@pytest.fixture
def containers(engine: OwnEngine, image: str) -> Iterator[Containers]:  # noqa: ARG001
    """Where subjects are opened, without a command line around it."""
    read_end, write_end = os.pipe()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as log:
        patch.setenv("DOCKER_HOST", engine.address)
        opened = Containers.open(
            None,
            as_root=True,
            tell=lambda _text: None,
            stop_fd=read_end,
            log=log,
            definitions=CHECKOUT / "containers",
        )
        yield opened
        opened.close()
    os.close(read_end)
    os.close(write_end)


def without_knob(containers: Containers, name: str) -> Containers:
    profile = containers.catalogue.profile.without(name)
    return dataclasses.replace(
        containers, catalogue=dataclasses.replace(containers.catalogue, profile=profile)
    )


def unmet(containers: Containers, image: str) -> set[str]:
    """The facts that are not as sandboxes need them, in a container of that profile."""
    with ExitStack() as stack:
        environment = containers.open_target(image, [], stack).environment
    return {name for name, fact in environment.items() if not fact["ok"]}


@pytest.mark.parametrize(
    ("knob", "missing"),
    [
        ("", set()),
        ("seccomp", {"sandbox"}),
        ("masked-paths", {"proc-mount"}),
        ("readonly-paths", {"proc-mount"}),
        ("tun", {"tun"}),
    ],
)
def test_each_knob_of_the_profile_is_needed(
    containers: Containers, image: str, knob: str, missing: set[str]
) -> None:
    assert unmet(without_knob(containers, knob), image) == missing


def test_no_subject_proves_itself_to_a_recorder_that_cannot_look_at_others(
    containers: Containers, image: str
) -> None:
    with pytest.raises(EnvironmentUnfit, match="is not bubblewrap"):
        unmet(without_knob(containers, "look-at-other-users"), image)


@pytest.mark.parametrize("knob", ["make-namespaces", "loopback-up"])
def test_each_knob_for_root_is_needed(
    engine: OwnEngine, image: str, place: Path, knob: str
) -> None:
    folder = place / "definitions"
    shutil.copytree(CHECKOUT / "containers", folder)
    text = (folder / "profile.toml").read_text()
    before, _, after = text.partition(f'[[root]]\nname = "{knob}"')
    (folder / "profile.toml").write_text(before + after.partition("\n\n")[2])
    folder.rename(place / "containers")  # where definitions are looked for first
    (place / "root.yaml").write_text(ROOT)
    done = harness(["run", "root.yaml", "--subject", image], place, engine.address)
    assert done.returncode == 1, done.stderr
