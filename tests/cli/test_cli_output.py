"""What a command says stays text in every report, and what it leaves behind is taken away."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from cli_place import FAILS, Place, Ran, passes, several

#: What a hostile command prints, as octal escapes for printf(1), and each on a line of its own.
HOSTILE = {
    "html": r"<script>alert(1)</script><img src=x onerror=alert(2)>",
    "escape": r"\033[2J\033[1;31mred\033]0;title\007\033[H",
    "forbidden": r"\001\002\013\016\037\177 \357\277\277",
    "nul": r"a\000b",
    "not utf-8": r"\377\376\200caf\351",
    "github": r"::error file=x::pwned",
    "tap": r"not ok 99 - forged",
    "cdata": r"]]> <!-- & &amp; &#0; -->",
    "separators": r"a\342\200\250b\302\205c\rd\014e",
    "bidi": r"\342\200\256gnp.exe",
    "braces": r"{{ 7*7 }} {% raw %} %s %d %(x)s",
}


def hostile_scenario(where: str) -> str:
    """A scenario that fails, so that what was printed is shown everywhere."""
    printf = r"\n".join(HOSTILE.values()).replace("'", "'\\''").replace("%", "%%")
    command = f"printf '{printf}\\n'; exit 7"
    return (
        f"id: hostile.{where}\n"
        "title: A hostile command <b>is</b> shown & stays text ]]>\n"
        "clauses: [T-1]\n"
        "sandbox:\n"
        f"  command: {{shell: {json.dumps(command)}}}\n"
        "expect:\n"
        '  - text: {on: stdout, lines: ["<i>other</i>"]}\n'
        "  - exit: {of: monitor, code: 8}\n"
    )


@dataclass(frozen=True)
class Hostile:
    """One run of the hostile command, with all its reports."""

    place: Place
    ran: Ran

    def read(self, name: str) -> str:
        return (self.place.path / name).read_bytes().decode()


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    place = Place()
    place.write("s.yaml", hostile_scenario("a"))
    outputs = [f"--{kind}={kind}.out" for kind in ("junit", "html", "json", "tap")]
    env = {"GITHUB_STEP_SUMMARY": "summary.md"}
    ran = place.run("run", "s.yaml", "-v", "--github", *outputs, env=env)
    assert ran.code == 1
    yield Hostile(place, ran)
    place.remove()


class Tags(HTMLParser):
    """Every tag of a page, with where its attributes would run something."""

    def __init__(self) -> None:
        super().__init__()
        self.images = 0
        self.handlers: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.images += tag == "img"
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


#: What no terminal and no log should get: controls other than newline, and the C1 controls.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")


def test_the_terminal_gets_no_control_character_of_a_command(hostile: Hostile) -> None:
    assert CONTROLS.findall(hostile.ran.err) == []
    assert "alert(1)" in hostile.ran.err


def test_no_line_of_a_command_is_a_workflow_command_or_a_tap_line(hostile: Hostile) -> None:
    out = hostile.ran.out.decode()
    assert all(
        line.startswith(("::error file=s.yaml", "::warning file=s.yaml"))
        for line in out.splitlines()
    )
    assert not any(line.lstrip().startswith("::") for line in hostile.ran.err.splitlines())
    tap = hostile.read("tap.out")
    assert len(re.findall("^(not )?ok ", tap, re.MULTILINE)) == 1
    assert CONTROLS.findall(tap) == []


def test_junit_is_xml_and_holds_the_output_as_text(hostile: Hostile) -> None:
    suites = ET.fromstring(hostile.read("junit.out"))
    (failure,) = suites.iter("failure")
    assert "<script>alert(1)</script>" in str(failure.text)
    assert "]]>" in str(failure.text)
    assert {element.tag for element in failure.iter()} == {"failure"}


def test_the_page_has_no_tag_or_handler_of_the_command(hostile: Hostile) -> None:
    text = hostile.read("html.out")
    page, plain = Tags(), Tags()
    page.feed(text)
    hostile.place.write("t.yaml", FAILS)
    hostile.place.run("run", "t.yaml", "--html", "plain.html", "--reports", "other")
    plain.feed(hostile.read("plain.html"))
    assert (page.images, page.handlers, page.scripts) == (0, [], plain.scripts)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert CONTROLS.findall(text) == []


def test_json_holds_the_output_unchanged_for_programs(hostile: Hostile) -> None:
    results = json.loads(hostile.read("json.out"))["results"]
    assert "<script>" in json.dumps(results)
    recording = hostile.read("reports/latest/timelines/bundled/hostile.a.jsonl")
    lines = [json.loads(line)["data"].get("text") for line in recording.splitlines()]
    assert "a\0b" in lines


def test_the_step_summary_keeps_the_output_as_text(hostile: Hostile) -> None:
    text = hostile.read("summary.md")
    assert CONTROLS.findall(text) == []
    assert "<script>" not in text
    assert "<img" not in text


# --- a lot of output -----------------------------------------------------------------------------

MEGABYTE = """\
id: big.megabyte
title: A command says a megabyte in one line and a megabyte in many
clauses: [T-1]
sandbox:
  command: {shell: "head -c 1048576 /dev/zero | tr '\\\\0' x; echo; seq 1 180000"}
expect:
  - exit: {of: monitor, code: 1}
  - text: {on: stdout, at_least_bytes: 2000000}
"""

FLOOD = """\
id: big.flood
title: A command that floods its output is ended when it is killed
clauses: [T-1]
sandbox:
  args: [--unshare-pid, --die-with-parent]
  command: {shell: "touch $SCRATCH/ran; exec yes"}
steps:
  - wait: {marker: ran}
  - pass: 300ms
  - signal: {to: monitor, send: KILL}
    trigger: true
  - wait: {exit: monitor}
  - settle: 3s
expect:
  - exit: {of: monitor, signal: KILL}
  - survivors: none
"""


def test_a_megabyte_of_output_is_kept_within_bounds_and_counted_in_full(place: Place) -> None:
    place.write("s.yaml", MEGABYTE)
    ran = place.run("run", "s.yaml", "--json", "-", "--html", "page.html")
    assert ran.code == 1
    (result,) = ran.json["results"]
    assert [each["held"] for each in result["findings"]] == ["no", "yes"]
    assert len(ran.err) < 20_000
    assert (place.path / "page.html").stat().st_size < 5_000_000


def test_a_flood_is_ended_with_its_sandbox_and_the_recording_stays_small(place: Place) -> None:
    place.write("s.yaml", FLOOD)
    ran = place.run("run", "s.yaml")
    assert ran.code == 0, ran.err
    assert (place.reports / "latest/timelines/bundled/big.flood.jsonl").stat().st_size < 20_000_000


def test_a_flood_that_nobody_ends_is_ended_at_the_limit(place: Place) -> None:
    endless = several(
        passes("endless").replace('shell: "exit 7"', 'shell: "exec yes"')
        + "steps:\n  - wait: {exit: monitor}\n    within: 20s\n    trigger: true\n",
        passes("z"),
    )
    place.write("s.yaml", endless)
    ran = place.run("run", "s.yaml", "--timeout", "1")
    assert (ran.code, place.results()) == (7, {"good.endless": "error", "good.z": "pass"})


# --- what is left behind -------------------------------------------------------------------------

LEFTOVERS = {
    "stopped": "sleep 300 & kill -STOP $!; exit 7",
    "double-forked": "(setsid sleep 300 &) ; exit 7",
    "deaf": "trap '' TERM INT HUP; (trap '' TERM; sleep 300) & exit 7",
    "forking": "for i in 1 2 3 4 5 6 7 8 9; do sleep 300 & setsid sleep 300 & done; exit 7",
    "unwritable": "mkdir -p $SCRATCH/a/b; chmod 0 $SCRATCH/a/b $SCRATCH/a; exit 7",
    "renamed": "ln -s /bin/sleep $SCRATCH/harness; setsid $SCRATCH/harness 300 & exit 7",
}


def test_whatever_a_scenario_leaves_behind_is_gone_after_the_run(place: Place) -> None:
    # Not until the end of stdout, which they hold.
    steps = "steps:\n  - wait: {exit: monitor}\n    trigger: true\n"
    texts = [
        passes(name).replace('"exit 7"', json.dumps(command)) + steps
        for name, command in LEFTOVERS.items()
    ]
    place.write("s.yaml", several(*texts))
    ran = place.run("run", "s.yaml")
    assert ran.code == 0, ran.err
    assert place.results() == {f"good.{name}": "pass" for name in LEFTOVERS}
