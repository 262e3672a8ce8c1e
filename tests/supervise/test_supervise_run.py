"""The supervisor against a real bwrap, without a provider."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from supervise_cast import BASE, PATIENCE_S, UIDS, Cast, Recorder, end_process

from harness.supervise import (
    EVENTS,
    Launch,
    LaunchRefused,
    Outcome,
    OutcomeKind,
    ProgramMissing,
    SandboxSpec,
    SuperviseError,
    bwrap_arguments,
    cancel_on_signals,
    supervise,
)
from harness.supervise.processes import children_of, close_fds, wait_readable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Yield a pipe that a test may close early."""
    fds = os.pipe()
    yield fds
    close_fds(fds)


@pytest.fixture
def reader() -> Iterator[Any]:
    """Yield a function that runs a launch and returns the outcome and what it printed."""
    read_end, write_end = os.pipe()

    def run(command: str, **fields: Any) -> tuple[Outcome, str]:
        launch = Launch(["sh", "-c", command], options=BASE, stdout=write_end, **fields)
        outcome = supervise(launch)
        os.write(write_end, b"\0")
        text = b""
        while not text.endswith(b"\0"):
            text += os.read(read_end, 65536)
        return outcome, text[:-1].decode()

    yield run
    os.close(read_end)
    os.close(write_end)


def shell(text: str, bwrap: str, **fields: Any) -> Launch:
    return Launch(["sh", "-c", text], options=BASE, bwrap=bwrap, **fields)


@pytest.mark.parametrize("code", [0, 1, 7, 42, 127, 128, 137, 255])
def test_the_commands_exit_code_is_the_outcomes(bwrap: str, code: int) -> None:
    outcome = supervise(shell(f"exit {code}", bwrap))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.EXITED, code)
    assert outcome.monitor.code == code
    assert outcome.succeeded is (code == 0)


def test_a_command_killed_by_a_signal_is_not_called_signalled(bwrap: str) -> None:
    outcome = supervise(shell("kill -9 $$", bwrap))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.EXITED, 137)


def test_events_of_an_ordinary_run_come_in_order_with_their_declared_fields(bwrap: str) -> None:
    recorder = Recorder()
    supervise(shell("exit 3", bwrap), on_event=recorder)
    assert recorder.names == [
        *("guard-started", "monitor-started", "status-line", "child-identified", "gate-opened"),
        *("status-line", "workload-exited", "monitor-exited", "sandbox-ended"),
    ]
    assert [tuple(fields) for _, fields in recorder.events] == [
        EVENTS[name] for name in recorder.names
    ]


def test_bwrap_killed_by_a_signal_is_signalled_and_nothing_is_left(bwrap: str) -> None:
    recorder = Recorder(gate_opened=lambda _: end_process(monitor(), signal.SIGTERM))

    def monitor() -> int:
        return int(recorder.field("monitor-started", "pid"))

    outcome = supervise(shell("sleep 1000", bwrap), on_event=recorder)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.SIGNALLED, None)
    assert outcome.monitor.signal == signal.SIGTERM


@pytest.mark.parametrize("attempt", range(20))
def test_bwrap_killed_right_after_its_start_leaves_nothing(bwrap: str, attempt: int) -> None:
    recorder = Recorder(monitor_started=lambda fields: kill_after(fields["pid"], attempt))
    outcome = supervise(shell("sleep 1000", bwrap), on_event=recorder)
    assert outcome.kind is OutcomeKind.SIGNALLED


def kill_after(pid: int, turns: int) -> None:
    # A busy wait of growing length: the kill lands before, within and after bwrap's own fork.
    for _ in range(turns * 3):
        children_of(pid)
    end_process(pid)


@pytest.mark.parametrize(
    ("options", "command", "launched"),
    [
        (["--no-such-option"], "true", False),
        (["--ro-bind", "/no/such/source", "/x"], "true", True),
        ([], "/no/such/command", True),
    ],
    ids=["unknown option", "missing source", "missing command"],
)
def test_a_failed_set_up_is_told_from_a_failed_command(
    bwrap: str, ends: tuple[int, int], options: list[str], command: str, launched: bool
) -> None:
    launch = Launch([command], options=[*BASE, *options], bwrap=bwrap, stderr=ends[1])
    outcome = supervise(launch)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.SETUP_FAILED, None)
    assert outcome.monitor.code == 1
    assert (outcome.child_pid is not None) is launched


def test_a_gate_that_times_out_never_lets_the_command_run(
    bwrap: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    recorder = Recorder()
    mark = tmp_path / "ran"
    launch = shell(f"touch {mark}", bwrap, ready_fd=ends[0], gate_deadline_s=0.2)
    outcome = supervise(launch, on_event=recorder)
    assert (outcome.kind, outcome.gate_opened) == (OutcomeKind.GATE_TIMEOUT, False)
    assert recorder.names[-4:] == [
        *("deadline-passed", "monitor-exited", "sandbox-ended", "gate-aborted"),
    ]
    assert not mark.exists()


def test_readiness_that_ends_without_a_byte_never_lets_the_command_run(
    bwrap: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    os.close(ends[1])
    outcome = supervise(shell(f"touch {mark}", bwrap, ready_fd=ends[0]))
    os.dup2(ends[0], ends[1])  # The fixture closes both numbers.
    assert (outcome.kind, outcome.gate_opened) == (OutcomeKind.READINESS_FAILED, False)
    assert not mark.exists()


def test_the_gate_waits_for_the_callers_byte(bwrap: str, ends: tuple[int, int]) -> None:
    recorder = Recorder(child_identified=lambda _: os.write(ends[1], b"x"))
    outcome = supervise(shell("exit 4", bwrap, ready_fd=ends[0]), on_event=recorder)
    assert outcome.exit_code == 4
    assert recorder.names.index("readiness-reported") < recorder.names.index("gate-opened")


def test_a_workload_past_its_deadline_is_ended(bwrap: str) -> None:
    outcome = supervise(shell("sleep 1000", bwrap, workload_deadline_s=0.1))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.WORKLOAD_TIMEOUT, None)


@pytest.mark.parametrize("moment", ["monitor-started", "child-identified", "gate-opened"])
@pytest.mark.parametrize("how", ["byte", "hang-up"])
def test_a_cancelled_run_is_ended(bwrap: str, ends: tuple[int, int], moment: str, how: str) -> None:
    def cancel(_: object) -> None:
        if how == "byte":
            os.write(ends[1], b"x")
        else:
            os.dup2(ends[0], ends[1])  # Closes the write end, keeps the number.

    recorder = Recorder(**{moment.replace("-", "_"): cancel})
    outcome = supervise(shell("sleep 1000", bwrap), on_event=recorder, cancel_fd=ends[0])
    assert outcome.kind is OutcomeKind.CANCELLED
    assert "cancel-requested" in recorder.names


def test_a_signal_cancels_through_the_context_manager_and_handlers_come_back(bwrap: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    recorder = Recorder(gate_opened=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with cancel_on_signals([signal.SIGTERM]) as cancel_fd:
        outcome = supervise(shell("sleep 1000", bwrap), on_event=recorder, cancel_fd=cancel_fd)
    assert outcome.kind is OutcomeKind.CANCELLED
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "moment", ["guard-started", "monitor-started", "child-identified", "gate-opened"]
)
def test_an_exception_from_the_callback_leaves_nothing(
    bwrap: str, tmp_path: Path, moment: str
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError(moment)

    mark = tmp_path / "ran"
    recorder = Recorder(**{moment.replace("-", "_"): fail})
    with pytest.raises(RuntimeError, match=moment):
        supervise(shell(f"sleep 1000; touch {mark}", bwrap), on_event=recorder)


def test_a_bwrap_that_hangs_before_its_first_line_is_ended_with_its_children(
    tmp_path: Path,
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\nsleep 1000 &\nsleep 1000 &\nwait\n")
    program.chmod(0o755)
    outcome = supervise(Launch(["true"], bwrap=str(program), gate_deadline_s=0.2))
    assert (outcome.kind, outcome.child_pid) == (OutcomeKind.GATE_TIMEOUT, None)


def test_a_background_process_that_outlives_the_command_is_gone_on_return(bwrap: str) -> None:
    outcome = supervise(shell("setsid sleep 1000 & exit 5", bwrap))
    assert outcome.exit_code == 5  # That nothing is left is the fixture's claim.


def test_pid_1_is_dead_and_reaped_on_return(bwrap: str) -> None:
    outcome = supervise(shell("true", bwrap))
    assert not Path(f"/proc/{outcome.child_pid}").exists()


def test_stdio_descriptors_may_be_swapped_and_only_declared_ones_pass(
    bwrap: str, reader: Any
) -> None:
    secret = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(secret, True)
    declared = os.open("/dev/zero", os.O_RDONLY)
    high = os.dup2(secret, 77)
    try:
        outcome, text = reader("echo /proc/self/fd/*", bwrap=bwrap, pass_fds=[declared])
    finally:
        close_fds([secret, declared, high])
    assert outcome.succeeded
    seen = {each.rpartition("/")[2] for each in text.split()}
    assert seen - {"0", "1", "2", str(declared)} <= {"3", "4", "5"}  # The shell's own listing.
    assert "77" not in seen
    assert str(declared) in seen


def test_a_blocked_mask_and_ignored_signals_of_the_caller_do_not_reach_the_command(
    bwrap: str, reader: Any
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
    try:
        _, text = reader("grep -E 'SigBlk|SigIgn' /proc/self/status", bwrap=bwrap)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    blocked, ignored = (int(line.split()[1], 16) for line in text.splitlines())
    # 32 and 33 are the C library's own, and ignored in what posix_spawn(3) started, as make does.
    own = 1 << 31 | 1 << 32
    assert (blocked, ignored & ~own) == (0, 0)


def test_environment_and_directory_are_the_launchs(bwrap: str, reader: Any) -> None:
    outcome, text = reader(
        "echo $ONE $TWO; pwd", bwrap=bwrap, env={"ONE": "1", "PATH": "/bin:/usr/bin"}, cwd="/usr"
    )
    assert outcome.succeeded
    assert text == "1\n/usr\n"


def test_ignored_sigchld_is_refused_with_the_remedy(bwrap: str) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(LaunchRefused, match="SIG_DFL"):
            supervise(shell("true", bwrap))
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"options": ["--block-fd", "9"]}, "--block-fd"),
        ({"options": ["--"]}, "'--'"),
        ({"pass_fds": [1234]}, "1234 is not open"),
        ({"pass_fds": [1]}, "name stdio"),
        ({"command": []}, "command"),
    ],
)
def test_a_launch_that_contradicts_supervision_is_refused(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(LaunchRefused, match=said):
        supervise(Launch(**{"command": ["true"], **fields}))


@pytest.mark.parametrize("mode", [None, 0o644, 0o755])
def test_a_bwrap_that_cannot_be_executed_is_our_error(tmp_path: Path, mode: int | None) -> None:
    program = tmp_path / "bwrap"
    if mode is not None:
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(mode)
    with pytest.raises(ProgramMissing, match="bwrap"):
        supervise(Launch(["true"], bwrap=str(program)))


def test_a_missing_directory_is_not_taken_for_a_missing_bwrap(bwrap: str) -> None:
    with pytest.raises(SuperviseError, match="/no/such/directory") as caught:
        supervise(shell("true", bwrap, cwd="/no/such/directory"))
    assert not isinstance(caught.value, ProgramMissing)


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize(
    "moment", ["guard-started", "monitor-started", "status-line", "child-identified"]
)
def test_a_supervisor_killed_before_the_gate_opens_leaves_nothing_and_ran_nothing(
    bwrap: str, cast: Cast, ends: tuple[int, int], tmp_path: Path, uid: int | None, moment: str
) -> None:
    tmp_path.chmod(0o777)
    mark = tmp_path / "ran"
    run = cast.supervisor(shell(f"touch {mark}", bwrap, ready_fd=ends[0]), uid=uid)
    run.wait_for(moment)
    run.kill()
    # Every orphan comes to us: that there are no more means that nothing is left.
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_ALL, 0, os.WEXITED):
            pass
    assert not mark.exists()


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("subject", ["supervisor", "monitor"])
def test_without_a_guard_a_death_at_the_gate_still_never_lets_the_command_run(
    bwrap: str, cast: Cast, ends: tuple[int, int], tmp_path: Path, uid: int | None, subject: str
) -> None:
    tmp_path.chmod(0o777)
    mark = tmp_path / "ran"
    launch = shell(f"touch {mark}", bwrap, ready_fd=ends[0], guard=False)
    run = cast.supervisor(launch, uid=uid)
    monitor = run.hold(run.wait_for("monitor-started")["pid"])
    child = run.hold(run.wait_for("child-identified")["pid"])
    if subject == "supervisor":
        run.kill()
    else:
        monitor.kill()
        assert run.result()["kind"] == "signalled"
    assert wait_readable([monitor.pidfd], PATIENCE_S)
    # The length of a launch passes: long enough for an opened gate to show.
    supervise(shell("true", bwrap))
    assert not mark.exists()
    # The documented limit: bwrap arms the child's death signal only behind the gate.
    child.kill()
    assert wait_readable([child.pidfd], PATIENCE_S)
    monitor.reap_if_inherited()
    child.reap_if_inherited()
    assert not mark.exists()


@pytest.mark.parametrize("uid", UIDS)
def test_a_supervisor_killed_mid_workload_takes_the_sandbox_with_it(
    bwrap: str, cast: Cast, uid: int | None
) -> None:
    run = cast.supervisor(shell("touch /dev/null; sleep 1000", bwrap), uid=uid)
    monitor = run.hold(run.wait_for("monitor-started")["pid"])
    child = run.hold(run.wait_for("child-identified")["pid"])
    run.wait_for("gate-opened")
    # pid 1 arms its death signal some time after the gate: its child's existence shows it.
    while not children_of(child.pid):
        pass
    guard = run.hold(run.field("guard-started", "pid"))
    run.kill()
    for each in (monitor, child, guard):
        assert wait_readable([each.pidfd], PATIENCE_S)
        each.reap_if_inherited()


def test_a_control_socket_crosses_into_the_sandbox(bwrap: str, tmp_path: Path) -> None:
    directory = tmp_path / "control"
    directory.mkdir()
    path = str(directory / "socket")
    spec = SandboxSpec(
        read_only=[sys.base_prefix] if not sys.base_prefix.startswith("/usr") else [],
        control_socket=path,
        environment=["GREETING", "UNSET_ANYWHERE"],
    )
    code = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); "
        f"s.connect({path!r});"
        "s.sendall(repr((os.environ['GREETING'], os.environ['HOME'], os.getcwd(),"
        "sorted(os.listdir('/tmp')), os.access('/usr/x', os.W_OK))).encode())"
    )
    options = bwrap_arguments(
        spec, environ={**os.environ, "GREETING": "hello"}, exists=os.path.exists
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        launch = Launch(
            [os.path.realpath(sys.executable), "-IS", "-c", code], options=options, bwrap=bwrap
        )
        assert supervise(launch).succeeded
        peer, _ = server.accept()
        with peer:
            said = peer.recv(4096).decode()
    inside = sorted({"home", tmp_path.relative_to("/tmp").parts[0]})
    assert said == repr(("hello", "/tmp/home", "/tmp/home", inside, False))


def test_the_package_works_on_python_3_9(bwrap: str) -> None:
    candidates = [*sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3")), "python3.9"]
    found = [each for each in map(shutil.which, candidates) if each is not None]
    # A version manager's shim is executable without an interpreter behind it.
    usable = [each for each in found if _answers(each)]
    python = next(iter(usable), None)
    if python is None:
        pytest.skip("no Python 3.9 here")
    code = (
        "import sys; from harness.supervise import *; assert sys.version_info[:2] == (3, 9)\n"
        "loaded = [m for m in sys.modules if m.startswith('harness.') "
        "and not m.startswith('harness.supervise')]\n"
        "assert not loaded, loaded\n"
        f"options = bwrap_arguments(SandboxSpec(read_only=['/srv']), environ={{}}, "
        "exists=__import__('os').path.exists)\n"
        f"outcome = supervise(Launch(['sh', '-c', 'exit 7'], options=options, bwrap={bwrap!r}))\n"
        "print(outcome.as_json()['exit-code'], outcome.child_pid)"
    )
    got = subprocess.run(
        [python, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    exit_code, child_pid = got.stdout.split()
    assert (exit_code, got.stderr) == ("7", "")
    os.waitid(os.P_PID, int(child_pid), os.WEXITED | os.WNOHANG)  # We are its subreaper.


def _answers(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
