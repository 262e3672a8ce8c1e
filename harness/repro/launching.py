"""Starting bwrap: its arguments, its environment, its fds, and what it inherits."""

from __future__ import annotations

from harness.repro.cast import resolve_named
from harness.repro.channels import (
    given_away,
    near_ends,
    watch_channels,
)
from harness.repro.endings import watch_exit
from harness.repro.observing import observing_shell
from harness.repro.parents import launch_from_elsewhere
from harness.repro.source import WIDTH, Source, broken, filled, literal
from harness.repro.specification import spec_words
from harness.repro.story import STREAMS, Box, Story, refuse


def launch(story: Story, box: Box) -> None:
    """Statements that start one bwrap, from wherever the scenario starts it."""
    _write_argv(story, box)
    if box.is_told:
        launch_from_elsewhere(story, box, start_bwrap)
    else:
        start_bwrap(story, box)
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
    _write_command(story, box)


def _write_command(story: Story, box: Box) -> None:
    source, command = story.source, box.spec.command
    shell = observing_shell(story, box) if command.observe else command.shell
    words = command.argv or ["/bin/sh", "-c", shell or ""]
    line = ", ".join(map(literal, words))
    if len(line) < WIDTH - 18 and "\\n" not in line:
        source.add(f"argv += [{line}]")
        return
    source.add("argv += [")
    for word in words:
        pieces = broken(word) or ['""']
        source.add(*(f"    {piece}" for piece in pieces[:-1]), f"    {pieces[-1]},")
    source.add("]")


def start_bwrap(story: Story, box: Box) -> None:
    """``monitor = subprocess.Popen(...)`` with the dispositions that bwrap is to inherit."""
    source, spec = story.source, box.spec
    ignored = [name for name, how in spec.signals.items() if how == "ignore" and name != "PIPE"]
    blocked = [name for name, how in spec.signals.items() if how == "block"]
    if set(spec.signals.values()) & {"default"}:
        raise refuse(story.scenario, "a signal is set to its default for bwrap (signals)")
    arguments = ["argv", f"env={_environment(source, box)}"]
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


def _environment(source: Source, box: Box) -> str:
    """bwrap's environment: that of all, with what this sandbox has of its own."""
    own = [f"{literal(k)}: {filled(v, {'scratch': 'scratch'})}" for k, v in box.spec.env.items()]
    if not own:
        return "environment"
    source.call(f"{box.stem}environment = {{", ["**environment", *own], "}")
    return f"{box.stem}environment"


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
