"""Files as they come: hostile YAML, odd paths, odd bytes.  One clear problem each, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from loader_writing import CONTRACT, GOOD, inside, load, said, spoilt, write

from harness.errors import ExitCode, ScenarioFilesInvalid
from harness.loader import ScenarioProblems, load_leniently, load_scenarios

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)

# name -> (text, the problem that is said first)
HOSTILE: dict[str, tuple[str, str]] = {
    "a key twice": (
        spoilt("title:", "id: other.id\ntitle:"),
        'id | "id" is given twice; the first is in line 1, column 1',
    ),
    "a key twice in a nested mapping": (
        spoilt("code: 7", "code: 7, code: 8"),
        'code | "code" is given twice; the first is in line 16, column 25',
    ),
    "billions of laughs": (
        BOMB,
        "*e | aliases make more than 200000 values of this file; expected fewer",
    ),
    "an alias inside what it stands for": (
        "a: &a [*a]\n",
        "*a | alias *a is inside what it stands for",
    ),
    "an alias for nothing": ("a: *b\n", "*b | alias *b stands for nothing before it"),
    "a tag that would run code": (
        spoilt("code: 7", "code: !!python/object/apply:os.system [id]"),
        "!!python/object/apply:os.system | tag !!python/object/apply:os.system is not allowed; "
        "expected plain YAML without tags",
    ),
    "a tag of its own": (
        spoilt("code: 7", "code: !seven 7"),
        "!seven | tag !seven is not allowed; expected plain YAML without tags",
    ),
    "a tab that indents": (
        spoilt("  - ran: ran", "\t- ran: ran"),
        " | a tab cannot indent YAML; expected spaces",
    ),
    "brackets that never end": (
        spoilt("[STATUS-1, BLOCK-2]", "[STATUS-1, BLOCK-2"),
        ": | cannot be read as YAML: expected ',' or ']', but got ':' (while parsing a flow "
        "sequence)",
    ),
    "quotes that never end": (
        "id: 'a\n",
        " | cannot be read as YAML: found unexpected end of stream (while scanning a quoted "
        "scalar)",
    ),
    "an escape outside Unicode": (
        'id: "\\UFFFFFFFF"\n',
        "id | cannot be read as YAML from here on; expected valid YAML 1.2",
    ),
    "nested too deeply": ("[" * 400, "[ | is nested more than 40 deep"),
    "a NUL": ("id: a\0b\n", "\0b | the character U+0000 is not allowed in YAML; expected text"),
    "an escape for terminals": (
        "id: a\x1b[2J\n",
        "\x1b[2J | the character U+001B is not allowed in YAML; expected text",
    ),
    "a number as a key": (
        spoilt("  args:", "  env: {7: x}\n  args:"),
        "7 | a key must be text, not the number 7; quote it",
    ),
    "a list as a key": ("[a]: 1\n", "[a | a key must be text, not a list; quote it"),
    "a merge key": (
        "base: &b {}\n<<: *b\n",
        "<< | << is not part of YAML 1.2; expected the members themselves",
    ),
    "a number that is none": (
        spoilt("code: 7", "code: .nan"),
        ".nan | .nan is not a number that can be compared; expected a finite one",
    ),
    "a number that is too large": (
        spoilt("code: 7", "code: 1e999"),
        "1e999 | 1e999 is not a number that can be compared; expected a finite one",
    ),
    "a number with ten thousand digits": (
        spoilt("code: 7", "code: " + "7" * 10_000),
        "7" * 10_000 + ' | expected a whole number, got "' + "7" * 57 + '..."',
    ),
    "another version of YAML": (
        "%YAML 1.1\n---\n" + GOOD,
        "%YAML | asks for another YAML version; expected YAML 1.2",
    ),
    "nothing": ("", " | has no scenario in it; expected a mapping with id"),
    "only a comment": ("# later\n", "# | has no scenario in it; expected a mapping with id"),
    "an empty list": ("[]\n", "[ | has no scenario in it; expected a mapping with id"),
    "a byte order mark": (
        "\ufeff" + GOOD,
        " | starts with a byte order mark; expected UTF-8 without one",
    ),
    "CRLF": (GOOD.replace("\n", "\r\n"), " | has CR or CRLF line ends; expected LF"),
}


@pytest.mark.parametrize(("text", "expected"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_gives_a_clear_problem(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, "")
    path.write_bytes(text.encode())  # newlines as they are
    with inside(tmp_path):
        _, problems = load_leniently([Path("one.yaml")])
    first = problems[0]
    word, message = expected.split(" | ", 1)
    assert any(p.message == message and p.source[p.column - 1 :].startswith(word) for p in problems)
    assert all("\x1b" not in str(p) and "\0" not in str(p) for p in problems)
    assert first.file == "one.yaml"


@pytest.mark.parametrize("text", [GOOD, f"- {GOOD.rstrip().replace(chr(10), chr(10) + '  ')}\n"])
def test_a_document_is_a_scenario_or_a_list_of_them(tmp_path: Path, text: str) -> None:
    loaded, problems = load(tmp_path, text)
    assert problems == []
    assert [each.scenario.id for each in loaded.scenarios] == ["block-fd.byte-opens-the-gate"]


def test_several_documents_in_one_file_are_several_scenarios(tmp_path: Path) -> None:
    second = GOOD.replace("id: block-fd.byte", "id: block-fd.other")
    loaded, problems = load(tmp_path, f"{GOOD}---\n{second}---\n")
    assert problems == []
    assert [(each.file, each.line) for each in loaded.scenarios] == [
        ("one.yaml", 1),
        ("one.yaml", 19),
    ]


def test_on_and_yes_are_text_and_an_alias_may_be_used(tmp_path: Path) -> None:
    text = spoilt("  args:", "  env: {A: on, B: yes, C: 0o7x}\n  args: &args")
    loaded, problems = load(tmp_path, text)
    assert problems == []
    assert loaded.scenarios[0].scenario.named_sandboxes["main"].env == {
        "A": "on",
        "B": "yes",
        "C": "0o7x",
    }


def test_tabs_inside_text_are_kept_and_the_caret_stands_right(tmp_path: Path) -> None:
    assert said(tmp_path, spoilt("exit 7", "\\texit 7")) == []
    _, problems = load(tmp_path, spoilt("{of: monitor, code: 7}", "{of: monitor,\tcode: 256}"))
    shown, caret = str(problems[0]).splitlines()[1:]
    assert caret.expandtabs().index("^") == shown.expandtabs().index("256")


def test_wide_and_long_lines_are_shown_around_the_caret(tmp_path: Path) -> None:
    _, problems = load(
        tmp_path, spoilt("{of: monitor, code: 7}", f"{{of: '{'x' * 5000}', code: 256}}")
    )
    shown, caret = str(problems[-1]).splitlines()[1:]
    assert len(shown) < 220
    assert shown[caret.index("^") :].startswith("256")
    _, problems = load(tmp_path, spoilt("{of: monitor, code: 7}", "{of: 漢字, code: 256}"))
    shown, caret = str(problems[-1]).splitlines()[1:]
    assert len(caret) - 1 == shown.index("256") + 2  # each of the two is two columns wide


def test_the_digest_is_of_what_a_scenario_says_and_not_of_its_layout(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        loaded, problems = load(tmp_path, text)
        assert problems == []
        return loaded.scenarios[0].sha256

    original = digest(GOOD)
    assert digest("# why\n" + spoilt("code: 7", "code:   7")) == original
    assert digest(spoilt("sandbox:\n", "repeat: 1\nsandbox:\n")) == original
    assert digest(spoilt("code: 7", "code: 8")) != original


def test_all_problems_of_all_files_are_raised_at_once_and_in_order(tmp_path: Path) -> None:
    write(tmp_path, spoilt("code: 7", "code: 256").replace("title:", "titel:"), name="b.yaml")
    write(tmp_path, spoilt("code: 7", "code: 256"), name="a.yml")
    with inside(tmp_path), pytest.raises(ScenarioProblems) as raised:
        load_scenarios([Path(".")])
    assert [problem.headline for problem in raised.value.problems] == [
        "a.yml:16:31: expected at most 255, got the number 256",
        "b.yaml:1:5: id block-fd.byte-opens-the-gate is taken by the scenario in a.yml:1; "
        "expected another",
        'b.yaml:2:1: there is no member "titel" here; did you mean title?',
        "b.yaml:16:31: expected at most 255, got the number 256",
    ]
    assert isinstance(raised.value, ScenarioFilesInvalid)
    assert raised.value.exit_code is ExitCode.SCENARIOS_INVALID
    assert str(raised.value) == "\n\n".join(map(str, raised.value.problems))


def test_lenient_loading_keeps_what_is_right(tmp_path: Path) -> None:
    write(tmp_path, "id: broken\n", name="a.yaml")
    write(tmp_path, GOOD, name="b.yaml")
    with inside(tmp_path):
        loaded, problems = load_leniently([Path(".")])
    assert [each.file for each in loaded.scenarios] == ["b.yaml"]
    assert {problem.file for problem in problems} == {"a.yaml"}
    assert sorted(loaded.clauses) == ["BLOCK-2", "HOWTO-1", "STATUS-1"]


def test_directories_are_walked_in_order_without_the_contract(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "notes.txt", "deep/c.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = GOOD.replace("id: block-fd.byte", f"id: area-{Path(name).stem}.byte")
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "contract.yaml").write_text(CONTRACT, encoding="utf-8")
    with inside(tmp_path.parent):
        loaded = load_scenarios([Path(tmp_path.name)])
    files = [each.file.removeprefix(tmp_path.name + "/") for each in loaded.scenarios]
    assert files == ["a.yml", "b.yaml", "deep/c.yaml"]


def test_a_file_that_is_named_twice_is_loaded_once(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "link.yaml").symlink_to("one.yaml")
    with inside(tmp_path):
        loaded = load_scenarios([Path("one.yaml"), Path("."), Path("link.yaml")])
    assert [each.file for each in loaded.scenarios] == ["one.yaml"]


def _not_utf8(folder: Path) -> Path:
    path = folder / "x.yaml"
    path.write_bytes(b"id: a.b\ntitle: caf\xe9\n")
    return path


def _huge(folder: Path) -> Path:
    path = folder / "x.yaml"
    with path.open("wb") as stream:
        stream.truncate(50 * 1024 * 1024)
    return path


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "x.yaml")
    return folder / "x.yaml"


def _directory_in_itself(folder: Path) -> Path:
    (folder / "x").mkdir()
    (folder / "x" / "again").symlink_to("../x")
    return folder / "x"


def _link_to_itself(folder: Path) -> Path:
    (folder / "x.yaml").symlink_to("x.yaml")
    return folder / "x.yaml"


def _empty_directory(folder: Path) -> Path:
    (folder / "x").mkdir()
    return folder / "x"


ODD_PATHS = {
    "not UTF-8": (_not_utf8, "2:11: byte 0xe9 is not UTF-8; expected a file in UTF-8"),
    "50 MB": (_huge, "1:1: is larger than 512 KB; expected a scenario file of a few KB"),
    "a FIFO": (_fifo, "1:1: not a regular file; expected a YAML file"),
    "a directory in itself": (
        _directory_in_itself,
        "1:1: is a symbolic link to a directory that it is in",
    ),
    "a link to itself": (_link_to_itself, "1:1: cannot be read: Too many levels of symbolic links"),
    "an empty directory": (
        _empty_directory,
        "1:1: has no scenario file in it; expected *.yaml or *.yml",
    ),
    "a path that does not exist": (
        lambda folder: folder / "x.yaml",
        "1:1: does not exist; expected a scenario file or a directory",
    ),
}


@pytest.mark.parametrize(("make", "expected"), ODD_PATHS.values(), ids=ODD_PATHS.keys())
def test_an_odd_path_gives_one_clear_problem(tmp_path: Path, make: object, expected: str) -> None:
    write(tmp_path, GOOD)
    assert callable(make)
    path = make(tmp_path)
    with inside(tmp_path):
        loaded, problems = load_leniently([Path("one.yaml"), path.relative_to(tmp_path)])
    assert len(loaded.scenarios) == 1
    assert [p.headline.partition(":")[2] for p in problems] == [expected]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; run as another user")
def test_a_file_that_may_not_be_read_gives_one_clear_problem(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0)
    _, problems = load_leniently([path])
    assert [problem.message for problem in problems] == ["cannot be read: Permission denied"]


def test_an_error_while_reading_gives_one_clear_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, mode: str) -> None:  # noqa: ARG001
        raise PermissionError(13, "Permission denied", str(self))

    path = write(tmp_path, GOOD)
    (tmp_path / "contract.yaml").unlink()
    monkeypatch.setattr(Path, "open", refuse)
    _, problems = load_leniently([path], contract=path)
    assert {problem.message for problem in problems} == {"cannot be read: Permission denied"}
