"""The picture of a timeline: well-formed, no overlaps, no order claimed that is not known."""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from sample import NEW, OLD, TIMELINES, Tape, hostile_timeline, two_sandboxes_on_one_lock

from harness.model.timeline import Event, Kind, Timeline
from harness.reporters import svg
from harness.reporters.lanes import arrange, badge_width, label_offset, text_width
from harness.reporters.picture import Layout

KEYS = list(TIMELINES)
GATE = TIMELINES[("block-fd.monitor-killed-while-gate-held", NEW)]
PROVIDER = TIMELINES[("network.provider-lost", NEW)]


def _layout(timeline: Timeline, **cited: tuple[int, ...]) -> Layout:
    return arrange(timeline, cited={int(seq[1:]): numbers for seq, numbers in cited.items()})


def _all(timeline: Timeline) -> dict[int, str]:
    """An id for every event, as if a finding linked to each."""
    return {event.seq: f"c-e{event.seq}" for event in timeline.events}


def _parse(markup: str) -> ET.Element:
    return ET.fromstring(markup)


def _ids(markup: str) -> set[str]:
    return {found for node in _parse(markup).iter() if (found := node.get("id"))}


@pytest.mark.parametrize("key", KEYS)
def test_every_event_is_drawn_once_with_its_anchor(key: tuple[str, str]) -> None:
    timeline = TIMELINES[key]
    drawing = svg.draw(timeline, fragments=_all(timeline))
    assert _ids(drawing.markup) == {f"c-e{event.seq}" for event in timeline.events}
    assert drawing.drawn == {event.seq for event in timeline.events}


def test_only_what_is_linked_to_has_an_id() -> None:
    assert _ids(svg.render(GATE)) == set()
    assert _ids(svg.draw(GATE, fragments={11: "e0-11", 16: "e0-16"}).markup) == {"e0-11", "e0-16"}


def _tooltips(markup: str) -> list[str]:
    marks = next(node for node in _parse(markup).iter("g") if node.get("class") == "tl-marks")
    return ["".join(title.itertext()) for title in marks.iter("title")]


def test_an_event_is_told_in_its_tooltip_or_in_the_table_and_not_twice() -> None:
    assert _tooltips(svg.render(GATE))[0].startswith("#0 at 0.000 ms: recording opened")
    tabled = {event.seq for event in GATE.events} - {0}
    told = _tooltips(svg.draw(GATE, tabled=tabled).markup)
    assert told[0].startswith("#0 at 0.000 ms: recording opened")
    assert all(re.fullmatch(r"#\d+ at [\d.]+ ms", title) for title in told[1:])
    assert len(told) == len(GATE.events)


def test_the_sentence_says_how_much_the_table_has() -> None:
    count = len(GATE.events)
    every = {event.seq for event in GATE.events}
    assert "The table has all events." in svg.draw(GATE, tabled=every).markup
    assert "The table has 1 event." in svg.draw(GATE, tabled={0}).markup
    assert "The table" not in svg.render(GATE)
    assert f"Timeline of {count} events" in svg.render(GATE)


def test_a_name_that_is_cut_has_the_whole_of_it_in_its_tooltip() -> None:
    tape = Tape("x").at(1).say(Kind.PROCESS_STARTED, "a-helper-with-a-long-name", pid=1, ppid=0)
    markup = svg.render(tape.at(2).closed())
    assert "a-helper-with-a-l…<title>a-helper-with-a-long-name</title>" in markup
    assert "observer<title>" not in markup


@pytest.mark.parametrize("key", KEYS)
def test_the_picture_is_one_image_with_words(key: tuple[str, str]) -> None:
    plot = next(n for n in _parse(svg.render(TIMELINES[key])).iter() if n.get("role") == "img")
    assert (plot.get("aria-label") or "").startswith("Timeline of ")
    groups = next(node for node in plot if node.get("class") == "tl-marks")
    assert len(groups) == len(TIMELINES[key].events)
    assert all(group[0].tag == "title" for group in groups)


def test_a_hostile_recording_is_only_text() -> None:
    markup = svg.draw(hostile_timeline()).markup
    tags = {node.tag for node in _parse(markup).iter()}
    assert tags == {"div", "svg", "g", "path", "circle", "rect", "text", "title"} - {"rect"}
    assert "<script" not in markup


@pytest.mark.parametrize("key", KEYS)
def test_labels_and_glyphs_of_a_lane_never_overlap(key: tuple[str, str]) -> None:
    timeline = TIMELINES[key]
    cited = {event.seq: (1, 12) for event in timeline.events[::3]}
    layout = arrange(timeline, cited=cited)
    for lane in layout.lanes:
        taken = []
        for mark in layout.marks:
            if mark.lane is lane:
                label = label_offset(mark.cites) + text_width(mark.label) if mark.label else 0.0
                badge = badge_width(mark.cites) / 2 if mark.cites else 0.0
                taken.append((mark.x - max(4.0, badge), mark.x + max(4.0, badge, label)))
        pairs = itertools.pairwise(sorted(taken))
        assert [(a, b) for a, b in pairs if a[1] > b[0]] == []
    assert max(mark.x for mark in layout.marks) <= layout.width


@pytest.mark.parametrize("key", KEYS)
def test_a_line_across_lanes_meets_no_label(key: tuple[str, str]) -> None:
    layout = _layout(TIMELINES[key])
    crossing = [m for m in layout.marks if m.event.data.get("trigger") is True]
    crossing += [m for m in layout.marks if m.event.kind is Kind.SIGNAL_SENT]
    for line in crossing:
        met = [
            mark.label
            for mark in layout.marks
            if mark.label
            and mark.lane is not line.lane
            and mark.lane.index
            and mark.x + 8 < line.x < mark.x + label_offset(()) + text_width(mark.label)
        ]
        assert met == []


def test_time_never_runs_backwards() -> None:
    for timeline in TIMELINES.values():
        lefts = [column.left for column in _layout(timeline).columns]
        assert lefts == sorted(lefts)


def test_lanes_are_in_the_order_of_the_cast_then_channels() -> None:
    assert [lane.name for lane in _layout(PROVIDER).lanes] == [
        *("observer", "supervisor", "monitor", "reaper", "command", "slirp", "/status", "/gate"),
    ]
    assert [lane.name for lane in _layout(two_sandboxes_on_one_lock()).lanes] == [
        *("observer", "supervisor", "left.monitor", "left.reaper"),
        *("right.monitor", "right.reaper", "holder"),
    ]


def test_a_process_that_only_the_clean_up_ended_is_marked_as_left_over() -> None:
    ends = {span.lane.name: span.end for span in _layout(GATE).spans}
    assert ends == {
        "supervisor": "exited",
        "monitor": "exited",
        "reaper": "left-over",
        "/status": "exited",
    }
    assert svg.render(GATE).count("left over, killed") == 1


@pytest.mark.parametrize(
    ("processes", "end"),
    [
        ([{"pid": 7, "state": "S"}], "left-over"),
        ([{"pid": 7, "state": "Z"}], "stopped"),
        ([], "stopped"),
        (None, "left-over"),
    ],
)
def test_only_what_the_census_saw_alive_is_left_over(processes: object, end: str) -> None:
    tape = Tape("x").at(1).say(Kind.PROCESS_IDENTIFIED, "child", pid=7, ppid=1)
    tape.at(2).say(Kind.CENSUS_TAKEN, "observer", name="end", processes=processes)
    assert [span.end for span in _layout(tape.at(3).closed(killed=(7,))).spans] == [end]


def test_a_process_that_is_gone_before_it_is_collected_is_drawn_as_a_zombie() -> None:
    spans = {span.lane.name: span for span in _layout(GATE).spans}
    monitor = spans["monitor"]
    assert monitor.zombie_until is not None
    assert monitor.start < monitor.stop < monitor.zombie_until


def test_a_bracket_joins_only_events_whose_order_is_not_known() -> None:
    tape = Tape("x").at(1)
    tape.say(Kind.LINE_READ, "observer", channel="status", n=1, text="a")
    tape.say(Kind.LINE_READ, "observer", channel="status", n=2, text="b")
    tape.at(2).step(0, "signal").say(Kind.SIGNAL_SENT, "monitor", signal="KILL", pid=1)
    tape.done(0, "signal").at(3).say(Kind.PROCESS_EXITED, "monitor", pid=1)
    tape.say(Kind.EOF_READ, "observer", channel="status", bytes=2)
    tape.step(1, "settle").say(Kind.CENSUS_TAKEN, "observer", name="end", processes=[])
    layout = _layout(Timeline(tape.events))
    together = [layout.mark_of(seq) for seq in (6, 7)]
    assert [(b.left, b.right, b.count) for b in layout.brackets] == [
        (min(m.x for m in together if m) - 7, max(m.x for m in together if m) + 7, 2)
    ]


def test_what_is_done_much_later_in_a_wake_up_has_its_own_column() -> None:
    events = [
        Event(0, 1_000_000, 1, Kind.EOF_READ, "status", {"channel": "status"}),
        Event(1, 1_200_000, 1, Kind.PROCESS_EXITED, "monitor", {"pid": 1}),
        Event(2, 500_000_000, 1, Kind.CENSUS_TAKEN, "observer", {"processes": []}),
    ]
    layout = _layout(Timeline(events))
    assert [column.t_ns for column in layout.columns] == [1_000_000, 500_000_000]
    assert [bracket.count for bracket in layout.brackets] == [2]
    assert ">499 ms</text>" in svg.render(Timeline(events))


def test_the_harness_s_own_processes_are_not_left_over() -> None:
    tape = Tape("x").at(1)
    for pid, name in enumerate(("supervisor", "left.supervisor", "monitor", "left.child", "slirp")):
        tape.say(Kind.PROCESS_STARTED, name, pid=pid, ppid=0)
    tape.say(Kind.PROCESS_IDENTIFIED, "daemon", pid=5, ppid=1)
    ends = {s.lane.name: s.end for s in _layout(tape.at(2).closed(killed=tuple(range(6)))).spans}
    assert ends == {
        "supervisor": "stopped",
        "left.supervisor": "stopped",
        "monitor": "left-over",
        "left.child": "left-over",
        "slirp": "stopped",
        "daemon": "left-over",
    }


def test_a_long_wait_is_cut_and_its_length_is_written() -> None:
    markup = svg.render(GATE)
    assert markup.count("tl-break") == 1
    assert ">499 ms</text>" in markup
    short_one = TIMELINES[("json-status.order", OLD)]
    assert "tl-break" not in svg.render(short_one)


def test_a_signal_is_an_arrow_from_its_sender() -> None:
    layout = _layout(PROVIDER)
    sent = [mark for mark in layout.marks if mark.event.kind is Kind.SIGNAL_SENT]
    lanes = {lane.name: lane.index for lane in layout.lanes}
    (lines,) = re.findall(r'class="tl-arrow" d="([^"]+)"', svg.render(PROVIDER))
    # The lanes that each arrow joins, from the heights of its ends.
    arrows = [
        tuple(round((float(y) - 64) / 34) for y in found)
        for found in re.findall(r"M\d+ (\d+)V(\d+)", lines)
    ]
    assert [mark.label for mark in sent] == ["KILL", "TERM"]
    assert arrows == [
        (lanes["observer"], lanes["slirp"]),
        (lanes["supervisor"], lanes["monitor"]),
    ]


def test_an_arrow_stands_within_the_step_that_sent_it() -> None:
    for timeline in (GATE, PROVIDER):
        marks = _layout(timeline).marks
        sent = next(m for m in marks if m.event.kind is Kind.SIGNAL_SENT)
        begin = [m for m in marks if m.event.kind is Kind.STEP_STARTED and m.label == "signal"]
        end = [m for m in marks if m.event.data.get("trigger") is True]
        assert begin[0].x <= sent.x < end[0].x
    write = {m.event.kind: m for m in _layout(PROVIDER).marks if m.label in ("write", "1 byte")}
    assert write[Kind.STEP_STARTED].x <= write[Kind.DATA_WRITTEN].x


@pytest.mark.parametrize("wrong", [None, [], {}, -1, "text", 1.5, True, [[1]], ["a"], "\ud800"])
def test_members_of_a_wrong_type_do_not_stop_the_drawing(wrong: object) -> None:
    names = "pid channel signal by index verb trigger killed outcome value bytes processes text"
    data = dict.fromkeys(names.split(), wrong)
    events = [Event(n, n * 10**7, n // 3, kind, "monitor", data) for n, kind in enumerate(Kind)]
    drawing = svg.draw(Timeline(events), fragments=_all(Timeline(events)))
    assert _ids(drawing.markup) == {f"c-e{event.seq}" for event in events}


def test_cited_events_carry_the_numbers_of_their_findings() -> None:
    cited = {11: (1, 2), 16: (2,)}
    drawing = svg.draw(GATE, cited=cited, broken=frozenset({1}), fragments=_all(GATE))
    nodes = {node.get("id"): node for node in _parse(drawing.markup).iter("g")}
    badges = {
        seq: [
            ("".join(badge.itertext()), badge.get("class"))
            for badge in nodes[f"c-e{seq}"].iter("g")
            if "tl-cite" in (badge.get("class") or "")
        ]
        for seq in (10, 11, 16)
    }
    assert badges == {
        10: [],
        11: [("1,2", "tl-cite tl-broken")],
        16: [("2", "tl-cite")],
    }


def test_the_trigger_is_marked() -> None:
    assert svg.render(GATE).count('class="tl-trigger"') == 1


def test_a_picture_of_too_many_events_keeps_the_story_and_the_evidence() -> None:
    events = list(GATE.events[:-2])
    noise = [
        Event(len(events) + n, 600_000_000 + n, 100 + n, Kind.SUPERVISOR_SAID, "supervisor", {})
        for n in range(5000)
    ]
    tail = [
        dataclasses.replace(event, seq=len(events) + 5000 + n, wake=9000 + n, t_ns=700_000_000)
        for n, event in enumerate(GATE.events[-2:])
    ]
    timeline = Timeline(events + noise + tail)
    drawing = svg.draw(timeline, cited={4000: (1,)}, limit=50)
    assert (len(drawing.drawn), drawing.hidden) == (50, len(timeline.events) - 50)
    assert 4000 in drawing.drawn
    kept = {e.seq for e in events if e.kind in (Kind.PROCESS_EXITED, Kind.SIGNAL_SENT)}
    assert kept <= drawing.drawn


def test_a_recording_of_nothing_can_be_drawn() -> None:
    assert svg.draw(Timeline([])).drawn == frozenset()
