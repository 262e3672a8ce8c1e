"""Starting bwrap from elsewhere: a supervisor of its own, a process below it, or a thread of it.

Each such process tells its parent, on a pipe, the pid that it has started, and how that one ended:
two lines.  Nobody else can know the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.repro.channels import given_away, near_ends, own_ends
from harness.repro.endings import told_channel, watch_exit
from harness.repro.story import Box, Pipe, Story, needs_supervisor

_WAITS = """\
end = os.waitid(os.P_PID, {pid}, os.WEXITED | os.WNOWAIT)
os.write({tell}, describe_end(end).encode() + b"\\n")
while True:
    signal.pause()"""


def launch_from_elsewhere(
    story: Story, box: Box, start_bwrap: Callable[[Story, Box], None]
) -> None:
    """Statements that fork who starts bwrap; ``start_bwrap`` writes how that is done."""
    source, stem = story.source, box.stem
    is_process = box.spec.launched_by == "process"
    is_layered = is_process and needs_supervisor(story.scenario)
    who = "launcher" if is_process else "supervisor"
    pid = f"{stem}{who}_pid" if is_process else "supervisor_pid"
    keep = [*own_ends(box), f"{stem}tell_to"]
    source.gap()
    source.add(f"{stem}told_from, {stem}tell_to = os.pipe()")
    if _is_ended(story, box):
        source.add(f"{stem}end_from, {stem}end_to = os.pipe()")
        keep.append(f"{stem}end_from")
    _define_parent(story, box, who, start_bwrap)
    keep_all = f"[{', '.join(keep)}]"
    if is_layered:
        source.add("launcher_told_from, launcher_tell_to = os.pipe()")
        _define_supervisor(story, box, keep_all)
        more = [*keep, "launcher_tell_to"]
        source.call("supervisor_pid = fork(", ["supervisor", f"[{', '.join(more)}]"])
        story.resolved.add("supervisor_pid")
        keep.append("launcher_tell_to")
    else:
        source.call(f"{pid} = fork(", [f"{stem}{who}", keep_all])
    story.resolved.add(pid)
    kept = set(near_ends(box)) - set(given_away(story, box))
    _close(story, [each for each in keep if each not in kept])
    if is_layered:
        _hear(story, told_channel("launcher"), "launcher_told_from", pid)
        watch_exit(story, "supervisor", "supervisor_pid")
    _hear(story, told_channel(box.prefix + "monitor"), f"{stem}told_from", box.monitor_pid)
    watch_exit(story, box.prefix + who if is_process else who, pid)


def _is_ended(story: Story, box: Box) -> bool:
    """Whether a step ends the thread or process that bwrap is started from."""
    return any(step.end == box.prefix + "launcher" for step in story.scenario.all_steps)


def _close(story: Story, fds: Sequence[str]) -> None:
    if fds:
        story.source.call("for fd in [", fds, "]:")
        story.source.add("    os.close(fd)  # a copy here would hide an end of file")


def _hear(story: Story, told: str, fd: str, pid: str) -> None:
    """The pid that a process on our behalf has started."""
    story.source.add(
        f"watch_channel({told}, {fd})",
        f'need(lambda: "\\n" in text[{told}], 5, "bwrap is started")',
        f"{pid} = int(text[{told}].splitlines()[0])",
    )


def _define_parent(
    story: Story, box: Box, who: str, start_bwrap: Callable[[Story, Box], None]
) -> None:
    """The function of the process that starts bwrap."""
    source, stem = story.source, box.stem
    terminal = next((p for p in box.channels.values() if p.spec.option == "terminal"), None)
    source.gap()
    with source.block(f"def {stem}{who}():"):
        source.add(f'"""The {who}, a process of its own: it starts bwrap and waits for it."""')
        if who == "supervisor":
            source.add("os.setsid()")
        if terminal is not None:
            _take_terminal(story, terminal)
        if box.spec.launched_by == "thread":
            _start_from_thread(story, box, start_bwrap)
        else:
            start_bwrap(story, box)
        channels = box.channels.values()
        closed = [p.near for p in channels if p.near and who not in p.spec.copy_kept_by]
        _close(story, closed)
        source.add(f'os.write({stem}tell_to, b"%d\\n" % {stem}monitor.pid)')
        if _is_ended(story, box) and who == "launcher":
            source.add(f"os.read({stem}end_from, 1)", "os._exit(0)")
        else:
            waits = _WAITS.format(pid=f"{stem}monitor.pid", tell=f"{stem}tell_to")
            source.add(*waits.splitlines())
    source.gap()


def _take_terminal(story: Story, terminal: Pipe) -> None:
    story.source.add(
        f"fcntl.ioctl({terminal.near}, termios.TIOCSCTTY, 0)",
        "for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP):",
        "    signal.signal(number, lambda *_: None)  # what is typed is for bwrap",
    )


def _start_from_thread(story: Story, box: Box, start_bwrap: Callable[[Story, Box], None]) -> None:
    source, stem = story.source, box.stem
    source.add(f"{stem}monitor, {stem}started = None, threading.Event()")
    source.gap()
    with source.block(f"def {stem}launcher():"):
        source.add('"""A thread: the parent-death signal is tied to it, not to the process."""')
        source.add(f"nonlocal {stem}monitor")
        start_bwrap(story, box)
        source.add(f"{stem}started.set()")
        forever = "threading.Event().wait()  # it lives on"
        source.add(f"os.read({stem}end_from, 1)" if _is_ended(story, box) else forever)
    source.gap()
    source.add(
        f"threading.Thread(target={stem}launcher, daemon=True).start()",
        f"{stem}started.wait(5)",
    )


def _define_supervisor(story: Story, box: Box, keep: str) -> None:
    """The function of the process that starts the launcher."""
    source = story.source
    source.gap()
    with source.block("def supervisor():"):
        source.add('"""The supervisor, a process of its own: it starts the launcher."""')
        source.add("os.setsid()")
        source.call("pid = fork(", [f"{box.stem}launcher", keep])
        _close(story, near_ends(box))
        source.add('os.write(launcher_tell_to, b"%d\\n" % pid)')
        source.add(*_WAITS.format(pid="pid", tell="launcher_tell_to").splitlines())
    source.gap()
