"""The contract is read with the same care as scenarios, and the one in the project is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loader_writing import GOOD, inside, load, write

from harness.loader import load_leniently, load_scenarios
from harness.loader.contract import HOWTO_FAMILY, read_contract
from harness.model.contract import Clause

CONTRACT = Path(__file__).parents[2] / "scenarios" / "contract.yaml"
CLAUSE = "- {id: STATUS-1, family: status, sentence: Every line is an object., source: man page}\n"

BAD_CONTRACTS = {
    "an unknown member": (
        CLAUSE.replace("source: man page", "source: x, sorce: y"),
        '1:81: there is no member "sorce" here; did you mean source?',
    ),
    "a missing source": (
        CLAUSE.replace(", source: man page", ""),
        "1:3: source is missing here; expected text",
    ),
    "an empty source": (
        CLAUSE.replace("man page", '""'),
        '1:78: expected at least 1 character, got ""',
    ),
    "an id twice": (
        CLAUSE + CLAUSE,
        "2:8: clause STATUS-1 is given twice; expected unique ids",
    ),
    "an id in lower case": (
        CLAUSE.replace("STATUS-1", "status-1"),
        '1:8: expected a clause id such as STATUS-1, got "status-1"',
    ),
    "a clause that is text": (
        "- text\n",
        '1:3: expected a mapping with id, family, sentence, source, got "text"',
    ),
    "a mapping": ("id: STATUS-1\n", "1:1: expected one list of clauses, got a mapping"),
    "nothing": ("", "1:1: expected one list of clauses, got nothing"),
    "two documents": (
        f"{CLAUSE}---\n{CLAUSE}",
        "1:1: expected one list of clauses, got several documents",
    ),
    "broken YAML": (
        "- [",
        "1:4: cannot be read as YAML: expected the node content, but found '<stream end>' (while "
        "parsing a flow node)",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD_CONTRACTS.values(), ids=BAD_CONTRACTS.keys())
def test_a_wrong_contract_is_a_problem_of_its_own_file(
    tmp_path: Path, text: str, expected: str
) -> None:
    _, problems = load(tmp_path, GOOD, contract=text)
    of_contract = [p.headline for p in problems if p.file == "contract.yaml"]
    assert of_contract == [f"contract.yaml:{expected}"]


def test_an_unreadable_contract_is_not_blamed_on_every_scenario(tmp_path: Path) -> None:
    _, problems = load(tmp_path, GOOD, contract="")
    assert [problem.file for problem in problems] == ["contract.yaml"]


def test_the_nearest_contract_upwards_is_taken_unless_one_is_given(tmp_path: Path) -> None:
    deep = tmp_path / "area" / "deep"
    deep.mkdir(parents=True)
    path = write(deep, GOOD)
    (deep / "contract.yaml").rename(tmp_path / "contract.yaml")
    assert "BLOCK-2" in load_scenarios([path]).clauses
    with inside(deep):
        assert "BLOCK-2" in load_scenarios([Path("one.yaml")]).clauses
    other = tmp_path / "other.yaml"
    other.write_text(CLAUSE, encoding="utf-8")
    _, problems = load_leniently([path], contract=other)
    assert [problem.message for problem in problems] == [
        "there is no clause BLOCK-2; expected one of contract.yaml"
    ]


def test_a_missing_contract_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, GOOD)
    (tmp_path / "contract.yaml").unlink()
    _, problems = load_leniently([path], contract=tmp_path / "contract.yaml")
    assert [problem.message for problem in problems] == [
        "cannot be read: No such file or directory"
    ]
    monkeypatch.setattr("harness.loader.load.find_contract", lambda paths: None)  # noqa: ARG005
    _, problems = load_leniently([path])
    assert [problem.message for problem in problems] == [
        "there is no contract.yaml here or above; expected one that lists the clauses"
    ]


def _clauses() -> dict[str, Clause]:
    clauses, problems = read_contract(CONTRACT)
    assert problems == []
    assert clauses is not None
    return clauses


def test_the_contract_of_the_project_is_read_without_a_problem() -> None:
    assert len(_clauses()) > 60


def test_each_clause_is_one_sentence_of_its_own_with_a_source() -> None:
    sentences = [clause.sentence for clause in _clauses().values()]
    assert len(set(sentences)) == len(sentences)
    for clause in _clauses().values():
        assert re.fullmatch(r"[^.]([^.]|\.(?=\S))*\.", clause.sentence), clause.sentence
        assert re.match(
            r"bwrap\(1\) |[a-z_]+\([1-8]\)|https://github\.com/\S+/\d+$|measured: |how-to: |a ",
            clause.source,
        ), clause.source


def test_the_clauses_of_a_family_are_numbered_from_one_without_gaps() -> None:
    numbers: dict[str, list[int]] = {}
    families: dict[str, set[str]] = {}
    for clause in _clauses().values():
        stem, _, number = clause.id.rpartition("-")
        numbers.setdefault(stem, []).append(int(number))
        families.setdefault(stem, set()).add(clause.family)
    assert {stem: list(range(1, len(of) + 1)) for stem, of in numbers.items()} == numbers
    assert all(len(of) == 1 for of in families.values())
    assert families["HOWTO"] == {HOWTO_FAMILY}
