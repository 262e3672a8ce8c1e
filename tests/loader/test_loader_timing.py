"""Steps can be done in order and in time, and a scenario can fail; each check is seen to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_writing import GOOD, TWO_BOXES, said, spoilt

STEPS = "  - wait: {end: main}\n"
EXPECT = "  - exit: {of: monitor, code: 7}\n  - ran: ran\n"
KNOWN = "known:\n  - {rule: exit, because: it was so then, issue: 'https://example.org/1', "


def with_step(step: str) -> str:
    return spoilt(STEPS, f"{STEPS}  - {step}\n")


def expecting_only(*rules: str, needs: str = "") -> str:
    """The good scenario with a settle, and with these expectations and no other."""
    text = with_step("settle: 1s").replace(EXPECT, "".join(f"  - {rule}\n" for rule in rules))
    return text.replace("sandbox:\n", f"needs: {{{needs}}}\nsandbox:\n") if needs else text


def two_boxes(*steps: str) -> str:
    return spoilt(
        "expect:", "steps:\n" + "".join(f"  - {s}\n" for s in steps) + "expect:", base=TWO_BOXES
    )


CASES: dict[str, tuple[str, list[str]]] = {
    "no step is the trigger": (
        spoilt("    trigger: true\n", ""),
        ["steps | none of the steps is the stimulus; expected trigger: true on one of them"],
    ),
    "two triggers": (
        with_step("{settle: 1s, trigger: true}"),
        ["trigger | step 2 is the trigger already; expected one trigger"],
    ),
    "a signal to a sandbox before its launch": (
        two_boxes("{signal: {to: right.monitor, send: KILL}, trigger: true}", "launch: right"),
        [
            "right.monitor | right.monitor is not there yet: step 2 launches right; expected "
            "this step after it"
        ],
    ),
    "a wait for a sandbox before its launch": (
        two_boxes("{wait: {end: right}, trigger: true}", "launch: right"),
        ["right | right is not there yet: step 2 launches right; expected this step after it"],
    ),
    "one launch twice": (
        two_boxes("{launch: right, trigger: true}", "launch: right"),
        ["right | right is launched by step 1 already; expected one launch"],
    ),
    "a helper that no step starts": (
        spoilt("steps:", "helpers: {idle: {started: by-step}}\nsteps:"),
        ["by-step | no step starts idle; expected a start step, or started: at-once"],
    ),
    "a helper that is started twice": (
        spoilt("steps:", "helpers: {idle: {}}\nsteps:").replace(STEPS, STEPS + "  - start: idle\n"),
        ["idle | idle is started at once; expected started: by-step, or no start step"],
    ),
    "a helper before its start": (
        spoilt("steps:", "helpers: {idle: {started: by-step}}\nsteps:").replace(
            STEPS, STEPS + "  - wait: {ready: idle}\n  - start: idle\n"
        ),
        ["idle | idle is not there yet: step 5 starts it; expected this step after it"],
    ),
    "time that does not fit": (
        with_step("pass: 6s"),
        [
            "6s | 6s is longer than the step's deadline; expected within: above it (it is 5s by "
            "default)"
        ],
    ),
    "a settle that does not fit": (
        with_step("{settle: 1500ms, within: 1s}"),
        ["1500ms | 1.5s is longer than the step's deadline; expected within: above it (it is 1s)"],
    ),
    "a gap of nothing that fits": (
        GOOD + "  - gap: {from: {trigger: true}, to: {exit: monitor}, at_least: 2s, at_most: 1s}\n",
        ["2s | at least 2s and at most 1s cannot both hold; expected at_least below at_most"],
    ),
    "a wait for what is never read": (
        spoilt("{option: json-status-fd}", "{option: json-status-fd, read: never}"),
        ["status | status is never read, so this cannot be seen; expected read: drain"],
    ),
    "a wait for the end of what is closed": (
        spoilt("{option: json-status-fd}", "{option: json-status-fd, read: first-line-then-close}")
        + "  - eof: {on: status}\n",
        [
            "status | status is closed after its first line, so no end of file is seen; expected "
            "read: drain"
        ],
    ),
    "a wait for what somebody else holds": (
        spoilt("{option: json-status-fd}", "{option: json-status-fd, held_by: supervisor}"),
        [
            "status | status is held by supervisor, so this cannot be seen; expected held_by: "
            "observer"
        ],
    ),
    "a write to what a helper holds": (
        spoilt("{option: block-fd}", "{option: block-fd, held_by: idle}").replace(
            "steps:", "helpers: {idle: {}}\nsteps:"
        ),
        [
            "gate | gate is held by idle, which takes no orders; expected held_by: observer or "
            "supervisor"
        ],
    ),
    "a provider that no step starts": (
        spoilt("steps:", "providers: {net: {}}\nsteps:"),
        ["net | no step starts net; expected a start step for this provider"],
    ),
    "a rate of one": (
        GOOD + "rate: {at_most: 0.1}\n",
        ["rate | a rate needs several recordings; expected repeat: above 1"],
    ),
    "a deviation in a share of one": (
        GOOD + KNOWN + "when: bwrap < 1, rate_at_least: 0.1}\n",
        ["rate_at_least | a rate needs several recordings; expected repeat: above 1"],
    ),
    "an order of one moment": (
        GOOD + "  - order: [{exit: monitor}, {exit: monitor}]\n",
        ["order | this order holds whatever happens; expected two different moments"],
    ),
    "a gap of at least nothing": (
        GOOD + "  - gap: {from: {trigger: true}, to: {exit: monitor}, at_least: 0s}\n",
        ["gap | this gap holds whatever happens; expected at_least above 0, or at_most"],
    ),
    "objects without a question": (
        GOOD + "  - objects: {on: status}\n",
        ["objects | this asks nothing of the objects; expected count, members, some_has, ..."],
    ),
    "a when that contradicts needs": (
        GOOD.replace("sandbox:\n", "needs: {bwrap: bwrap >= 0.12.0}\nsandbox:\n")
        + "  - {exit: {of: child, code: 1}, when: bwrap < 0.12.0}\n",
        [
            'bwrap | "bwrap < 0.12.0" never holds together with needs: "bwrap >= 0.12.0"; expected '
            "a condition that can"
        ],
    ),
    "a when that contradicts itself": (
        GOOD + "  - {exit: {of: child, code: 1}, when: uid == 0 and uid != 0}\n",
        ['uid | "uid == 0 and uid != 0" never holds; expected a condition that can'],
    ),
    "a when that asks for another user": (
        GOOD.replace("sandbox:\n", "user: root\nsandbox:\n")
        + "  - {exit: {of: child, code: 1}, when: uid > 0}\n",
        ['uid | "uid > 0" never holds; expected a condition that can'],
    ),
    "a deviation where its rule does not apply": (
        GOOD
        + "  - {exit: {of: child, code: 1}, name: odd, when: bwrap >= 0.9}\n"
        + KNOWN.replace("rule: exit", "rule: odd")
        + "when: bwrap < 0.9}\n",
        [
            'bwrap | "bwrap < 0.9" never holds where the rule applies ("bwrap >= 0.9"); expected a '
            "condition that can"
        ],
    ),
    "nothing is required in between": (
        expecting_only(
            "{exit: {of: monitor, code: 7}, when: bwrap < 0.8.0}",
            "{ran: ran, when: bwrap > 0.8.0}",
        ),
        [
            "expect | this scenario cannot fail with bwrap 0.8.0: no expectation with such a "
            "when applies there and asks for anything; expected one without when, or needs"
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_what_cannot_be_done_or_never_holds_is_refused(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert said(tmp_path, text) == expected


NOTHING_ASKED = {
    "a marker that never appears": ["never_ran: ran"],
    "no survivors": ["survivors: none"],
    "no survivors, as a list": ["survivors: []"],
    "no zombies": ["zombies: none"],
    "any exit": ["exit: {of: monitor, any: true}"],
    "an exit that never comes": ["exit: {of: child, never: true}"],
    "a text that is lacking": ["text: {on: stdout, lacks: x}"],
    "an empty text": ["text: {on: stdout, empty: true}"],
    "no lines": ["text: {on: stdout, lines: []}"],
    "no objects": ["objects: {on: status, count: 0}"],
    "objects without a member": ["objects: {on: status, none_has: exit-code}"],
    "a member that is absent": ["field: {on: status, member: exit-code, absent: true}"],
    "no end of file": ["eof: {on: status, seen: false}"],
    "several of them": ["never_ran: ran", "survivors: none", "exit: {of: monitor, any: true}"],
}


@pytest.mark.parametrize("rules", NOTHING_ASKED.values(), ids=NOTHING_ASKED.keys())
def test_a_scenario_whose_expectations_hold_when_nothing_runs_is_refused(
    tmp_path: Path, rules: list[str]
) -> None:
    assert said(tmp_path, expecting_only(*rules)) == [
        "expect | this scenario cannot fail: all that it expects holds when nothing runs; expected "
        "one that something happened: an exit code, a line, a member, a marker, an order"
    ]


SOMETHING_ASKED = {
    "an exit code": ["exit: {of: monitor, code: 0}"],
    "a signal": ["exit: {of: monitor, signal: KILL}"],
    "a marker": ["ran: ran"],
    "an end of file": ["eof: {on: status}"],
    "a count": ["objects: {on: status, count: 2}"],
    "a member": ["field: {on: status, member: exit-code, equals: 0}"],
    "an order": ["order: [{object: status, has: exit-code}, {exit: monitor}]"],
    "a gap": ["gap: {from: {trigger: true}, to: {exit: monitor}, at_most: 1s}"],
    "a survivor": ["survivors: [reaper]"],
    "a member of the cast alive": ["alive: reaper"],
    "some text": ["text: {on: stdout, empty: false}"],
    "a wait that is met": ["reached: {object: status, has: child-pid}"],
    "on either side of a version": [
        "{exit: {of: monitor, code: 7}, when: bwrap < 0.11.1}",
        "{exit: {of: monitor, signal: KILL}, when: bwrap >= 0.11.1}",
    ],
    "for either user": [
        "{exit: {of: monitor, code: 7}, when: uid == 0}",
        "{exit: {of: monitor, signal: KILL}, when: uid > 0}",
    ],
    "for either fact": [
        "{exit: {of: monitor, code: 7}, when: doctor.apparmor == true}",
        "{exit: {of: monitor, signal: KILL}, when: doctor.apparmor == false}",
    ],
}


@pytest.mark.parametrize("rules", SOMETHING_ASKED.values(), ids=SOMETHING_ASKED.keys())
def test_one_expectation_that_something_happened_is_enough(
    tmp_path: Path, rules: list[str]
) -> None:
    assert said(tmp_path, expecting_only(*rules, "never_ran: ran")) == []


def test_what_needs_rule_out_does_not_have_to_be_covered(tmp_path: Path) -> None:
    rule = "{exit: {of: monitor, code: 7}, when: bwrap >= 0.9.0}"
    assert said(tmp_path, expecting_only(rule, needs="bwrap: bwrap >= 0.9.0")) == []
    assert len(said(tmp_path, expecting_only(rule, needs="bwrap: bwrap >= 0.8.9"))) == 1
