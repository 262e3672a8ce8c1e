"""What a mapping may have in it: said in plain words, once, at the right place."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_writing import GOOD, load, said, spoilt

CASES: dict[str, tuple[str, list[str]]] = {
    "a misspelt member is not missing as well": (
        spoilt("title:", "titel:"),
        ['titel | there is no member "titel" here; did you mean title?'],
    ),
    "a member unlike any other lists them": (
        spoilt("{to: gate, text: x}", "{to: gate, text: x, zzzz: 1}"),
        ['zzzz | there is no member "zzzz" here; expected text or to'],
    ),
    "the name that a member has in Python is unknown": (
        GOOD + "  - gap: {from_: {trigger: true}, to: {exit: monitor}, at_most: 1s}\n",
        ['from_ | there is no member "from_" here; did you mean from?'],
    ),
    "a missing member": (
        spoilt("title: One byte on the gate starts the command\n", ""),
        ["id | title is missing here; expected text"],
    ),
    "a missing member of a nested mapping": (
        spoilt("{to: gate, text: x}", "{to: gate}"),
        ["{to | text is missing here; expected text"],
    ),
    "a number where text belongs": (
        spoilt("--chdir,", "--uid, 0, --chdir,"),
        ["0 | expected text, got the number 0; quote it"],
    ),
    "a version that YAML takes for a number": (
        GOOD + "known:\n  - {rule: exit, when: bwrap < 1, because: it was so then, "
        "issue: 'https://example.org/1', fixed_in: 0.9}\n",
        ["0.9 | expected text, got the number 0.9; quote it"],
    ),
    "text where a number belongs": (
        spoilt("code: 7", "code: '7'"),
        ["'7' | expected a whole number, got \"7\""],
    ),
    "yes is text in YAML 1.2": (
        spoilt("trigger: true", "trigger: yes"),
        ['yes | expected true or false, got "yes"'],
    ),
    "a number out of bounds": (
        spoilt("code: 7", "code: 256"),
        ["256 | expected at most 255, got the number 256"],
    ),
    "a rate of one": (
        GOOD + "repeat: 3\nrate: {at_most: 1}\n",
        ["1 | expected less than 1, got the number 1"],
    ),
    "a value that is not among the allowed ones": (
        spoilt("option: block-fd", "option: blok-fd"),
        ['blok-fd | "blok-fd" is not allowed here; did you mean block-fd or userns-block-fd?'],
    ),
    "a value unlike the allowed ones": (
        spoilt("sandbox:\n", "user: me\nsandbox:\n"),
        ['me | "me" is not allowed here; expected default or root'],
    ),
    "a signal that does not exist": (
        spoilt("  args:", "  signals: {CHILD: ignore}\n  args:"),
        ['CHILD | "CHILD" is not allowed here; did you mean CHLD?'],
    ),
    "a name with capitals": (
        spoilt("    gate:", "    Gate:"),
        [
            'Gate | "Gate" is not a name; expected lower-case letters, digits and dashes, a letter '
            "first"
        ],
    ),
    "an id without an area": (
        spoilt("id: block-fd.byte-opens-the-gate", "id: byte"),
        ['byte | expected area.what-happens, such as block-fd.eof-opens-the-gate, got "byte"'],
    ),
    "a title that says nothing": (
        spoilt("One byte on the gate starts the command", "Short"),
        ['Short | expected at least 8 characters, got "Short"'],
    ),
    "no clause": (
        spoilt("[STATUS-1, BLOCK-2]", "[]"),
        ["[ | expected a list with at least 1 entry, got 0"],
    ),
    "one of several sandboxes": (
        "id: a.b\ntitle: Something is true\nclauses: [BLOCK-2]\nsandboxes:\n"
        "  left: {command: [ls]}\nexpect: [{exit: {of: left.monitor, code: 0}}]\n",
        ["left | expected a mapping with at least 2 entries, got 1"],
    ),
    "text where a mapping belongs": (
        spoilt('{shell: "touch $SCRATCH/ran; exit 7"}', "touch ran"),
        [
            "touch | expected a list of arguments, or a mapping with argv, shell, observe, then, "
            'got "touch ran"'
        ],
    ),
    "two commands": (
        spoilt("{shell:", "{argv: [ls], shell:"),
        ["{argv | a command takes exactly one of: argv, shell"],
    ),
    "an empty command line, at the list": (
        spoilt('{shell: "touch $SCRATCH/ran; exit 7"}', "[]"),
        ["[ | expected a list with at least 1 entry, got 0"],
    ),
    "a duration without a unit": (
        spoilt("{end: main}", "{end: main}\n    within: 500"),
        ["500 | expected a duration with its unit, such as 500ms, 2s or 1min"],
    ),
    "a condition that cannot be read": (
        GOOD + "  - {ran: ran, when: bwrap 0.9}\n",
        ['bwrap | cannot read "bwrap 0.9": expected a term such as bwrap <= 0.13.1'],
    ),
    "a step with two verbs": (
        spoilt("- wait: {end: main}", "- wait: {end: main}\n    close: gate"),
        ["wait | a step takes exactly one of: wait, close"],
    ),
    "a choice of forms is one problem": (
        GOOD + "  - survivors: nobody\n",
        ['nobody | expected a list of text, or none, got "nobody"'],
    ),
    "an item of a form is the item's problem": (
        GOOD + "  - survivors: [monitor, 7]\n",
        ["7 | expected text, got the number 7; quote it"],
    ),
    "a choice of scalars is one problem": (
        GOOD + "  - field: {on: status, member: x, equals: [1]}\n",
        ["[1 | expected a whole number, or text, or true or false, got a list"],
    ),
    "a member without a value": (
        spoilt("{end: main}", "{end: main}\n    within:"),
        ["within | within has no value; expected a duration such as 500ms, 2s or 1min"],
    ),
    "a verb without a value is not a missing verb": (
        GOOD + "  - ran:\n",
        ["ran | ran has no value; expected text"],
    ),
    "a required member without a value is not a missing member": (
        spoilt("One byte on the gate starts the command", ""),
        ["title | title has no value; expected text"],
    ),
    "an unknown version condition without a value": (
        GOOD + "  - {ran: ran, when: }\n",
        ['when | when has no value; expected a condition such as "bwrap <= 0.13.1"'],
    ),
    "a scenario that is text": (
        "just text\n",
        ['just | expected a scenario, a mapping with id, got "just text"'],
    ),
    "several problems at once": (
        spoilt("title:", "titel:").replace("code: 7", "code: -1").replace("block-fd}", "gate}"),
        [
            'titel | there is no member "titel" here; did you mean title?',
            'gate | "gate" is not allowed here; expected json-status-fd, info-fd, sync-fd, '
            "block-fd, userns-block-fd, args, seccomp, add-seccomp-fd, stdin, stdout, stderr or "
            "terminal",
            "-1 | expected at least 0, got the number -1",
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_wrong_form_is_said_in_plain_words(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert said(tmp_path, text) == expected


#: What the models check in code, about several members together: beyond the schema.
TOGETHER: dict[str, tuple[str, list[str]]] = {
    "no time at all": (
        spoilt("{end: main}", "{end: main}\n    within: 0s"),
        ["wait | a deadline of 0 can never be met"],
    ),
    "too much time": (
        spoilt("{end: main}", "{end: main}\n    within: 11min"),
        ["wait | a deadline above 10min is refused: nothing in a sandbox takes that"],
    ),
    "a member of another verb": (
        spoilt("{end: main}", "{end: main, has: exit-code}"),
        ["{end | has does not go with end"],
    ),
    "a process without a state": (
        spoilt("{end: main}", "{process: monitor}"),
        ["{process | process needs a state"],
    ),
    "then without observe": (
        spoilt('exit 7"}', 'exit 7", then: ls}'),
        ["{shell | then goes with observe"],
    ),
    "a lock without a file": (
        spoilt("steps:", "helpers: {holder: {lock: read}}\nsteps:"),
        ["{lock | a lock needs a file"],
    ),
    "a gap without a bound": (
        GOOD + "  - gap: {from: {trigger: true}, to: {exit: monitor}}\n",
        ["{from | gap needs at_most or at_least, or it can never fail"],
    ),
    "a stray pipe without a direction": (
        spoilt("gate: {option: block-fd}", "gate: {}"),
        ["args | channel gate serves no option, so it needs a direction"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), TOGETHER.values(), ids=TOGETHER.keys())
def test_members_that_do_not_go_together_are_said_at_their_mapping(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert said(tmp_path, text) == expected


def test_a_problem_prints_its_line_and_a_caret(tmp_path: Path) -> None:
    _, problems = load(tmp_path, spoilt("code: 7", "code: 256"))
    assert [str(problem) for problem in problems] == [
        "one.yaml:16:31: expected at most 255, got the number 256\n"
        "      - exit: {of: monitor, code: 256}\n"
        "                                  ^"
    ]


def test_no_message_has_the_wording_of_the_validation_library(tmp_path: Path) -> None:
    for text, _ in CASES.values():
        for message in said(tmp_path, text):
            assert "nput should" not in message
            assert "alidation" not in message
            assert "Value error" not in message
