"""The recorder on real processes: what it writes, when, and what it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_client import NOBODY, Agent, make_plan, reap_orphans

from harness.agent import kernel, procfs
from harness.agent.channels import KEPT_BYTES, KEPT_LINES, READ_BYTES
from harness.agent.clearing import remove_tree
from harness.agent.journal import Journal
from harness.agent.recorder import Recording
from harness.agent.talk import say
from harness.judges.recording import judge_recording
from harness.model.scenario import Scenario
from harness.model.timeline import Event, Kind, Order, Timeline
from harness.model.verdict import Held


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent with a folder of its own; nothing of it is left when a test is over."""
    kernel.set_child_subreaper()
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    started = Agent(folder)
    try:
        yield started
        assert started.close() == 0
        reap_orphans()
        assert os.listdir(folder) == [], "the agent left files"
    finally:
        started.close()
        kernel.set_child_subreaper(False)
    folder.rmdir()


STATUS = {"status": {"option": "json-status-fd"}}


def only(timeline: Timeline, *kinds: Kind, lane: str | None = None, **data: Any) -> Event:
    """The one event of its kind."""
    (found,) = timeline.of(*kinds, lane=lane, **data)
    return found


def statuses(timeline: Timeline) -> dict[str, dict[str, Any]]:
    """How every member ended, as far as anybody was told."""
    return {
        event.lane: {key: event.data[key] for key in ("code", "signal") if key in event.data}
        for event in timeline.of(Kind.STATUS_COLLECTED)
    }


def survivors(timeline: Timeline, name: str = "settle") -> list[str]:
    census = timeline.last(Kind.CENSUS_TAKEN, name=name)
    assert census is not None
    return sorted(p["member"] for p in census.data["processes"] if p["state"] not in "ZX")


def assert_sound(timeline: Timeline) -> None:
    """What holds for every recording: whole, in order, closed, and nothing leaked."""
    assert timeline.closed
    assert [event.seq for event in timeline.events] == list(range(len(timeline.events)))
    for earlier, later in zip(timeline.events, timeline.events[1:], strict=False):
        assert earlier.t_ns <= later.t_ns
        assert earlier.wake <= later.wake
    assert timeline.events[-1].data["events"] == len(timeline.events) - 1
    assert only(timeline, Kind.CLEANUP_DONE).data["leaks"] == []


def test_a_plan_is_recorded_from_its_header_to_its_closing_line(
    agent: Agent, each_bwrap: str
) -> None:
    members: dict[str, Any] = {
        "sandbox": {"command": {"shell": "echo out; exit 7"}, "channels": STATUS},
        "expect": [
            {"exit": {"of": "monitor", "code": 7}},
            {"field": {"on": "status", "member": "exit-code", "equals": 7}},
            {"text": {"on": "stdout", "lines": ["out"]}},
            {
                "order": [
                    {"object": "status", "has": "child-pid"},
                    {"object": "status", "has": "exit-code"},
                    {"eof": "status"},
                ]
            },
            {"survivors": "none"},
        ],
    }
    plan = make_plan(each_bwrap, **members)
    timeline = agent.record({**plan, "sha256": "ab", "repeat_index": 3, "harness": "1.2"})
    assert_sound(timeline)
    assert timeline.header == {
        "format": 1,
        "scenario": "test.recorder",
        "scenario_sha256": "ab",
        "repeat": 3,
        "bwrap": {"path": timeline.header["bwrap"]["path"]},
        "kernel": os.uname().release,
        "uid": NOBODY,
        "harness": "1.2",
    }
    scenario = Scenario.model_validate(
        {"id": "test.x", "title": "A title that is long", "clauses": ["T-1"], **members}
    )
    judged = judge_recording(scenario, timeline, {})
    assert [(f.rule, f.held) for f in judged.findings if f.held is not Held.YES] == []
    assert judged.is_clean


def test_every_event_is_written_as_it_happens(agent: Agent, each_bwrap: str) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={"command": {"shell": "echo up; sleep 1000"}, "channels": STATUS},
        steps=[
            {"wait": {"line": "stdout"}, "trigger": True},
            {"wait": {"marker": "go-on"}, "within": "60s"},
        ],
    )
    seen = agent.begin(plan, Kind.LINE_READ, text="up")
    started = {event.lane: event.data["pid"] for event in seen if event.kind in _APPEARED}
    assert {"supervisor", "monitor"} <= set(started)
    for pid in started.values():  # the sandbox runs while the test reads about it
        process = procfs.read_process(pid)
        assert process is not None
        assert process.state not in "ZX"
    (agent.scratch / "go-on").touch()
    rest = list(agent.events())
    assert [e.data["marker"] for e in rest if e.kind is Kind.MARKER_SEEN] == ["go-on"]
    assert_sound(Timeline([*seen, *rest]))


_APPEARED = (Kind.PROCESS_STARTED, Kind.PROCESS_IDENTIFIED)


def test_a_recording_leaves_no_process_no_fd_and_no_file_in_the_recorder(
    agent: Agent, each_bwrap: str
) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={
            "args": ["--unshare-pid"],
            "command": {"shell": "touch $SCRATCH/a; mkdir $SCRATCH/b; touch $SCRATCH/b/c"},
            "channels": {
                **STATUS,
                "sync": {"option": "sync-fd"},
                "gate": {"option": "block-fd", "held_by": "supervisor", "content": "x"},
                "args": {"option": "args", "kind": "memfd", "content": ""},
                "pair": {"kind": "socketpair", "direction": "from-sandbox", "number": 60},
            },
        },
        helpers={"keeper": {"lock": "read", "file": "lock"}, "server": {"listen": "tcp"}},
        files={"lock": {}},
    )
    before: dict[int, str] = {}
    for _ in range(3):
        assert_sound(agent.record(plan))
        agent.assert_nothing_left()
        assert list(agent.folder.glob("harness-*/s[0-9a-f]*")) == []
        after = procfs.fds(agent.recorder) or {}
        assert before in ({}, after)
        before = after


# --- what is hard to end --------------------------------------------------------------------------

TOUGH = {
    "stopped": 'sh -c "touch $SCRATCH/on; kill -STOP \\$\\$; sleep 1000" & sleep 1000',
    "a daemon in its own session": (
        'setsid sh -c "sh -c \\"touch $SCRATCH/on; exec sleep 1000\\" &" & sleep 1000'
    ),
    "deaf to SIGTERM": "trap '' TERM HUP INT; touch $SCRATCH/on; while :; do sleep 1000; done",
    "many": (
        "for i in 1 2 3 4 5 6 7 8 9; do setsid sh -c 'sleep 1000 & sleep 1000' & done;"
        " touch $SCRATCH/on; sleep 1000"
    ),
}


@pytest.mark.parametrize("inside", [[], ["--unshare-pid"]], ids=["no-pid-ns", "pid-ns"])
@pytest.mark.parametrize("name", TOUGH)
def test_what_is_hard_to_end_is_ended(
    agent: Agent, bwrap: str, name: str, inside: list[str]
) -> None:
    plan = make_plan(
        bwrap,
        sandbox={"args": inside, "command": {"shell": TOUGH[name]}, "channels": STATUS},
        steps=[
            {"wait": {"marker": "on"}},
            {"signal": {"to": "monitor", "send": "KILL"}, "trigger": True},
            {"wait": {"exit": "monitor"}},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"signal": "KILL"}
    assert "command" in survivors(timeline, "end")
    # Which of them get a signal of their own is chance: the kernel ends those of a dead init.
    killed = only(timeline, Kind.CLEANUP_DONE).data["killed"]
    census = timeline.last(Kind.CENSUS_TAKEN, name="end")
    assert census is not None
    inside_pids = {p["pid"] for p in census.data["processes"] if p["member"] != "supervisor"}
    assert inside_pids & set(killed)
    agent.assert_nothing_left()


def test_an_orphan_that_died_of_a_real_time_signal_breaks_nothing(agent: Agent, bwrap: str) -> None:
    # signal(7): numbers above SIGRTMIN have no names of their own.
    shell = 'setsid sh -c "kill -40 \\$\\$" & wait; touch $SCRATCH/on'
    orphan = (
        'setsid sh -c "sh -c \\"while test -e /proc/$$; do :; done; kill -40 \\\\\\$\\\\\\$\\" &"'
    )
    timeline = agent.record(
        make_plan(
            bwrap,
            sandbox={"command": {"shell": f"{shell}; {orphan}; kill -40 $$"}, "channels": STATUS},
            steps=[{"wait": {"exit": "monitor"}, "trigger": True}, {"pass": "50ms"}],
        )
    )
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"code": 168}


def test_a_monitor_that_died_of_a_real_time_signal_is_recorded_with_its_number(
    agent: Agent, tmp_path: Path
) -> None:
    timeline = agent.record(make_plan(fake_bwrap(tmp_path, "kill -40 $$")))
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"signal": "RTMIN+6"}


def while_its_supervisor_is_stopped(bwrap: str, *then: dict[str, Any]) -> dict[str, Any]:
    """A plan in which bwrap ends while nobody can be told so, and what comes then."""
    return make_plan(
        bwrap,
        sandbox={"command": {"shell": "cat"}, "channels": {"stdin": {"option": "stdin"}}},
        steps=[
            {"signal": {"to": "supervisor", "send": "STOP"}},
            {"close": "stdin", "trigger": True},
            *then,
        ],
    )


@pytest.mark.parametrize("last", ["settle", "nothing"])
def test_a_recording_ends_after_its_supervisor_has_told_how_bwrap_ended(
    agent: Agent, bwrap: str, last: str
) -> None:
    timeline = agent.record(
        while_its_supervisor_is_stopped(
            bwrap,
            {"wait": {"gone": "monitor"}},
            {"signal": {"to": "supervisor", "send": "CONT"}},  # it has still to tell
            *([{"settle": "5s"}] if last == "settle" else []),
        )
    )
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"code": 0}
    told, census = (timeline.first(kind) for kind in (Kind.STATUS_COLLECTED, Kind.CENSUS_TAKEN))
    assert told is not None
    assert census is not None
    assert told.seq < census.seq


def test_nobody_waits_for_the_word_of_a_supervisor_that_is_stopped(
    agent: Agent, bwrap: str
) -> None:
    timeline = agent.record(while_its_supervisor_is_stopped(bwrap, {"settle": "60s"}))
    assert_sound(timeline)
    # What it would have told the recorder learns itself, once the clean-up has ended the teller.
    told, census = timeline.first(Kind.STATUS_COLLECTED), timeline.last(Kind.CENSUS_TAKEN)
    assert told is not None
    assert census is not None
    assert told.seq > census.seq
    assert census.t_ns < 30_000_000_000


# --- floods ---------------------------------------------------------------------------------------


def kept(timeline: Timeline, channel: str = "stdout") -> int:
    """How many bytes of text the timeline has of a channel, newlines apart."""
    lines = sum(len(event.data["text"]) for event in timeline.of(Kind.LINE_READ, channel=channel))
    eof = timeline.first(Kind.EOF_READ, channel=channel)
    return lines + (len(eof.data["rest"]) if eof is not None else 0)


FLOODS = {
    "short lines": ("yes 0123456789 | head -c 3000000", 3_000_000),
    "long lines": (f"yes {'0123456789' * 20} | head -c 3000000", 3_000_000),
    "no newline": ("head -c 3000000 /dev/zero | tr '\\0' x", 3_000_000),
    "one long line": ("head -c 3000000 /dev/zero | tr '\\0' x; echo", 3_000_001),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_kept_to_a_bound_and_counted_beyond(agent: Agent, bwrap: str, name: str) -> None:
    shell, size = FLOODS[name]
    timeline = agent.record(make_plan(bwrap, sandbox={"command": {"shell": shell}}))
    assert_sound(timeline)
    assert kept(timeline) <= KEPT_BYTES
    bound = KEPT_LINES * 11 if name == "short lines" else KEPT_BYTES
    assert only(timeline, Kind.CHANNEL_TRUNCATED, channel="stdout").data["kept_bytes"] == bound
    assert only(timeline, Kind.EOF_READ, channel="stdout").data["bytes"] == size


def test_a_flood_of_short_lines_is_kept_to_a_bound_of_its_own(agent: Agent, bwrap: str) -> None:
    command = {"shell": "yes '' | head -c 60000"}
    timeline = agent.record(make_plan(bwrap, sandbox={"command": command}))
    assert_sound(timeline)
    assert len(list(timeline.of(Kind.LINE_READ, channel="stdout"))) == KEPT_LINES
    truncated = only(timeline, Kind.CHANNEL_TRUNCATED, channel="stdout")
    assert truncated.data["kept_bytes"] == KEPT_LINES
    assert only(timeline, Kind.EOF_READ, channel="stdout").data["bytes"] == 60_000


def test_as_many_lines_as_the_bound_has_are_all_kept(agent: Agent, bwrap: str) -> None:
    command = {"shell": f"yes '' | head -c {KEPT_LINES}"}
    timeline = agent.record(make_plan(bwrap, sandbox={"command": command}))
    assert len(list(timeline.of(Kind.LINE_READ, channel="stdout"))) == KEPT_LINES
    assert timeline.first(Kind.CHANNEL_TRUNCATED) is None


def test_what_is_within_the_bound_is_kept_whole(agent: Agent, bwrap: str) -> None:
    shell = f"yes {'012345678' * 9} | head -c {KEPT_BYTES - READ_BYTES}"
    timeline = agent.record(make_plan(bwrap, sandbox={"command": {"shell": shell}}))
    assert timeline.first(Kind.CHANNEL_TRUNCATED) is None
    eof = only(timeline, Kind.EOF_READ, channel="stdout")
    count = len(list(timeline.of(Kind.LINE_READ, channel="stdout")))
    assert kept(timeline) + count == eof.data["bytes"] == KEPT_BYTES - READ_BYTES


@pytest.mark.parametrize("channel", ["stdout", "stderr"])
def test_a_megabyte_that_is_no_text_is_counted_and_breaks_nothing(
    agent: Agent, bwrap: str, channel: str
) -> None:
    shell = "head -c 1048576 /dev/urandom" + (" >&2" if channel == "stderr" else "")
    timeline = agent.record(make_plan(bwrap, sandbox={"command": {"shell": shell}}))
    assert_sound(timeline)
    assert only(timeline, Kind.EOF_READ, channel=channel).data["bytes"] == 1 << 20
    assert statuses(timeline)["monitor"] == {"code": 0}


# --- fds ------------------------------------------------------------------------------------------


def test_two_options_may_share_one_number(agent: Agent, each_bwrap: str) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={
            "command": {"shell": "exit 7"},
            "channels": {
                "status": {"option": "json-status-fd", "number": 33},
                "info": {"option": "info-fd", "same_number_as": "status"},
            },
        },
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    argv = only(timeline, Kind.PROCESS_STARTED, lane="monitor").data["argv"]
    numbers = [argv[argv.index(option) + 1] for option in ("--json-status-fd", "--info-fd")]
    assert numbers == ["33", "33"]
    assert timeline.first(Kind.OBJECT_READ, channel="status") is not None


def test_a_number_on_which_nothing_is_open_is_passed_as_it_is(
    agent: Agent, each_bwrap: str
) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={
            "command": {"shell": "touch $SCRATCH/ran"},
            "channels": {"status": {"option": "json-status-fd", "kind": "closed", "number": 44}},
        },
        steps=[{"launch": "main", "trigger": True}, {"wait": {"exit": "monitor"}}],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"code": 1}
    assert timeline.first(Kind.MARKER_SEEN) is None


def test_a_full_pipe_holds_bwrap_up_before_its_command(agent: Agent, each_bwrap: str) -> None:
    status = {"option": "json-status-fd", "filled": True, "read": "never"}
    plan = make_plan(
        each_bwrap,
        sandbox={"command": {"shell": "touch $SCRATCH/ran"}, "channels": {"status": status}},
        steps=[{"launch": "main", "trigger": True}, {"settle": "300ms"}],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert {"monitor", "child"} <= set(survivors(timeline))
    assert timeline.first(Kind.PROCESS_EXITED, lane="monitor") is None
    assert timeline.first(Kind.MARKER_SEEN) is None


def test_a_write_into_a_full_pipe_fails_instead_of_hanging(agent: Agent, bwrap: str) -> None:
    plan = make_plan(
        bwrap,
        sandbox={
            "command": {"shell": "sleep 1000"},
            "channels": {"input": {"option": "stdin", "filled": True}},
        },
        steps=[{"write": {"to": "input", "text": "x"}, "within": "300ms", "trigger": True}],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert only(timeline, Kind.WRITE_FAILED, lane="input").data["errno"] == "EAGAIN"
    assert timeline.first(Kind.DATA_WRITTEN) is None
    failed = only(timeline, Kind.STEP_TIMED_OUT)
    assert (failed.data["verb"], failed.data["trigger"]) == ("write", True)


def test_a_long_text_is_written_whole_to_who_reads_it(agent: Agent, bwrap: str) -> None:
    text = "0123456789abcdef" * 20_000
    plan = make_plan(
        bwrap,
        sandbox={
            "command": {"shell": "wc -c"},
            "channels": {"input": {"option": "stdin"}},
        },
        steps=[
            {"write": {"to": "input", "text": text}, "trigger": True},
            {"close": "input"},
            {"wait": {"end": "main"}},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert only(timeline, Kind.DATA_WRITTEN).data["bytes"] == len(text)
    assert only(timeline, Kind.LINE_READ, channel="stdout").data["text"].strip() == str(len(text))


def test_an_interrupt_from_the_terminal_ends_bwrap_and_its_command(
    agent: Agent, each_bwrap: str
) -> None:
    plan = make_plan(
        each_bwrap,
        sandbox={
            "args": ["--unshare-pid"],
            "command": {"shell": "touch $SCRATCH/ran; echo typed; exec sleep 1000"},
            "channels": {"tty": {"option": "terminal"}, **STATUS},
        },
        steps=[
            {"wait": {"marker": "ran"}},
            {"wait": {"process": "command", "state": "running-command"}},
            {"type": {"on": "tty", "text": "\x03"}, "trigger": True},
            {"wait": {"exit": "monitor"}},
            {"settle": "2s"},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"signal": "INT"}
    assert survivors(timeline) == ["supervisor"]
    typed = only(timeline, Kind.DATA_WRITTEN, channel="tty")
    ended = only(timeline, Kind.PROCESS_EXITED, lane="monitor")
    assert Timeline.before(typed, ended) is Order.YES
    assert timeline.first(Kind.PROCESS_EXITED, lane="supervisor") is None


# --- what a bwrap says is not believed ------------------------------------------------------------


def fake_bwrap(folder: Path, body: str) -> str:
    """A bwrap that is none; ``body`` is shell text that may write to fd 7."""
    path = folder / "bwrap"
    path.write_text("#!/bin/sh\n" + body + "\n")
    path.chmod(0o755)
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o055)
    return str(path)


SEVEN = {"status": {"option": "json-status-fd", "number": 7}}


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the test's own that no recorder has anything to do with."""
    with subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL) as process:
        yield process
        assert process.poll() is None, "the stranger was killed"
        process.kill()


def test_a_stranger_whom_a_bwrap_calls_its_child_is_neither_identified_nor_signalled(
    agent: Agent, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    said = f'echo "{{\\"child-pid\\": {stranger.pid}}}" >&7; exec sleep 1000'
    plan = make_plan(
        fake_bwrap(tmp_path, said),
        uid=0 if os.getuid() == 0 else NOBODY,
        sandbox={"command": ["true"], "channels": SEVEN},
        steps=[
            {"wait": {"object": "status", "has": "child-pid"}, "trigger": True},
            {"signal": {"to": "child", "send": "KILL"}, "within": "300ms"},
            {"signal": {"group_of": "child", "send": "KILL"}, "within": "300ms"},
            {"wait": {"process": "child", "state": "sleeping"}, "within": "300ms"},
            {"probe": {"fds": "child"}, "within": "300ms"},
            {"settle": "300ms"},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    value = only(timeline, Kind.OBJECT_READ, channel="status").data["value"]
    assert value == {"child-pid": stranger.pid}
    about = [event.lane for event in timeline.events if event.data.get("pid") == stranger.pid]
    assert about == []
    assert timeline.first(Kind.SIGNAL_SENT) is None
    assert timeline.first(Kind.PROCESS_IDENTIFIED) is None
    assert stranger.pid not in only(timeline, Kind.CLEANUP_DONE).data["killed"]
    assert "child" not in survivors(timeline)


def test_a_test_whom_a_bwrap_calls_its_child_gets_no_signal(agent: Agent, tmp_path: Path) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: got.append(number))
    try:
        said = f'echo "{{\\"child-pid\\": {os.getpid()}}}" >&7; exec sleep 1000'
        plan = make_plan(
            fake_bwrap(tmp_path, said),
            sandbox={"command": ["true"], "channels": SEVEN},
            steps=[
                {"wait": {"object": "status", "has": "child-pid"}, "trigger": True},
                {"signal": {"to": "child", "send": "USR1"}, "within": "300ms"},
            ],
        )
        timeline = agent.record(plan)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert_sound(timeline)
    assert got == []
    assert timeline.first(Kind.PROCESS_IDENTIFIED) is None


CLAIMS = {
    "pid 1": '{"child-pid": 1}',
    "pid 0": '{"child-pid": 0}',
    "a negative pid": '{"child-pid": -1}',
    "a pid beyond all": '{"child-pid": 99999999999999999999}',
    "a text": '{"child-pid": "1"}',
    "a truth": '{"child-pid": true}',
    "a fraction": '{"child-pid": 1.5}',
    "nothing": '{"child-pid": null}',
    "a list of them": '{"child-pid": [1]}',
    "no object": '[1, 2] "text" 7 null',
    "no JSON": "hello {{{ ]]] \\",
    "numbers that are none": '{"child-pid": NaN, "x": 1e999}',
    "half a surrogate": '{"child-pid": "\\udc80"}',
}


@pytest.mark.parametrize("name", CLAIMS)
def test_nonsense_on_the_status_fd_is_recorded_and_breaks_nothing(
    agent: Agent, tmp_path: Path, name: str
) -> None:
    (tmp_path / "said").write_text(CLAIMS[name] + "\n")
    (tmp_path / "said").chmod(0o644)
    plan = make_plan(
        fake_bwrap(tmp_path, f"cat {tmp_path}/said >&7"),
        sandbox={"command": ["true"], "channels": SEVEN},
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert timeline.first(Kind.PROCESS_IDENTIFIED) is None
    line = only(timeline, Kind.LINE_READ, channel="status")
    assert line.data["text"] == CLAIMS[name]
    assert statuses(timeline)["monitor"] == {"code": 0}


def test_an_object_nested_beyond_all_reason_breaks_nothing(agent: Agent, tmp_path: Path) -> None:
    said = "head -c 100000 /dev/zero | tr '\\0' '[' >&7; echo >&7"
    plan = make_plan(fake_bwrap(tmp_path, said), sandbox={"command": ["true"], "channels": SEVEN})
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert timeline.first(Kind.OBJECT_READ) is None


MARKS = {
    "nothing between the marks": "echo $B; echo $E",
    "nonsense between the marks": "echo $B; echo 'pid x'; echo 'uid_map a b'; echo '}{'; echo $E",
    "the marks the other way round": "echo $E; echo $B",
    "the end twice": "echo $B; echo $E; echo $E",
}


@pytest.mark.parametrize("name", MARKS)
def test_a_command_that_only_pretends_to_observe_breaks_nothing(
    agent: Agent, bwrap: str, name: str
) -> None:
    from harness.agent.observe import BEGIN_MARK, END_MARK

    shell = f"B='{BEGIN_MARK}'; E='{END_MARK}'; {MARKS[name]}"
    timeline = agent.record(make_plan(bwrap, sandbox={"command": {"shell": shell}}))
    assert_sound(timeline)
    assert statuses(timeline)["monitor"] == {"code": 0}


# --- supervisors and providers --------------------------------------------------------------------

PROVIDER = """#!/bin/sh
for each; do
  case $each in --ready-fd=*) ready=${each#*=};; esac
done
echo "hello on stderr" >&2
case $ready in ?) eval "printf 1 >&$ready";; *) printf 1 > /proc/self/fd/$ready;; esac
exec sleep 1000
"""


def test_the_end_of_a_provider_is_seen_once_and_does_not_keep_the_recorder_busy(
    agent: Agent, bwrap: str, tmp_path: Path
) -> None:
    fake_bwrap(tmp_path, "")
    provider = tmp_path / "provider"
    provider.write_text(PROVIDER)
    provider.chmod(0o755)
    plan = make_plan(
        bwrap,
        uid=0 if os.getuid() == 0 else NOBODY,
        sandbox={
            "args": ["--unshare-net"],
            "command": {"shell": "sleep 1000"},
            "channels": STATUS,
        },
        providers={"net": {"for": "main", "program": str(provider)}},
        steps=[
            {"start": "net"},
            {"signal": {"to": "net", "send": "KILL"}, "trigger": True},
            {"wait": {"exit": "net"}},
            {"pass": "200ms"},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    assert statuses(timeline)["net"] == {"signal": "KILL"}
    assert only(timeline, Kind.PROVIDER_LOST, lane="net")
    assert only(timeline, Kind.LINE_READ, channel="net.stderr").data["text"] == "hello on stderr"
    assert only(timeline, Kind.EOF_READ, channel="net.stderr")
    # A source that stays ready wakes the loop up thousands of times in 200 ms.
    assert timeline.events[-1].wake < 200


def test_the_late_answer_to_one_order_is_not_taken_for_that_to_the_next(
    agent: Agent, bwrap: str
) -> None:
    plan = make_plan(
        bwrap,
        sandbox={
            "command": {"shell": "sleep 1000"},
            "channels": {
                "gate": {"direction": "to-sandbox", "held_by": "supervisor"},
                "other": {"direction": "to-sandbox", "held_by": "supervisor"},
            },
        },
        steps=[
            {"close": "other"},
            {"signal": {"to": "supervisor", "send": "STOP"}, "trigger": True},
            {"write": {"to": "gate", "text": "x"}, "within": "100ms"},
            {"signal": {"to": "supervisor", "send": "CONT"}},
            {"write": {"to": "other", "text": "x"}},
        ],
    )
    timeline = agent.record(plan)
    assert_sound(timeline)
    # Steps 3 and 5 (from 0, after the launch): one had no answer, the other's is a refusal.
    assert [e.data["index"] for e in timeline.of(Kind.STEP_FAILED, verb="write")] == [3, 5]


def test_what_a_supervisor_says_in_one_breath_is_one_wake_up_and_its_own_order_is_kept(
    tmp_path: Path,
) -> None:
    out = os.open(tmp_path / "timeline", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    plan = {"id": "a.b", "sandboxes": {"main": {}}}
    recording = Recording(plan, Journal(out), str(tmp_path))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    recording.supervisors["supervisor"] = ours
    recording.watch(ours.fileno(), lambda: recording._hear_supervisor("supervisor"))
    for name in ("first", "second", "third"):
        say(theirs, {"said": "event", "name": name, "fields": {}})
    theirs.close()
    recording.wake_up(0)
    recording.close()
    os.close(out)
    lines = (tmp_path / "timeline").read_text().splitlines()
    events = [Event.from_line(line) for line in lines]
    assert [(e.data["name"], e.wake, e.late) for e in events] == [
        ("first", 1, False),
        ("second", 1, True),
        ("third", 1, True),
    ]
    assert Timeline.before(events[0], events[2]) is Order.YES


# --- files ----------------------------------------------------------------------------------------


def in_child(body: Any, uid: int) -> int:
    """Run ``body`` as another user in a forked process; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_tree_that_was_made_inaccessible_is_removed_by_its_owner_too(tmp_path: Path) -> None:
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    os.chown(place, 1000, 1000)
    tree = place / "tree"

    def make_and_remove() -> None:
        (tree / "a" / "b" / "c").mkdir(parents=True)
        (tree / "a" / "b" / "file").touch()
        (tree / "link").symlink_to("/")
        for folder in (tree / "a" / "b" / "c", tree / "a" / "b", tree / "a"):
            folder.chmod(0)
        remove_tree(str(tree))
        assert not tree.exists()

    assert in_child(make_and_remove, 1000) == 0
    assert list(place.iterdir()) == []


def test_a_scratch_that_the_command_made_inaccessible_is_removed(agent: Agent, bwrap: str) -> None:
    shell = "mkdir -p $SCRATCH/a/b; touch $SCRATCH/a/b/c; chmod 0 $SCRATCH/a/b $SCRATCH/a $SCRATCH"
    assert_sound(agent.record(make_plan(bwrap, sandbox={"command": {"shell": shell}})))
    assert list(agent.folder.glob("harness-*/s[0-9a-f]*")) == []


# --- probes ------------------------------------------------------------------------------------

#: Busy for some 10 ms with fd 3 open, as a loader is with a library; then it waits without.  The
#: marker is made by the shell itself: to wait for touch would be to wait with fd 3 open.
BUSY = (
    "exec 3</dev/null; : >$SCRATCH/ran; i=0; "
    "while [ $i -lt 20000 ]; do i=$((i+1)); done; exec 3<&-; read x"
)


def test_an_fd_probe_waits_until_the_process_does(agent: Agent, bwrap: str) -> None:
    plan = make_plan(
        bwrap,
        sandbox={"command": {"shell": BUSY}, "channels": {"input": {"option": "stdin"}}},
        steps=[
            {"wait": {"marker": "ran"}, "trigger": True},
            {"probe": {"fds": "command"}},
        ],
    )
    (probed,) = agent.record(plan).of(Kind.FDS_PROBED)
    assert sorted(probed.data["fds"]) == ["0", "1", "2"]
