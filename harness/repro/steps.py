"""The steps of a scenario as statements, one function a verb (waits are in ``waiting``)."""

from __future__ import annotations

from collections.abc import Callable

from harness.model.scenario import SendSignal, Step
from harness.repro.cast import resolve_child
from harness.repro.endings import has_ended, watch_exit
from harness.repro.launching import launch
from harness.repro.probes import probe, take_census
from harness.repro.source import bytes_literal, identifier, literal, seconds
from harness.repro.story import Story, outside, refuse
from harness.repro.waiting import describe, resolve, where_is, write_wait


def write_step(story: Story, number: int, step: Step) -> None:
    """The statements of one step, under a comment that says what it is."""
    source = story.source
    source.gap()
    mark = "  This is what it is about." if step.trigger else ""
    source.comment(f"{number}. {describe(step)}.{mark}")
    story.is_moment = step.trigger and any(moment.trigger for moment in story.moments())
    if story.is_moment and step.verb in _ACTIONS:
        source.add("look()  # what has happened so far happened before this")
    _STEPS[step.verb](story, step, number)
    if story.is_moment:  # nothing was done to the world: it is over when it was seen to be
        source.add('note("did", "trigger")')
    story.triggered = story.triggered or step.trigger


#: Verbs that do something to the world: the moment of such a trigger is when that was done, and
#: what follows in the step is after it.
_ACTIONS = ("signal", "write", "close", "end", "stop", "type", "resize")


def _acted(story: Story) -> None:
    """Have the moment noted at which the trigger was done, if a check names it."""
    if story.is_moment:
        story.source.add('did("trigger")')
        story.is_moment = False


# --- verbs ---------------------------------------------------------------------------------------


def _launch(story: Story, step: Step, _number: int) -> None:
    launch(story, story.boxes[step.launch or ""])


def _write(story: Story, step: Step, number: int) -> None:
    assert step.write is not None
    pipe = story.channel(step.write.to, where_is(number, step))
    is_written = not pipe.from_sandbox or pipe.spec.option == "terminal"
    if pipe.spec.held_by != "observer" or not pipe.far or not is_written:
        raise refuse(
            story.scenario, f"{where_is(number, step)}: {pipe.lane} is not ours to write to"
        )
    data = bytes_literal(step.write.text)
    story.source.add(f"write({pipe.far}, {data}, {seconds(step.within)})")
    _acted(story)


def _close(story: Story, step: Step, number: int) -> None:
    pipe = story.channel(step.close or "", where_is(number, step))
    if pipe.spec.held_by == "supervisor" or not pipe.far:
        raise refuse(story.scenario, f"{where_is(number, step)}: {pipe.lane} is not ours to close")
    end = f"reading.pop({literal(pipe.lane)})" if pipe.is_read else pipe.far
    story.source.add(f"os.close({end})")
    _acted(story)


def _signal(story: Story, step: Step, number: int) -> None:
    assert step.signal is not None
    source, what = story.source, step.signal
    lane = what.to or what.group_of or ""
    resolve(story, lane, seconds(step.within))
    pid = story.pid(lane, where_is(number, step))
    if what.group_of is not None:
        source.add(f"os.killpg(os.getpgid({pid}), signal.SIG{what.send})")
    else:
        source.add(f"os.kill({pid}, signal.SIG{what.send})")
    _acted(story)
    if what.send == "STOP":
        _await_stop(story, what, pid, seconds(step.within))


def _await_stop(story: Story, what: SendSignal, pid: str, within: str) -> None:
    # A signal is only queued; the stop is a fact once /proc shows it.
    name = literal(f"{what.to or what.group_of} is stopped")
    story.source.add(f'need(lambda: state({pid}) in "TZX", {within}, {name})')


def _end(story: Story, step: Step, number: int) -> None:
    found = story.box_of(step.end or "")
    if found is None:
        raise refuse(story.scenario, f"{where_is(number, step)} names no launcher of a sandbox")
    box = found[0]
    story.source.add(f'os.write({box.stem}end_to, b"e")')
    _acted(story)


def _start(story: Story, step: Step, number: int) -> None:
    name = step.start or ""
    provider = story.scenario.providers.get(name)
    if provider is None:
        raise refuse(story.scenario, f"{where_is(number, step)}: a helper that is started later")
    box = story.boxes[provider.for_]
    resolve_child(story, box)
    source, stem = story.source, identifier(name)
    command = [provider.program or "slirp4netns", *provider.options]
    words = ", ".join(map(literal, command))
    source.add(
        f"{stem}_provider, {stem}_stop = start_provider({literal(name)}, [{words}], "
        f"{box.child_pid})"
    )
    watch_exit(story, name, f"{stem}_provider.pid")


def _stop(story: Story, step: Step, _number: int) -> None:
    source, name = story.source, step.stop or ""
    stem = identifier(name)
    if name in story.scenario.providers:
        source.add(f"os.close({stem}_stop)  # which ends it")
        _acted(story)
        source.add(
            f"need(lambda: {has_ended(story, name)}, 2, {literal(name + ' has ended')})",
        )
        return
    helper = story.scenario.helpers[name]
    if helper.listen is not None:
        source.add(f"os.kill({stem}_pid, signal.SIGKILL)")
    elif helper.lock is not None:
        source.add(f"os.close({stem}_lock)")
    for box in story.boxes.values():
        for pipe in box.channels.values():
            if name in pipe.spec.copy_kept_by:
                source.add(f"os.close({pipe.near})")
            if name == pipe.spec.held_by and pipe.far:
                source.add(f"os.close({pipe.far})")
    _acted(story)


def _map_ids(story: Story, step: Step, number: int) -> None:
    resolve(story, step.map_ids or "", seconds(step.within))
    story.source.add(f"map_ids({story.pid(step.map_ids or '', where_is(number, step))})")


def _probe(story: Story, step: Step, number: int) -> None:
    assert step.probe is not None
    for lane in (step.probe.fds, step.probe.namespaces, step.probe.uid_map, step.probe.signals):
        if lane is not None:
            resolve(story, lane, seconds(step.within))
    probe(story, step.probe, seconds(step.within), where_is(number, step))


def _pass(story: Story, step: Step, _number: int) -> None:
    story.source.add(f"wait_until(lambda: False, {seconds(step.pass_ or 0)})")


def _settle(story: Story, step: Step, _number: int) -> None:
    more = outside(story)
    story.source.add(f"settle({seconds(step.settle or 0)}{', ' + more if more else ''})")
    if step is [each for each in story.scenario.all_steps if each.settle is not None][-1]:
        take_census(story)


def _type(story: Story, step: Step, number: int) -> None:
    assert step.type is not None
    pipe = story.channel(step.type.on, where_is(number, step))
    story.source.add(f"os.write({pipe.far}, {bytes_literal(step.type.text)})")
    _acted(story)


def _resize(story: Story, step: Step, number: int) -> None:
    assert step.resize is not None
    what, source = step.resize, story.source
    pipe = story.channel(what.on, where_is(number, step))
    source.add(
        f'size = struct.pack("HHHH", {what.rows}, {what.columns}, 0, 0)',
        f"fcntl.ioctl({pipe.far}, termios.TIOCSWINSZ, size)",
    )
    _acted(story)


_STEPS: dict[str, Callable[[Story, Step, int], None]] = {
    "launch": _launch,
    "wait": write_wait,
    "write": _write,
    "close": _close,
    "signal": _signal,
    "end": _end,
    "start": _start,
    "stop": _stop,
    "map_ids": _map_ids,
    "probe": _probe,
    "pass": _pass,
    "settle": _settle,
    "type": _type,
    "resize": _resize,
}
