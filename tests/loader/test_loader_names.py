"""What a scenario refers to exists and fits together; each check is seen to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_writing import GOOD, TWO_BOXES, load, said, spoilt

EXPECT = "  - ran: ran\n"
STEPS = "  - wait: {end: main}\n"
CHANNELS = "    gate: {option: block-fd}\n"
REFERENCE = "supervisor: {kind: reference}\nsandbox:\n"


def expecting(rule: str, *, base: str = GOOD) -> str:
    """The good scenario with one more expectation."""
    return base.rstrip("\n") + f"\n  - {rule}\n"


def with_step(step: str) -> str:
    return spoilt(STEPS, f"{STEPS}  - {step}\n")


def with_channel(channel: str) -> str:
    return spoilt(CHANNELS, f"{CHANNELS}    {channel}\n")


@pytest.mark.parametrize("text", [GOOD, TWO_BOXES], ids=["one sandbox", "two sandboxes"])
def test_the_bases_of_these_tables_are_loaded_without_a_problem(tmp_path: Path, text: str) -> None:
    loaded, problems = load(tmp_path, text)
    assert problems == []
    assert len(loaded.scenarios) == 1


GOOD_VARIANTS = {
    "an implicit stdout may be named": expecting("text: {on: stdout, empty: true}"),
    "a helper is a process": spoilt("steps:", "helpers: {idle: {}}\nsteps:").replace(
        STEPS, STEPS + "  - signal: {to: idle, send: TERM}\n"
    ),
    "braces that are no name are left alone": spoilt('"{scratch}"', '"{}"'),
    "a closed number may serve an option": spoilt(
        CHANNELS, CHANNELS + "    dead: {option: info-fd, kind: closed, number: 88}\n"
    ),
    "an option in args whose fd is a stray channel": spoilt(
        "[--unshare-pid, ", '[--info-fd, "{stray}", '
    ).replace(CHANNELS, CHANNELS + "    stray: {direction: from-sandbox}\n"),
    "reached repeats a wait": expecting("reached: {object: status, has: child-pid}"),
    "survivors after a settle": spoilt(STEPS, STEPS + "  - settle: 1s\n")
    + "  - survivors: none\n  - alive: reaper\n",
    "survivors after a census probe": spoilt(STEPS, STEPS + "  - probe: {census: true}\n")
    + "  - survivors: [reaper]\n",
    "a terminal can be typed at": spoilt(
        CHANNELS, CHANNELS + "    tty: {option: terminal, kind: pty}\n"
    ).replace(STEPS, STEPS + "  - type: {on: tty, text: x}\n"),
    "the reference supervisor reports": spoilt("sandbox:\n", REFERENCE)
    + "  - outcome: {kind: exited, code: 7}\n",
    "an observation": spoilt('{shell: "touch $SCRATCH/ran; exit 7"}', "{observe: true, then: ran}")
    + "  - observed: {path: pid, equals: 2}\n",
    "a known deviation": GOOD + "known:\n  - {rule: exit, when: bwrap < 0.9, because: it was so "
    "then, issue: 'https://example.org/1', fixed_in: 0.9.0}\n",
}


@pytest.mark.parametrize("text", GOOD_VARIANTS.values(), ids=GOOD_VARIANTS.keys())
def test_what_fits_together_is_loaded(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == []


# name -> (text, every problem)
CASES: dict[str, tuple[str, list[str]]] = {
    "no sandbox at all": (
        "id: a.b\ntitle: Something is true\nclauses: [BLOCK-2]\nexpect: [{ran: x}]\n",
        ["id | there is no sandbox; expected sandbox, or sandboxes for several"],
    ),
    "a helper called like a member of the cast": (
        spoilt("steps:", "helpers: {monitor: {}}\nsteps:"),
        ['monitor | "monitor" means something else already; expected another name'],
    ),
    "a provider called like a helper": (
        spoilt(
            "steps:", "helpers: {net: {started: by-step}}\nproviders: {net: {}}\nsteps:"
        ).replace(STEPS, STEPS + "  - start: net\n"),
        ['net | "net" is the name of one of the helpers already; expected another name'],
    ),
    "a channel called like a stream it does not serve": (
        with_channel("stdout: {option: info-fd}"),
        ['stdout | "stdout" is what the standard stream is called; expected another name'],
    ),
    "an unknown process": (
        expecting("exit: {of: minitor, code: 1}"),
        ['minitor | there is no process "minitor"; did you mean monitor?'],
    ),
    "an unknown process, unlike any": (
        expecting("exit: {of: zzz, code: 1}"),
        ['zzz | there is no process "zzz"; expected child, command, monitor, reaper or supervisor'],
    ),
    "a part without its sandbox": (
        expecting("exit: {of: monitor, code: 0}", base=TWO_BOXES),
        [
            'monitor | there is no process "monitor"; there are several sandboxes: expected '
            "left.monitor or right.monitor"
        ],
    ),
    "a sandbox's part where there is one sandbox": (
        expecting("exit: {of: main.monitor, code: 0}"),
        ['main.monitor | there is no process "main.monitor"; did you mean monitor?'],
    ),
    "a launcher that nobody asked for": (
        with_step("end: launcher"),
        ["launcher | there is no launcher here; expected launched_by: thread or process"],
    ),
    "the launcher of the other sandbox": (
        expecting("exit: {of: right.launcher, code: 0}", base=TWO_BOXES),
        ["right.launcher | there is no launcher here; expected launched_by: thread or process"],
    ),
    "one reference supervisor for two sandboxes": (
        spoilt("sandboxes:\n", "supervisor: {kind: reference}\nsandboxes:\n", base=TWO_BOXES)
        + "  - outcome: {kind: exited}\n",
        [
            '{kind | there is no reference supervisor "supervisor"; there are several sandboxes: '
            "expected left.supervisor or right.supervisor"
        ],
    ),
    "an unknown helper": (
        with_step("start: holder"),
        ['holder | there is no helper or provider "holder"; there is none here'],
    ),
    "an unknown channel": (
        expecting("eof: {on: statsu}"),
        ['statsu | there is no channel "statsu"; did you mean status?'],
    ),
    "reading from the gate": (
        expecting("eof: {on: gate}"),
        [
            "gate | gate carries data into the sandbox; expected a channel that comes out of it",
        ],
    ),
    "writing to the status stream": (
        with_step("write: {to: status, text: x}"),
        [
            "status | status carries data out of the sandbox; expected a channel that goes into it",
        ],
    ),
    "typing at a pipe": (
        with_step("type: {on: gate, text: x}"),
        ["gate | gate is no terminal but a pipe; expected a channel with kind: pty"],
    ),
    "an unknown sandbox": (
        spoilt("{end: main}", "{end: left}"),
        ['left | there is no sandbox "left"; expected main'],
    ),
    "a provider for an unknown sandbox": (
        spoilt("steps:", "providers: {net: {for: mian}}\nsteps:").replace(
            STEPS, STEPS + "  - start: net\n"
        ),
        ['mian | there is no sandbox "mian"; did you mean main?'],
    ),
    "a far end held by nobody": (
        with_channel("x: {option: info-fd, held_by: holder}"),
        ['holder | nobody is called "holder"; expected observer or supervisor'],
    ),
    "a copy kept by nobody": (
        with_channel("x: {option: info-fd, copy_kept_by: [nobody]}"),
        ['nobody | nobody is called "nobody"; expected supervisor'],
    ),
    "an option served twice": (
        with_channel("again: {option: block-fd}"),
        [
            "block-fd | block-fd is served by channel gate already; expected one channel for it",
        ],
    ),
    "an option served by a channel and in args": (
        spoilt("[--unshare-pid", "[--block-fd, '9'"),
        ["--block-fd | --block-fd is given here and by channel gate; expected it once"],
    ),
    "a terminal and a stdout": (
        with_channel("out: {option: stdout}\n    tty: {option: terminal, kind: pty}"),
        ["terminal | terminal is served by channel out already; expected one channel for it"],
    ),
    "a direction against the option's": (
        with_channel("x: {option: info-fd, direction: to-sandbox}"),
        ["to-sandbox | info-fd goes from-sandbox; expected that or nothing"],
    ),
    "a terminal that is a pipe": (
        with_channel("x: {option: terminal, kind: pipe}"),
        ["pipe | a terminal is no pipe; expected kind: pty"],
    ),
    "one number for two channels": (
        with_channel("x: {option: info-fd, number: 9}\n    y: {option: sync-fd, number: 9}"),
        [
            "9 | number 9 is that of channel x; expected another one, or same_number_as: x",
        ],
    ),
    "a spec and a base": (
        spoilt("  args:", "  base: none\n  spec: {}\n  args:"),
        ["base | base does not go with spec; expected one of them"],
    ),
    "a file outside the scratch directory": (
        spoilt("steps:", "files: {../../etc/x: {}}\nsteps:"),
        [
            '../../etc/x | "../../etc/x" leads out of the scratch directory; expected a relative '
            "path"
        ],
    ),
    "a lock on a file that is not there": (
        spoilt("{lock: {}}", "{lok: {}}", base=TWO_BOXES),
        ['lock | there is no file "lock"; did you mean lok?'],
    ),
    "a probe of a file that is not there": (
        with_step("probe: {locks: l}"),
        ['l | there is no file "l"; expected it under files'],
    ),
    "a placeholder for nothing": (
        spoilt("{scratch}", "{stauts}/{scratch}"),
        ['"{stauts | {stauts} stands for nothing; did you mean status or stdout?'],
    ),
    "a probe that is not there": (
        expecting("locks: {at: locks, held: [read]}"),
        ['locks | there is no probe "locks"; expected a probe step with that name'],
    ),
    "a probe of another kind": (
        with_step("probe: {fds: monitor, name: before}")
        + "  - locks: {at: before, held: [read]}\n",
        ["before | before probes fds; expected a probe of locks"],
    ),
    "a comparison with a probe of another kind": (
        with_step("probe: {uid_map: child}\n  - probe: {signals: child}")
        + "  - probe: {at: uid-map, path: x, same_as: signals}\n",
        ["signals | signals probes signals; expected a probe of uid-map"],
    ),
    "two probes with one name": (
        with_step("probe: {fds: monitor}\n  - probe: {fds: child}"),
        ["{fds | a probe is called fds already; expected another name"],
    ),
    "an inode of nothing": (
        expecting("field: {on: status, member: x, inode_of: here.net}"),
        ['here.net | "here.net" is no namespace that was looked at; expected observed.net'],
    ),
    "an inode of an observation that is not made": (
        expecting("field: {on: status, member: x, inode_of: observed.net}"),
        ["observed.net | nothing is observed inside; expected a command with observe"],
    ),
    "reached without its wait": (
        expecting("reached: {object: status, has: exit-code}"),
        ["{object | no step waits for this; expected a wait step with exactly the same text"],
    ),
    "survivors without a census": (
        expecting("survivors: none"),
        ["survivors | survivors needs a census; expected a settle step or a census probe"],
    ),
    "an observation without observe": (
        expecting("observed: {path: pid, equals: 2}"),
        ["observed | nothing is observed inside; expected a command with observe: true"],
    ),
    "an observation of one of two": (
        expecting("observed: {path: pid, equals: 2}", base=TWO_BOXES),
        ["{path | there are several sandboxes; expected of: left or right"],
    ),
    "an outcome of the scripted supervisor": (
        expecting("outcome: {kind: exited}"),
        [
            "outcome | outcome is for the reference supervisor; expected supervisor: "
            "{kind: reference}"
        ],
    ),
    "a moment that only the reference supervisor has": (
        expecting("order: [{said: x}, {exit: monitor}]"),
        [
            "said | said is for the reference supervisor; expected supervisor: {kind: reference}",
        ],
    ),
    "ready_when without its channel": (
        spoilt("sandbox:\n", "supervisor: {kind: reference, ready_when: gate}\nsandbox:\n"),
        [
            'gate | "gate" is no stray channel with direction: to-sandbox; expected one in each '
            "sandbox"
        ],
    ),
    "two rules with one name": (
        spoilt(EXPECT, "  - {ran: ran, name: exit-2}\n") + "  - exit: {of: child, code: 1}\n",
        ["exit | a rule is called exit-2 already; expected another name"],
    ),
    "a deviation of no rule": (
        GOOD + "known:\n  - {rule: survivor, when: bwrap < 1, because: it was so then, "
        "issue: 'https://example.org/1'}\n",
        ['survivor | there is no rule "survivor"; expected exit or ran'],
    ),
    "a deviation that outlives its fix": (
        GOOD + "known:\n  - {rule: exit, when: bwrap < 1, because: it was so then, "
        "issue: 'https://example.org/1', fixed_in: 0.12.0}\n",
        [
            '0.12.0 | "bwrap < 1" holds for 0.12.0 too, where it is fixed; expected when: '
            "bwrap < 0.12.0"
        ],
    ),
    "a fix in no version": (
        GOOD + "known:\n  - {rule: exit, when: bwrap < 1, because: it was so then, "
        "issue: 'https://example.org/1', fixed_in: main}\n",
        ['main | "main" is no version; expected such as 0.13.0'],
    ),
    "a marker that no command mentions": (
        expecting("never_ran: rann"),
        [
            'rann | no command mentions "rann", so it can never appear; expected such as touch '
            "$SCRATCH/rann"
        ],
    ),
    "a marker that is there from the start": (
        spoilt("steps:", "files: {ran: {}}\nsteps:"),
        [
            'ran | "ran" is one of the files, so it is there before anything runs; expected a '
            "marker of its own"
        ],
    ),
    "a clause that is not in the contract": (
        spoilt("BLOCK-2", "BLOCK-3"),
        ["BLOCK-3 | there is no clause BLOCK-3; did you mean BLOCK-2?"],
    ),
    "a rule's clause that is not in the contract": (
        expecting("{eof: {on: status}, clause: X-1}"),
        ["X-1 | there is no clause X-1; expected one of contract.yaml"],
    ),
    "a claim without a how-to": (
        spoilt("clauses:", "claim: upheld\nclauses:"),
        ["claim | claim needs a clause of the family how-to, such as HOWTO-1"],
    ),
    "a how-to without a claim": (
        spoilt("BLOCK-2", "HOWTO-1"),
        ["HOWTO-1 | HOWTO-1 is a claim; expected claim: upheld or claim: refuted beside it"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_what_does_not_fit_is_said_once_and_where(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert said(tmp_path, text) == expected
