"""The order of a run: the next is recorded while the last is judged, and what ends it all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import pipeline
from harness.errors import Interrupted, RecordingLost
from harness.loader import LoadedScenario
from harness.model.scenario import Scenario
from harness.model.timeline import Timeline
from harness.model.verdict import Result, Status, Subject
from harness.model.vocabulary import Kind, encode_event
from harness.pipeline import Job, Options, Run, StopSwitch, Target
from harness.store import RunFolder

#: Far longer than anything here takes; only a failure ever waits for it.
PATIENCE_S = 10.0


def lines(code: int) -> list[str]:
    """A recording in which bwrap ended with this exit code."""
    step = {"index": 0, "verb": "launch"}
    events: list[tuple[Kind, str, dict[str, Any]]] = [
        (Kind.RECORDING_OPENED, "observer", {"format": 1, "scenario": "x", "uid": 1000}),
        (Kind.STEP_STARTED, "observer", step),
        (Kind.PROCESS_STARTED, "monitor", {"pid": 7, "ppid": 1, "comm": "bwrap", "argv": []}),
        (Kind.STEP_DONE, "observer", {**step, "trigger": True}),
        (Kind.OBJECT_READ, "status", {"channel": "status", "n": 1, "value": {"child-pid": 8}}),
        (Kind.PROCESS_IDENTIFIED, "child", {"pid": 8, "ppid": 7, "comm": "bwrap"}),
        (Kind.PROCESS_EXITED, "monitor", {"pid": 7}),
        (Kind.STATUS_COLLECTED, "monitor", {"pid": 7, "code": code}),
        (Kind.CLEANUP_DONE, "observer", {"killed": [], "reaped": [], "leaks": []}),
        (Kind.RECORDING_CLOSED, "observer", {"events": 9, "complete": True}),
    ]
    return [
        encode_event(n, n, n, kind, lane, data, late=False)
        for n, (kind, lane, data) in enumerate(events)
    ]


class Story:
    """What happened, in order; and, for each recording, what comes of it."""

    def __init__(self, **outcomes: int | Exception) -> None:
        self.outcomes = outcomes
        self.told: list[str] = []

    def start_agent(self, **_where: Any) -> StoryAgent:
        self.told.append("agent starts")
        return StoryAgent(self)


class StoryAgent:
    """An agent that records what the story says."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def record(
        self,
        plan: Mapping[str, Any],
        _path: Path,
        *,
        meanwhile: Callable[[], None] = lambda: None,
        **_limits: Any,
    ) -> list[str]:
        name = plan["id"].removeprefix("a.")
        self.story.told.append(f"{name} begins")
        meanwhile()
        outcome = self.story.outcomes[name]
        self.story.told.append(f"{name} ends")
        if isinstance(outcome, Exception):
            raise outcome
        return lines(outcome)

    def close(self) -> None:
        self.story.told.append("agent closed")


class Listener:
    """A watcher that adds to the story."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def case_started(self, scenario_id: str, subject: str) -> None:
        pass

    def case_finished(self, result: Result, _timeline: Timeline | None) -> None:
        self.story.told.append(f"{result.id.removeprefix('a.')}: {result.status}")


@pytest.fixture
def switch() -> Iterator[StopSwitch]:
    made = StopSwitch()
    yield made
    made.close()


def play(story: Story, folder: Path, switch: StopSwitch, **options: Any) -> Run:
    """Run the scenarios of a story, one after the other."""
    subject = Subject("host", "0.11.0", "/bwrap")
    target = Target("host", story, "/bwrap", 1000, 1000, subject, {}, {})  # type: ignore[arg-type]
    jobs = []
    for name in story.outcomes:
        scenario = Scenario.model_validate(
            {
                "id": f"a.{name}",
                "title": "A scenario of these tests",
                "clauses": ["TEST-1"],
                "sandbox": {
                    "command": ["true"],
                    "channels": {"status": {"option": "json-status-fd"}},
                },
                "expect": [{"exit": {"of": "monitor", "code": 0}}],
            }
        )
        jobs.append(Job(LoadedScenario(scenario, "a.yaml", 1, ""), target))
    run = Run(RunFolder.create(folder, "run"), Options(**options), Listener(story), switch)
    run.record_all(jobs)
    return run


def test_the_next_is_being_recorded_before_the_last_is_judged(
    tmp_path: Path, switch: StopSwitch
) -> None:
    story = Story(one=0, two=1, three=0)
    run = play(story, tmp_path, switch)
    told = story.told
    for name, follower in (("one", "two"), ("two", "three")):
        verdict = next(line for line in told if line.startswith(f"{name}: "))
        assert told.index(f"{follower} begins") < told.index(verdict)
    assert [line for line in told if ": " in line] == ["one: pass", "two: fail", "three: pass"]
    assert told[-1] == "agent closed"
    assert [run.results["a.two", "host"].status] == [Status.FAIL]


def test_no_more_than_one_recording_waits_to_be_judged(
    tmp_path: Path, switch: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(one=0, two=0, three=0, four=0)
    may_go_on = threading.Event()
    judge = pipeline.judge_recording

    def slow(*arguments: Any, **more: Any) -> Any:
        # One is judged while two is recorded; three begins, and then has to wait for it.
        assert may_go_on.wait(PATIENCE_S)
        story.told.append("judged")
        return judge(*arguments, **more)

    monkeypatch.setattr(pipeline, "judge_recording", slow)
    begin = pipeline._Behind.begin

    def tell(behind: pipeline._Behind) -> None:
        if "three begins" in story.told:
            may_go_on.set()
        begin(behind)

    monkeypatch.setattr(pipeline._Behind, "begin", tell)
    play(story, tmp_path, switch)
    assert story.told.index("judged") < story.told.index("three ends")
    assert story.told.count("judged") == 4


def test_after_a_failure_with_fail_fast_nothing_more_is_begun(
    tmp_path: Path, switch: StopSwitch
) -> None:
    story = Story(one=0, two=1, three=0)
    run = play(story, tmp_path, switch, fail_fast=True)
    assert "three begins" not in story.told
    assert run.cut_short
    assert [run.results[f"a.{name}", "host"].status for name in ("one", "two")] == [
        Status.PASS,
        Status.FAIL,
    ]


def test_a_judge_that_breaks_down_ends_the_run_and_is_raised_here(
    tmp_path: Path, switch: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any, **_more: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(pipeline, "judge_recording", broken)
    story = Story(one=0, two=0, three=0, four=0)
    with pytest.raises(ZeroDivisionError):
        play(story, tmp_path, switch)
    assert "four begins" not in story.told
    assert story.told[-1] == "agent closed"


def test_a_judge_that_breaks_down_over_the_last_recording_is_raised_too(
    tmp_path: Path, switch: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "judge_recording", lambda *_arguments, **_more: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        play(Story(one=0), tmp_path, switch)


def test_a_lost_recording_is_an_error_of_its_own_and_the_next_has_another_agent(
    tmp_path: Path, switch: StopSwitch
) -> None:
    story = Story(one=0, two=RecordingLost("the agent has ended\nsaying this"), three=0)
    run = play(story, tmp_path, switch)
    lost = run.results["a.two", "host"]
    assert (lost.status, lost.message) == (Status.ERROR, "the agent has ended")
    assert lost.reason == "the agent has ended\nsaying this"
    assert [run.results[f"a.{name}", "host"].status for name in ("one", "three")] == [
        Status.PASS
    ] * 2
    assert story.told.count("agent starts") == 2


def test_what_was_recorded_before_an_interrupt_is_judged(
    tmp_path: Path, switch: StopSwitch
) -> None:
    story = Story(one=0, two=Interrupted(), three=0)
    run = play(story, tmp_path, switch)
    assert {name for name, _ in run.results} == {"a.one"}
    assert "three begins" not in story.told


def test_repeats_are_judged_in_their_order_and_concluded_once(
    tmp_path: Path, switch: StopSwitch
) -> None:
    story = Story(one=0)
    run = play(story, tmp_path, switch, repeat=5)
    assert run.results["a.one", "host"].repeats == 5
    assert story.told.count("one: pass") == 1
