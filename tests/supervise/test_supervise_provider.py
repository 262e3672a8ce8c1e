"""The supervisor and its network provider: every way to lose one, and none that is not a loss.

Providers are killed by the pid that their own run reported, never by name.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from supervise_cast import (
    NETWORK,
    NOBODY,
    PATIENCE_S,
    UIDS,
    Cast,
    Recorder,
    end_process,
    fake_provider,
)

from harness.supervise import (
    ExitStatus,
    Launch,
    LaunchRefused,
    OutcomeKind,
    ProgramMissing,
    ProviderSpec,
    supervise,
)
from harness.supervise.processes import close_fds, wait_readable
from harness.supervise.provider import STDERR_TAIL_BYTES, loopback_is_up

pytestmark = pytest.mark.usefixtures("provider_needs")

ZERO = ExitStatus(code=0)
READY = "os.write(READY, b'1'); os.close(READY)\n"
UNTIL_HANG_UP = "os.read(EXIT, 1)\n"


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Yield a pipe that a test may close early."""
    fds = os.pipe()
    yield fds
    close_fds(fds)


def network(text: str, bwrap: str, provider: ProviderSpec | None = None, **fields: Any) -> Launch:
    return Launch(
        ["sh", "-c", text],
        options=NETWORK,
        bwrap=bwrap,
        provider=provider or ProviderSpec(),
        **fields,
    )


def kill_provider(fields: Any) -> None:
    end_process(fields["pid"])


@pytest.mark.parametrize("uid", UIDS)
def test_the_provider_is_ready_before_the_command_runs(
    bwrap: str, cast: Cast, uid: int | None
) -> None:
    run = cast.supervisor(network("grep -q tap0 /proc/net/route && exit 9", bwrap), uid=uid)
    outcome = run.result()
    assert (outcome["kind"], outcome["exit-code"]) == ("exited", 9)
    names = [name for name, _ in run.events]
    assert names[3:9] == [
        *("child-identified", "network-prepared", "provider-started", "provider-ready"),
        *("provider-checked", "gate-opened"),
    ]
    assert names[-5:] == [
        *("workload-exited", "watch-disarmed", "monitor-exited", "sandbox-ended"),
        "provider-stopped",
    ]
    assert outcome["provider"]["exit"] == {"code": 0}
    assert outcome["provider"]["phase"] is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another uid")
def test_a_child_that_moved_to_a_second_user_namespace_still_gets_its_network(
    bwrap: str, cast: Cast
) -> None:
    # With --dev, and not as root, bwrap moves on; the provider is held back until it has.
    react = Recorder(network_prepared=lambda _: await_move(react.field("child-identified", "pid")))
    launch = Launch(
        ["grep", "-q", "tap0", "/proc/net/route"],
        options=[*NETWORK, "--dev", "/dev"],
        bwrap=bwrap,
        provider=ProviderSpec(),
    )
    outcome = cast.supervisor(launch, uid=NOBODY, react=react).result()
    assert (outcome["kind"], outcome["exit-code"]) == ("exited", 0), outcome


def await_move(pid: int) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(network, 0xB701)
    while os.path.samestat(os.stat(f"/proc/{pid}/ns/user"), os.fstat(owner)):
        pass
    close_fds([network, owner])


def test_no_provider_touches_the_network_before_bwrap_is_done_with_it(bwrap: str) -> None:
    def hold_child(fields: Any) -> None:
        status = json.loads(fields["line"])
        if "child-pid" in status:
            os.kill(status["child-pid"], signal.SIGSTOP)
            early.append(not loopback_is_up(status["child-pid"]))
            if not early[-1]:
                os.kill(status["child-pid"], signal.SIGCONT)

    early: list[bool] = []
    cpus = os.sched_getaffinity(0)
    # On one core the line is usually read before the child has had its turn.
    os.sched_setaffinity(0, {min(cpus)})
    try:
        for _ in range(30):
            recorder = Recorder(status_line=hold_child)
            launch = network("true", bwrap, gate_deadline_s=1.0)
            outcome = supervise(launch, on_event=recorder)
            if early and early[-1]:
                break
    finally:
        os.sched_setaffinity(0, cpus)
    if not (early and early[-1]):
        pytest.skip("the child was never stopped before it had configured its loopback")
    assert outcome.kind is OutcomeKind.GATE_TIMEOUT
    assert "provider-started" not in recorder.names


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount in another mount namespace")
def test_a_mount_that_is_not_bwraps_own_does_not_start_the_provider(
    bwrap: str, ends: tuple[int, int]
) -> None:
    # What the host mounts under a shared mount comes into the sandbox's namespace as well.
    info = os.open(os.devnull, os.O_WRONLY)
    done: list[int] = []

    def mount(pid: int) -> None:
        table = f"/proc/{pid}/mountinfo"
        while table not in {read_link(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}:
            pass
        words = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "mount", "-t", "tmpfs", "x", "/mnt"]
        done.append(subprocess.run(words, check=False).returncode)

    threads: list[threading.Thread] = []

    def disturb(fields: Any) -> None:
        threads.append(threading.Thread(target=mount, args=[fields["pid"]]))
        threads[0].start()

    # The child waits for its id maps, before it touches its network, and never gets them.
    held = ["--unshare-user", "--info-fd", str(info), "--userns-block-fd", str(ends[0])]
    launch = Launch(
        ["true"],
        options=[*NETWORK, *held],
        bwrap=bwrap,
        provider=ProviderSpec(),
        pass_fds=(info, ends[0]),
        gate_deadline_s=1.0,
        workload_deadline_s=1.0,
    )
    recorder = Recorder(child_identified=disturb)
    try:
        outcome = supervise(launch, on_event=recorder)
    finally:
        threads[0].join(PATIENCE_S)
        os.close(info)
    assert (done, outcome.kind) == ([0], OutcomeKind.GATE_TIMEOUT)
    assert "network-prepared" not in recorder.names


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_the_workload_reaches_the_hosts_loopback(bwrap: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("10.0.2.2", server.getsockname()[1])
        code = f"import socket; socket.create_connection({address!r}, 10).sendall(b'hi')"
        launch = Launch(
            [os.path.realpath(sys.executable), "-IS", "-c", code],
            options=NETWORK,
            bwrap=bwrap,
            provider=ProviderSpec(),
        )
        assert supervise(launch).succeeded
        peer, _ = server.accept()
        with peer:
            assert peer.recv(10) == b"hi"


@pytest.mark.parametrize("uid", UIDS)
def test_fifty_ordinary_teardowns_are_never_a_loss(bwrap: str, cast: Cast, uid: int | None) -> None:
    for turn in range(25 if uid is None else 50):
        run = cast.supervisor(network(f"exit {turn % 3}", bwrap), uid=uid)
        outcome = run.result()
        assert (outcome["kind"], outcome["exit-code"]) == ("exited", turn % 3), outcome


@pytest.mark.parametrize("uid", UIDS)
def test_a_provider_killed_mid_workload_fails_the_run(
    bwrap: str, cast: Cast, uid: int | None
) -> None:
    run = cast.supervisor(network("sleep 1000", bwrap), uid=uid)
    run.wait_for("gate-opened")
    end_process(run.field("provider-started", "pid"))
    outcome = run.result()
    assert (outcome["kind"], outcome["exit-code"]) == ("provider-lost", None)
    provider = outcome["provider"]
    assert (provider["name"], provider["exit"]) == ("slirp4netns", {"signal": 9})
    assert provider["phase"] == "workload"
    assert provider["pid"] == run.field("provider-started", "pid")


def test_only_the_run_whose_own_provider_is_killed_fails(
    bwrap: str, cast: Cast, ends: tuple[int, int]
) -> None:
    told = network("read x; grep -q tap0 /proc/net/route && exit 3", bwrap, stdin=ends[0])
    survivor = cast.supervisor(told)
    victim = cast.supervisor(network("sleep 1000", bwrap))
    for run in (survivor, victim):
        run.wait_for("gate-opened")
    end_process(victim.field("provider-started", "pid"))
    assert victim.result()["kind"] == "provider-lost"
    os.write(ends[1], b"go\n")
    outcome = survivor.result()
    assert (outcome["kind"], outcome["exit-code"]) == ("exited", 3)


def test_a_provider_killed_while_the_gate_is_held_never_lets_the_command_run(
    bwrap: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    recorder = Recorder()
    recorder = Recorder(
        provider_ready=lambda _: end_process(recorder.field("provider-started", "pid"))
    )
    mark = tmp_path / "ran"
    outcome = supervise(network(f"touch {mark}", bwrap, ready_fd=ends[0]), on_event=recorder)
    assert (outcome.kind, outcome.gate_opened) == (OutcomeKind.PROVIDER_LOST, False)
    assert outcome.provider is not None
    assert outcome.provider.phase == "before-gate"
    assert "gate-aborted" in recorder.names
    assert not mark.exists()


def test_a_provider_that_dies_after_saying_ready_is_caught_at_the_gate(
    bwrap: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    # The readiness byte is already there when the provider dies, inside the wake-up that would
    # open the gate: only the check right before the byte can tell.
    recorder = Recorder(
        readiness_reported=lambda _: end_process(recorder.field("provider-started", "pid")),
        provider_ready=lambda _: os.write(ends[1], b"x"),
    )
    mark = tmp_path / "ran"
    outcome = supervise(network(f"touch {mark}", bwrap, ready_fd=ends[0]), on_event=recorder)
    assert ("provider-checked", {"alive": False}) in recorder.events
    assert outcome.kind is OutcomeKind.PROVIDER_LOST
    assert outcome.provider is not None
    assert outcome.provider.phase == "before-gate"
    assert not mark.exists()


def test_a_provider_that_exits_successfully_before_the_gate_is_lost_too(
    bwrap: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    spec = ProviderSpec(program=fake_provider(tmp_path, READY), name="fake")
    outcome = supervise(network("true", bwrap, spec, ready_fd=ends[0]))
    assert outcome.kind is OutcomeKind.PROVIDER_LOST
    assert outcome.provider is not None
    assert (outcome.provider.exit, outcome.provider.phase) == (ZERO, "before-gate")


def test_a_provider_that_exits_successfully_mid_workload_is_lost_too(
    bwrap: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    spec = ProviderSpec(program=fake_provider(tmp_path, f"{READY}open({str(fifo)!r}).read()\n"))
    recorder = Recorder(gate_opened=lambda _: fifo.write_text("go"))
    outcome = supervise(network("sleep 1000", bwrap, spec), on_event=recorder)
    assert outcome.kind is OutcomeKind.PROVIDER_LOST
    assert outcome.provider is not None
    assert (outcome.provider.exit, outcome.provider.phase) == (ZERO, "workload")


def test_a_provider_that_never_becomes_ready_is_lost_at_its_start_with_its_last_words(
    bwrap: str,
) -> None:
    spec = ProviderSpec(extra_arguments=["--no-such-option"])
    outcome = supervise(network("true", bwrap, spec))
    assert (outcome.kind, outcome.gate_opened) == (OutcomeKind.PROVIDER_LOST, False)
    assert outcome.provider is not None
    assert outcome.provider.phase == "start"
    assert outcome.provider.exit is not None
    assert outcome.provider.exit.code not in (0, None)
    assert "no-such-option" in outcome.provider.stderr_tail


def test_a_provider_that_hangs_before_ready_runs_into_the_gates_deadline(
    bwrap: str, tmp_path: Path
) -> None:
    spec = ProviderSpec(program=fake_provider(tmp_path, UNTIL_HANG_UP))
    outcome = supervise(network("true", bwrap, spec, gate_deadline_s=0.3))
    assert (outcome.kind, outcome.gate_opened) == (OutcomeKind.GATE_TIMEOUT, False)


def test_the_stderr_tail_is_bounded_and_holds_the_end(bwrap: str, tmp_path: Path) -> None:
    body = "sys.stderr.write('x' * 300000 + 'the end')\nsys.exit(3)\n"
    outcome = supervise(network("true", bwrap, ProviderSpec(program=fake_provider(tmp_path, body))))
    assert outcome.provider is not None
    assert len(outcome.provider.stderr_tail) == STDERR_TAIL_BYTES
    assert outcome.provider.stderr_tail.endswith("the end")


def test_a_provider_that_ignores_the_hang_up_is_killed_and_is_no_loss(
    bwrap: str, tmp_path: Path
) -> None:
    spec = ProviderSpec(program=fake_provider(tmp_path, f"{READY}signal.pause()\n"))
    outcome = supervise(network("exit 2", bwrap, spec))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.EXITED, 2)
    assert outcome.provider is not None
    assert outcome.provider.exit is not None
    assert outcome.provider.exit.signal == signal.SIGKILL


def test_a_provider_that_drops_its_liveness_pipe_and_lives_is_lost(
    bwrap: str, tmp_path: Path
) -> None:
    body = f"{READY}os.closerange(3, EXIT); os.closerange(EXIT + 1, 100)\nsignal.pause()\n"
    spec = ProviderSpec(program=fake_provider(tmp_path, body))
    outcome = supervise(network("sleep 1000", bwrap, spec))
    assert outcome.kind is OutcomeKind.PROVIDER_LOST
    assert outcome.provider is not None
    assert outcome.provider.exit is None


def test_a_missing_provider_is_told_before_anything_is_started(bwrap: str) -> None:
    recorder = Recorder()
    with pytest.raises(ProgramMissing, match="no-such-provider"):
        supervise(
            network("true", bwrap, ProviderSpec(program="no-such-provider")), on_event=recorder
        )
    assert recorder.events == []


def test_a_provider_for_the_hosts_own_network_is_refused(bwrap: str) -> None:
    launch = Launch(
        ["true"], options=[*NETWORK, "--share-net"], bwrap=bwrap, provider=ProviderSpec()
    )
    recorder = Recorder()
    with pytest.raises(LaunchRefused, match="--unshare-net"):
        supervise(launch, on_event=recorder)
    assert "gate-opened" not in recorder.names


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("first", ["exit", "loss"])
@pytest.mark.parametrize("code", [0, 5])
def test_a_loss_and_an_exit_in_one_wake_up_follow_the_written_rule(
    bwrap: str, cast: Cast, ends: tuple[int, int], uid: int | None, first: str, code: int
) -> None:
    run = cast.supervisor(network("read x; exit $x", bwrap, stdin=ends[0]), uid=uid)
    run.wait_for("gate-opened")
    monitor = run.hold(run.field("monitor-started", "pid"))
    run.stop()
    if first == "loss":
        end_process(run.field("provider-started", "pid"))
    os.write(ends[1], f"{code}\n".encode())
    assert wait_readable([monitor.pidfd], PATIENCE_S)
    if first == "exit":
        end_process(run.field("provider-started", "pid"))
    run.proceed()
    outcome = run.result()
    kind = "exited" if code == 0 else "provider-lost"
    assert (outcome["kind"], outcome["exit-code"]) == (kind, code)


def test_a_loss_that_shows_while_the_failure_is_being_read_is_found(bwrap: str) -> None:
    def lose(fields: Any) -> None:
        if "exit-code" in fields["line"]:
            end_process(recorder.field("provider-started", "pid"))

    recorder = Recorder(status_line=lose)
    outcome = supervise(network("exit 6", bwrap), on_event=recorder)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.PROVIDER_LOST, 6)


def test_a_stopped_supervisor_whose_deadline_passed_still_opens_a_gate_that_is_ready(
    bwrap: str, cast: Cast, ends: tuple[int, int]
) -> None:
    run = cast.supervisor(network("exit 8", bwrap, ready_fd=ends[0], gate_deadline_s=1.0))
    run.wait_for("provider-ready")
    run.stop()
    os.write(ends[1], b"x")
    assert wait_readable([run.process.pidfd], 1.1) == []  # The deadline passes; it stays stopped.
    run.proceed()
    outcome = run.result()
    assert (outcome["kind"], outcome["exit-code"]) == ("exited", 8)


@pytest.mark.parametrize("uid", UIDS)
def test_a_killed_supervisor_leaves_neither_sandbox_nor_provider(
    bwrap: str, cast: Cast, uid: int | None
) -> None:
    run = cast.supervisor(network("sleep 1000", bwrap), uid=uid)
    run.wait_for("gate-opened")
    held = [
        run.hold(run.field(event, "pid"))
        for event in ("guard-started", "monitor-started", "child-identified", "provider-started")
    ]
    run.stop()
    while not Path(f"/proc/{held[2].pid}/task/{held[2].pid}/children").read_text():
        pass  # pid 1 arms its death signal right after it forked the command.
    run.kill()
    for each in held:
        assert wait_readable([each.pidfd], PATIENCE_S), each.pid
        each.reap_if_inherited()


def test_runs_in_several_threads_do_not_hold_each_others_pipes(bwrap: str) -> None:
    outcomes = []

    def work(code: int) -> None:
        outcomes.append(supervise(network(f"exit {code}", bwrap)).exit_code)

    threads = [threading.Thread(target=work, args=(code,)) for code in (1, 2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(code or 0 for code in outcomes) == [1, 2, 3]
