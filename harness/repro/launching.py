"""Starting bwrap: its arguments, its fds, and the process or thread that it is started from."""

from __future__ import annotations

from harness.model.scenario import Command
from harness.repro.cast import resolve_named
from harness.repro.channels import (
    given_away,
    near_ends,
    own_ends,
    watch_channels,
)
from harness.repro.endings import told_channel, watch_exit
from harness.repro.source import WIDTH, Source, broken, filled, literal
from harness.repro.specification import spec_words
from harness.repro.story import STREAMS, Box, Story, needs_supervisor, refuse


def launch(story: Story, box: Box) -> None:
    """Statements that start one bwrap, from wherever the scenario starts it."""
    _write_argv(story, box)
    how = box.spec.launched_by
    if needs_supervisor(story.scenario):
        if how != "supervisor":
            raise refuse(story.scenario, f"a {how} stands between a supervisor and bwrap")
        _launch_from_process(story, box, "supervisor")
    elif how == "process":
        _launch_from_process(story, box, "launcher")
    elif how == "thread":
        _launch_from_thread(story, box)
    else:
        _start_bwrap(story, box)
        _give_away(story, box)
    watch_exit(story, box.prefix + "monitor", box.monitor_pid)
    watch_channels(story, box)
    resolve_named(story, box)


def _write_argv(story: Story, box: Box) -> None:
    source = story.source
    names = {name: pipe.number for name, pipe in box.channels.items()} | {"scratch": "scratch"}
    is_bound = box.spec.base == "host" and box.spec.spec is None
    base = ['"--dev-bind"', '"/"', '"/"'] if is_bound else []
    source.add(f"argv = [{', '.join(['BWRAP', *base])}]")
    if box.spec.spec is not None:
        source.extend_list("argv", spec_words(story, box, box.spec.spec))
    source.extend_list("argv", [filled(word, names) for word in box.spec.args])
    options: list[str] = []
    for pipe in box.channels.values():
        option = pipe.spec.option
        if option and option not in STREAMS and option != "terminal":
            number = pipe.number
            shown = literal(number) if number.isdigit() else f"str({number})"
            options += [literal("--" + option), shown]
    source.extend_list("argv", options)
    _write_command(source, box.spec.command)


def _write_command(source: Source, command: Command) -> None:
    words = command.argv or ["/bin/sh", "-c", command.shell or ""]
    line = ", ".join(map(literal, words))
    if len(line) < WIDTH - 18 and "\\n" not in line:
        source.add(f"argv += [{line}]")
        return
    source.add("argv += [")
    for word in words:
        pieces = broken(word) or ['""']
        source.add(*(f"    {piece}" for piece in pieces[:-1]), f"    {pieces[-1]},")
    source.add("]")


def _start_bwrap(story: Story, box: Box) -> None:
    """``monitor = subprocess.Popen(...)`` with the dispositions that bwrap is to inherit."""
    source, spec = story.source, box.spec
    ignored = [name for name, how in spec.signals.items() if how == "ignore" and name != "PIPE"]
    blocked = [name for name, how in spec.signals.items() if how == "block"]
    if set(spec.signals.values()) & {"default"}:
        raise refuse(story.scenario, "a signal is set to its default for bwrap (signals)")
    arguments = ["argv", f"env={_environment(box)}"]
    numbered = [pipe for pipe in box.channels.values() if pipe.spec.number is not None]
    for pipe in numbered:
        source.add(f"os.dup2({pipe.near}, {pipe.number})")
    passed = [
        pipe.number
        for pipe in box.channels.values()
        if pipe.near and pipe.spec.option not in STREAMS and pipe.spec.option != "terminal"
    ]
    if passed:
        arguments.append(f"pass_fds=[{', '.join(passed)}]")
    arguments += _standard_streams(box)
    if spec.session == "own-session":
        arguments.append("start_new_session=True")
    elif spec.session == "own-group":
        arguments.append("preexec_fn=os.setpgrp")
    if spec.signals.get("PIPE") == "ignore":
        arguments.append("restore_signals=False")
    for name in ignored:
        source.add(
            f"before_{name.lower()} = signal.signal(signal.SIG{name}, signal.SIG_IGN)"
            "  # bwrap inherits this"
        )
    numbers = ", ".join(f"signal.SIG{name}" for name in blocked)
    if blocked:
        source.add(f"signal.pthread_sigmask(signal.SIG_BLOCK, [{numbers}])  # and this")
    if spec.signals.get("PIPE") == "ignore":
        source.comment("Python ignores SIGPIPE; restore_signals=False lets bwrap inherit that.")
    source.call(f"{box.stem}monitor = subprocess.Popen(", arguments)
    for name in ignored:
        source.add(f"signal.signal(signal.SIG{name}, before_{name.lower()})")
    if blocked:
        source.add(f"signal.pthread_sigmask(signal.SIG_UNBLOCK, [{numbers}])")
    for pipe in numbered:
        source.add(f"hold_number({pipe.number})")


def _environment(box: Box) -> str:
    own = [f"{literal(k)}: {filled(v, {'scratch': 'scratch'})}" for k, v in box.spec.env.items()]
    return "{**environment, " + ", ".join(own) + "}" if own else "environment"


def _standard_streams(box: Box) -> list[str]:
    found = {}
    for pipe in box.channels.values():
        if pipe.spec.option == "terminal":
            found = dict.fromkeys(STREAMS, pipe.near)
        elif pipe.spec.option in STREAMS:
            found[pipe.spec.option] = pipe.near
    found.setdefault("stdin", "subprocess.DEVNULL")
    return [f"{stream}={found[stream]}" for stream in STREAMS if stream in found]


def _give_away(story: Story, box: Box) -> None:
    """Close here what is bwrap's or its supervisor's now."""
    source = story.source
    gone = given_away(story, box)
    kept = [each for each in near_ends(box) if each not in gone]
    if kept:
        source.comment(f"{', '.join(kept)}: kept open here, as by the helper of the scenario.")
    if len(gone) == 1:
        source.add(f"os.close({gone[0]})  # a copy here would hide its end of file")
    elif gone:
        source.call("for fd in [", gone, "]:")
        source.add("    os.close(fd)  # a copy here would hide an end of file")


def _launch_from_process(story: Story, box: Box, who: str) -> None:
    """bwrap as the child of a process of its own, which tells its pid and how it ended."""
    source = story.source
    stem = box.stem
    lane = box.prefix + who if who == "launcher" else who
    pid = f"{stem}{who}_pid" if who == "launcher" else "supervisor_pid"
    is_ended = any(step.end == lane for step in story.scenario.all_steps)
    keep = [*own_ends(box), f"{stem}tell_w"]
    source.gap()
    source.add(f"{stem}told_r, {stem}tell_w = os.pipe()")
    if is_ended:
        source.add(f"{stem}end_r, {stem}end_w = os.pipe()")
        keep.append(f"{stem}end_r")
    source.gap()
    terminal = next((p for p in box.channels.values() if p.spec.option == "terminal"), None)
    with source.block(f"def {stem}{who}():"):
        source.add(f'"""The {who}, a process of its own: it starts bwrap and waits for it."""')
        if who == "supervisor":
            source.add("os.setsid()")
        if terminal is not None:
            source.add(
                f"fcntl.ioctl({terminal.near}, termios.TIOCSCTTY, 0)",
                "for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP):",
                "    signal.signal(number, lambda *_: None)  # what is typed is for bwrap",
            )
        _start_bwrap(story, box)
        closed = [
            pipe.near
            for pipe in box.channels.values()
            if pipe.near and who not in pipe.spec.copy_kept_by
        ]
        if closed:
            source.call("for fd in [", closed, "]:")
            source.add("    os.close(fd)")
        source.add(f'os.write({stem}tell_w, b"%d\\n" % {stem}monitor.pid)')
        if is_ended:
            source.add(f"os.read({stem}end_r, 1)", "os._exit(0)")
        else:
            source.add(
                f"end = os.waitid(os.P_PID, {stem}monitor.pid, os.WEXITED)",
                f'os.write({stem}tell_w, describe_end(end).encode() + b"\\n")',
                "while True:",
                "    signal.pause()",
            )
    source.gap()
    source.call(f"{pid} = fork(", [f"{stem}{who}", f"[{', '.join(keep)}]"])
    story.resolved.add(pid)
    gone = [*given_away(story, box), f"{stem}tell_w"] + ([f"{stem}end_r"] if is_ended else [])
    source.call("for fd in [", gone, "]:")
    source.add("    os.close(fd)")
    told = told_channel(box)
    source.add(f"watch_channel({told}, {stem}told_r)")
    source.add(
        f'need(lambda: "\\n" in text[{told}], 5, "bwrap is started")',
        f"{box.monitor_pid} = int(text[{told}].splitlines()[0])",
    )
    watch_exit(story, lane, pid)


def _launch_from_thread(story: Story, box: Box) -> None:
    source, stem = story.source, box.stem
    source.add(f"{stem}started, {stem}may_end = threading.Event(), threading.Event()")
    source.gap()
    with source.block(f"def {stem}launcher():"):
        source.add('"""A thread: the parent-death signal is tied to it, not to the process."""')
        source.add(f"nonlocal {stem}monitor")
        _start_bwrap(story, box)
        source.add(f"{stem}started.set()", f"{stem}may_end.wait()")
    source.gap()
    source.add(
        f"{stem}monitor = None",
        f"threading.Thread(target={stem}launcher, daemon=True).start()",
    )
    with source.block(f"if not {stem}started.wait(5):"):
        source.add('raise Inconclusive("the thread did not start bwrap")')
    _give_away(story, box)
