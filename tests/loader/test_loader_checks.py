"""Every check is seen to fail, and the helpers behind the messages keep their promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from loader_writing import GOOD, TWO_BOXES
from ruamel.yaml import YAML
from test_loader_names import CASES as NAME_CASES
from test_loader_timing import CASES as TIMING_CASES
from test_loader_timing import expecting_only

from harness.loader import Problem, links, names, nearest, timing, vacuity
from harness.loader.problem import in_words, suggestion
from harness.loader.scene import ROLES, Scene
from harness.loader.translate import Fault
from harness.model import scenario as grammar
from harness.model.scenario import Scenario

CHECKS = (*names.CHECKS, *links.CHECKS, *timing.CHECKS, *vacuity.CHECKS)
Check = Callable[[Scene], Iterator[Fault]]


def scene(text: str) -> Scene:
    document = YAML(typ="safe", pure=True).load(text)
    return Scene(Scenario.model_validate(document))


SPOILT = [
    scene(text) for text, _ in (*NAME_CASES.values(), *TIMING_CASES.values()) if "sandbox" in text
]
SPOILT.append(scene(expecting_only("never_ran: ran")))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_check_finds_something_and_nothing_in_what_is_right(check: Check) -> None:
    assert any(list(check(each)) for each in SPOILT)
    assert list(check(scene(GOOD))) == []
    assert list(check(scene(TWO_BOXES))) == []


@pytest.mark.parametrize("module", [names, links, timing, vacuity])
def test_every_check_of_a_module_is_listed_and_says_what_holds(module: object) -> None:
    written = [value for name, value in vars(module).items() if name.startswith("check_")]
    listed = getattr(module, "CHECKS", ())
    assert {each.__name__ for each in written} - {each.__name__ for each in listed} <= {
        "check_sandboxes"  # before all others: they need a sandbox to ask about
    }
    assert all(each.__doc__ for each in written)


def test_every_reference_of_the_grammar_has_a_role() -> None:
    """A member whose type is Ref names a process or a channel, so that it must be looked up."""
    pattern = r"^([a-z][a-z0-9-]*\.)?[a-z][a-z0-9-]*$"
    for model in vars(grammar).values():
        if not (isinstance(model, type) and issubclass(model, grammar.Closed)):
            continue
        for name, field in model.model_fields.items():
            if pattern in repr(field):
                assert name in ROLES[model], f"{model.__name__}.{name}"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("minitor", ["monitor", "child"], ["monitor"]),
        ("block_fd", ["block-fd", "info-fd"], ["block-fd"]),
        ("KILL", ["kill", "TERM"], ["kill"]),
        ("zzz", ["monitor"], []),
        ("x", [], []),
    ],
)
def test_nearest_names_the_likeliest_first(
    name: str, known: list[str], expected: list[str]
) -> None:
    assert nearest(name, known) == expected


def test_a_suggestion_lists_what_there_is_when_nothing_is_near() -> None:
    assert suggestion("minitor", ["monitor"]) == "did you mean monitor?"
    assert suggestion("zzz", ["b", "a"]) == "expected a or b"
    assert suggestion("zzz", []) == "there is none here"
    assert in_words(["a", "b", "c"]) == "a, b or c"


def test_a_problem_without_a_source_line_is_one_line() -> None:
    assert str(Problem("a.yaml", 1, 1, "does not exist")) == "a.yaml:1:1: does not exist"


def test_a_problem_never_sends_control_characters_to_a_terminal() -> None:
    shown = str(Problem("a.yaml", 1, 3, "is odd", "a\x1b[2Jb"))
    assert shown == "a.yaml:1:3: is odd\n    a\N{REPLACEMENT CHARACTER}[2Jb\n      ^"
