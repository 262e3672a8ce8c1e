"""Foreign text is made harmless once, for all formats; events read well whatever is in them."""

from __future__ import annotations

import ast
import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from sample import HOSTILE, RUN, hostile_timeline

from harness import reporters
from harness.model.timeline import Event, Kind
from harness.model.verdict import Finding, Held, Subject
from harness.reporters.events import describe, label_of
from harness.reporters.words import (
    area,
    counts_sentence,
    events_named,
    events_sentence,
    milliseconds,
    one_line,
    seconds,
    seen_on,
    short,
    visible,
    web_address,
)


def test_no_character_that_acts_survives_in_any_plane() -> None:
    acting = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    acting += [chr(code) for code in (0x61C, 0x200B, 0x202E, 0x2028, 0x2066, 0xFEFF, 0xD800)]
    acting += ["\udfff", "\ufffe", "\uffff", "\ufdd0", "\U0001ffff", "\U000e0041"]
    shown = {char: visible(f"a{char}b") for char in acting}
    assert [char for char, text in shown.items() if char in text or "\\" not in text] == []


def test_ordinary_text_of_every_script_is_left_alone() -> None:
    text = "ASCII ~ é ß Ω ж שלום عربي 漢字 🦀 \\x1b stays\n\ttoo"
    assert visible(text) == text


def test_every_visible_text_is_xml_and_utf8() -> None:
    whole = "".join(map(chr, [*range(0x3000), *range(0xD700, 0xE100), *range(0xFD00, 0x10100)]))
    element = ET.Element("x")
    element.text = visible(whole, limit=10**7)
    parsed = ET.fromstring(ET.tostring(element, encoding="utf-8"))
    assert parsed.text == element.text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\x00b", "a\\x00b"),
        ("\ud800", "\\ud800"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\x0db"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_escapes_are_those_that_programmers_know(raw: str, shown: str) -> None:
    assert visible(raw) == shown


def test_a_megabyte_is_cut_and_the_cut_is_counted() -> None:
    assert visible("A" * 1_000_000, limit=10) == "A" * 10 + " … (999990 more characters)"


def test_one_line_has_one_line() -> None:
    assert one_line(" a\nb\tc\r\nd ") == "a\\nb\\tc\\nd"


def test_short_keeps_to_its_width() -> None:
    assert (short("abcdef", width=6), short("abcdefg", width=6)) == ("abcdef", "abcde…")
    assert len(short("\x1b" * 100, width=8)) == 8


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0 ms"),
        (0.0164, "16 ms"),
        (0.9996, "1.00 s"),
        (59.99, "59.99 s"),
        (59.999, "1 min 00 s"),
        (412.6, "6 min 53 s"),
    ],
)
def test_durations_read_as_people_say_them(duration_s: float, text: str) -> None:
    assert seconds(duration_s) == text


def test_times_of_events_have_microseconds() -> None:
    assert milliseconds(12_345_678) == "12.346"


def test_the_area_of_a_scenario_is_the_begin_of_its_id() -> None:
    assert (area("block-fd.gate.eof"), area("alone")) == ("block-fd", "alone")


@pytest.mark.parametrize("text", ["https://x.org/a?b=1&c=2#d", "http://x"])
def test_web_addresses_become_links(text: str) -> None:
    assert web_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("javascript:alert(1)", "data:text/html,x", "https://x/\"onclick='a'", "https://x y"),
        *("//x", "https://x\n", "bwrap(1)", "HTTPS", " https://x", "https://x/\u202e"),
        *(HOSTILE, ""),
    ],
)
def test_nothing_else_becomes_a_link(text: str) -> None:
    assert web_address(text) is None


@pytest.mark.parametrize("kind", list(Kind))
def test_an_event_without_members_can_be_read(kind: Kind) -> None:
    event = Event(1, 0, 1, kind, "monitor", {})
    assert describe(event)
    assert len(label_of(event)) <= 22


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("wrong", [None, [], {}, -1, "text", 1.5, True, [[1]]])
def test_an_event_with_members_of_a_wrong_type_can_be_read(kind: Kind, wrong: object) -> None:
    names = (
        "pid ppid argv same_as code signal channel n text value bytes rest kept_bytes by errno "
        "group reason how state marker port index verb trigger deadline_ns name file locks fds "
        "namespaces uid_map gid_map blocked processes reached fields outcome observation killed "
        "leaks events complete scenario repeat"
    )
    event = Event(1, 0, 1, kind, "monitor", dict.fromkeys(names.split(), wrong))
    assert describe(event)
    assert len(label_of(event)) <= 22


def test_a_late_event_says_that_its_order_is_not_known() -> None:
    data = {"channel": "status", "n": 2, "text": "x"}
    event = Event(1, 0, 1, Kind.LINE_READ, "observer", data, late=True)
    assert describe(event) == "status line 2: x (read behind another event)"


def test_a_line_that_is_an_object_leaves_the_label_to_the_object() -> None:
    def label(kind: Kind, **data: object) -> str:
        return label_of(Event(1, 0, 1, kind, "status", {"channel": "status", **data}))

    assert label(Kind.LINE_READ, text='{ "child-pid": 7 }') == ""
    assert label(Kind.OBJECT_READ, value={"child-pid": 7}) == "child-pid"
    assert label(Kind.LINE_READ, text="bwrap: no") == "bwrap: no"


def test_hostile_labels_show_no_acting_character() -> None:
    labels = [label_of(event) for event in hostile_timeline().events]
    assert [label for label in labels if "\x1b" in label or "\n" in label] == []


def test_the_counts_name_only_what_there_is() -> None:
    assert counts_sentence(RUN) == (
        "3 failed, 1 passed unexpectedly, 1 in error, 1 inconclusive, 1 known, 1 skipped, 5 passed"
    )


def test_no_reporter_can_touch_the_operating_system() -> None:
    allowed = {"harness.model", "harness.reporters", "jinja2", "junit_xml", "markupsafe", "rich"}
    allowed |= {"__future__", "ast", "base64", "collections", "dataclasses", "enum", "hashlib"}
    allowed |= {"html", "importlib", "json", "math", "re", "typing", "unicodedata", "xml"}
    found: dict[str, set[str]] = {}
    for path in sorted(Path(next(iter(reporters.__path__))).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(module=str(module)):
                    names = [module]
                case _:
                    continue
            for name in names:
                whole = ".".join(name.split(".")[:2])
                if whole not in allowed and name.split(".")[0] not in allowed:
                    found.setdefault(path.name, set()).add(name)
    assert found == {}


def test_a_finding_of_a_flood_names_its_first_events_and_the_last() -> None:
    finding = Finding("lines", Held.NO, "a", "b", events=tuple(range(5, 3005)))
    assert events_named(finding) == (*range(5, 24), 3004)
    assert events_sentence(finding).endswith("#22, #23, #3004 and 2980 more")
    whole = dataclasses.replace(finding, events=tuple(range(20)))
    assert events_named(whole) == whole.events
    assert events_sentence(whole).endswith("#18, #19")


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (("bundled", "host", "image:a", "image:b"), "all 4 subjects"),
        (("image:b", "bundled"), "0.11.0, 0.13.1"),
        (("host", "image:a"), "0.8.0"),
        (("host",), "0.8.0 (host)"),
        (("lost", "bundled"), "0.11.0, lost"),
        ((), ""),
    ],
)
def test_the_subjects_of_a_deviation_are_told_in_few_words(
    specs: tuple[str, ...], words: str
) -> None:
    versions = {"bundled": "0.11.0", "host": "0.8.0", "image:a": "0.8.0", "image:b": "0.13.1"}
    subjects = tuple(Subject(spec, version, "") for spec, version in versions.items())
    assert seen_on(dataclasses.replace(RUN, subjects=subjects), specs) == words


def test_a_subject_without_a_version_is_named_and_one_alone_is_not_all() -> None:
    run = dataclasses.replace(RUN, subjects=(Subject("path:/x", "", "/x"),))
    assert seen_on(run, ["path:/x"]) == "path:/x"
