"""The rule that names an outcome, and the stream parser that feeds it; nothing is spawned."""

from __future__ import annotations

import pytest

from harness.supervise import ExitStatus, OutcomeKind, Stop, decide
from harness.supervise.events import EVENTS
from harness.supervise.events import __doc__ as events_doc
from harness.supervise.launch import Launch, bwrap_command
from harness.supervise.provider import ProviderSpec, provider_arguments
from harness.supervise.status import MAX_LINE_BYTES, MAX_OBJECTS, StatusStream

ZERO, ONE = ExitStatus(code=0), ExitStatus(code=1)
KILLED = ExitStatus(signal=9)
LOST = Stop.PROVIDER_LOST


@pytest.mark.parametrize(
    ("stop", "exit_code", "monitor", "child_known", "kind"),
    [
        # Nothing has happened that ends a run.
        (None, None, None, False, None),
        (None, None, None, True, None),
        # The command's own end.
        (None, 0, None, True, OutcomeKind.EXITED),
        (None, 7, None, True, OutcomeKind.EXITED),
        (None, 7, ExitStatus(code=7), True, OutcomeKind.EXITED),
        (None, 137, ExitStatus(code=137), True, OutcomeKind.EXITED),
        (None, 7, KILLED, True, OutcomeKind.EXITED),
        # bwrap's end without the command's.
        (None, None, ONE, True, OutcomeKind.SETUP_FAILED),
        (None, None, ONE, False, OutcomeKind.SETUP_FAILED),
        (None, None, ExitStatus(code=137), True, OutcomeKind.SETUP_FAILED),
        (None, None, KILLED, True, OutcomeKind.SIGNALLED),
        (None, None, KILLED, False, OutcomeKind.SIGNALLED),
        # Only a command that ran makes bwrap exit 0, if anything was launched at all.
        (None, None, ZERO, True, OutcomeKind.EXITED),
        (None, None, ZERO, False, OutcomeKind.SETUP_FAILED),
        # A loss alone, and a loss tied with an end.
        (LOST, None, None, True, OutcomeKind.PROVIDER_LOST),
        (LOST, 0, None, True, OutcomeKind.EXITED),
        (LOST, 0, ZERO, True, OutcomeKind.EXITED),
        (LOST, None, ZERO, True, OutcomeKind.EXITED),
        (LOST, 5, None, True, OutcomeKind.PROVIDER_LOST),
        (LOST, 5, ExitStatus(code=5), True, OutcomeKind.PROVIDER_LOST),
        (LOST, None, ONE, True, OutcomeKind.PROVIDER_LOST),
        (LOST, None, KILLED, True, OutcomeKind.PROVIDER_LOST),
        # Other reasons lose against what has already ended.
        (Stop.CANCELLED, None, None, True, OutcomeKind.CANCELLED),
        (Stop.CANCELLED, 5, None, True, OutcomeKind.EXITED),
        (Stop.CANCELLED, None, ONE, True, OutcomeKind.SETUP_FAILED),
        (Stop.CANCELLED, None, KILLED, True, OutcomeKind.SIGNALLED),
        (Stop.GATE_TIMEOUT, None, None, False, OutcomeKind.GATE_TIMEOUT),
        (Stop.WORKLOAD_TIMEOUT, None, None, True, OutcomeKind.WORKLOAD_TIMEOUT),
        (Stop.WORKLOAD_TIMEOUT, 0, None, True, OutcomeKind.EXITED),
        (Stop.READINESS_FAILED, None, None, True, OutcomeKind.READINESS_FAILED),
    ],
)
def test_facts_of_one_wake_up_amount_to(
    stop: Stop | None,
    exit_code: int | None,
    monitor: ExitStatus | None,
    child_known: bool,
    kind: OutcomeKind | None,
) -> None:
    got = decide(stop=stop, exit_code=exit_code, monitor=monitor, child_known=child_known)
    assert got is kind


def test_a_lost_provider_never_lets_a_failure_pass_as_the_commands_own() -> None:
    for code in (None, *range(1, 256)):
        for monitor in (None, ONE, KILLED):
            kind = decide(stop=LOST, exit_code=code, monitor=monitor, child_known=True)
            assert kind is OutcomeKind.PROVIDER_LOST


def test_an_object_in_single_bytes_is_one_line() -> None:
    stream = StatusStream()
    lines = [line for byte in b'{ "child-pid": 12 }\n' for line in stream.feed(bytes([byte]))]
    assert lines == ['{ "child-pid": 12 }']
    assert (stream.child_pid, stream.exit_code) == (12, None)


def test_two_objects_in_one_read_are_two_facts() -> None:
    stream = StatusStream()
    stream.feed(b'{"child-pid": 3}\n{"exit-code": 0}\n{"exit-code": 9}\n')
    assert (stream.child_pid, stream.exit_code, len(stream.objects)) == (3, 0, 3)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"hello", b"[1]", b"\xff\xfe", b"null", b"[" * 5000),
        *(b'{"child-pid": "1"}', b'{"child-pid": -1}', b'{"child-pid": true}'),
        b'{"exit-code": 1.5}',
    ],
)
def test_a_line_that_says_nothing_usable_changes_no_fact(line: bytes) -> None:
    stream = StatusStream()
    stream.feed(line + b"\n")
    assert (stream.child_pid, stream.exit_code) == (None, None)


def test_a_fragment_is_no_line() -> None:
    stream = StatusStream()
    assert stream.feed(b'{"exit-code": 7}') == []
    assert stream.exit_code is None


def test_an_endless_line_is_dropped_and_the_next_one_read() -> None:
    stream = StatusStream()
    for _ in range(3):
        stream.feed(b"x" * MAX_LINE_BYTES)
    assert stream.feed(b'x\n{"exit-code": 4}\n') == ['{"exit-code": 4}']
    assert stream.exit_code == 4


def test_objects_are_bounded() -> None:
    stream = StatusStream()
    stream.feed(b"{}\n" * (MAX_OBJECTS + 5) + b'{"exit-code": 4}\n')
    assert (len(stream.objects), stream.exit_code) == (MAX_OBJECTS, 4)


def test_the_supervisors_options_come_first_and_the_command_last() -> None:
    launch = Launch(["-odd", "x"], options=["--dev-bind", "/", "/"], bwrap="B")
    assert bwrap_command(launch, status_fd=5, sync_fd=6, block_fd=7) == [
        *("B", "--die-with-parent", "--unshare-pid", "--json-status-fd", "5", "--sync-fd", "6"),
        *("--block-fd", "7", "--dev-bind", "/", "/", "--", "-odd", "x"),
    ]


def test_the_provider_is_told_the_owning_user_namespace() -> None:
    spec = ProviderSpec(
        mtu=1500, disable_host_loopback=True, extra_arguments=["--cidr=10.1.0.0/24"]
    )
    assert provider_arguments(spec, netns_fd=5, userns_fd=6, ready_fd=7, exit_fd=8) == [
        *("--configure", "--mtu=1500", "--ready-fd=7", "--exit-fd=8", "--disable-host-loopback"),
        *("--cidr=10.1.0.0/24", "--netns-type=path", "--userns-path=/proc/self/fd/6"),
        *("/proc/self/fd/5", "tap0"),
    ]


def test_a_namespace_of_our_own_user_namespace_is_joined_without_it() -> None:
    got = provider_arguments(ProviderSpec(), netns_fd=5, userns_fd=None, ready_fd=7, exit_fd=8)
    assert not [each for each in got if each.startswith(("--userns-path", "--disable-host"))]


def test_every_event_is_described_where_the_vocabulary_is() -> None:
    assert events_doc is not None
    assert [name for name in EVENTS if f"``{name}``" not in events_doc] == []
