"""Rules about processes: exits, what ran, who is left."""

from __future__ import annotations

from typing import Any

from harness.judges.rules import Case, Judgement, judged, undecided
from harness.model.scenario import ExpectExit
from harness.model.timeline import Event, Kind

_DEAD = "ZX"


def judge_exit(rule: ExpectExit, case: Case) -> Judgement:
    """How a process ended.  A code and a signal are never compared with each other."""
    timeline = case.timeline
    started = timeline.first(Kind.PROCESS_STARTED, Kind.PROCESS_IDENTIFIED, lane=rule.of)
    exited = timeline.last(Kind.PROCESS_EXITED, lane=rule.of)
    status = timeline.last(Kind.STATUS_COLLECTED, lane=rule.of)
    ended = exited or status
    seen = _describe_end(started, ended, status)
    if rule.never:
        holds = started is not None and ended is None
        return judged(holds, f"{rule.of} still there", seen, [started, ended, status])
    if rule.any:
        return judged(ended is not None, f"{rule.of} ends", seen, [started, ended, status])
    expected = (
        f"{rule.of} exits {rule.code}"
        if rule.code is not None
        else f"{rule.of} is killed by SIG{rule.signal}"
    )
    if ended is not None and (status is None or not {"code", "signal"} & set(status.data)):
        return undecided(expected, f"{rule.of} ended, but nobody could collect its status", [ended])
    wanted = {"code": rule.code} if rule.code is not None else {"signal": rule.signal}
    got = {k: v for k, v in (status.data if status else {}).items() if k in ("code", "signal")}
    return judged(got == wanted, expected, seen, [ended, status])


def _describe_end(started: Event | None, ended: Event | None, status: Event | None) -> str:
    if started is None:
        return "it was never started"
    if ended is None:
        return "it had not ended when the steps were over"
    if status is not None and "code" in status.data:
        return f"it exited {status.data['code']}"
    if status is not None and "signal" in status.data:
        return f"it was killed by SIG{status.data['signal']}"
    return "it ended"


def judge_ran(marker: str, case: Case) -> Judgement:
    """Whether the command got as far as making its marker."""
    event = case.timeline.first(Kind.MARKER_SEEN, marker=marker)
    seen = "it never appeared" if event is None else f"it appeared at {event.t_ns / 1e6:.1f} ms"
    return judged(event is not None, f"marker {marker} appears", seen, [event])


def judge_never_ran(marker: str, case: Case) -> Judgement:
    """Whether the command never got as far as making its marker."""
    event = case.timeline.first(Kind.MARKER_SEEN, marker=marker)
    seen = "it never appeared" if event is None else f"it appeared at {event.t_ns / 1e6:.1f} ms"
    return judged(event is None, f"marker {marker} never appears", seen, [event])


def last_census(case: Case) -> Event | None:
    """The census that counts: of the last settle, else of the last census probe, else the end's."""
    return case.timeline.last(Kind.CENSUS_TAKEN, name="settle") or case.timeline.last(
        Kind.CENSUS_TAKEN
    )


def members(case: Case, census: Event, *, dead: bool) -> list[str]:
    """The parts of sandboxes and the providers in a census, sorted; duplicates stay."""
    outside = set(case.scenario.helpers) | {"supervisor", "launcher"}
    processes: list[dict[str, Any]] = census.data["processes"]
    return sorted(
        process["member"]
        for process in processes
        if (process["state"] in _DEAD) == dead
        and process["member"] not in outside
        and process["member"].rpartition(".")[2] not in outside
    )


def judge_survivors(wanted: list[str] | str, case: Case) -> Judgement:
    """Who is alive in the census after a settle."""
    return _judge_census(wanted, case, dead=False, what="alive")


def judge_zombies(wanted: list[str] | str, case: Case) -> Judgement:
    """Who is dead but not reaped in the census after a settle."""
    return _judge_census(wanted, case, dead=True, what="zombies")


def _judge_census(wanted: list[str] | str, case: Case, *, dead: bool, what: str) -> Judgement:
    names = [] if isinstance(wanted, str) else sorted(wanted)
    expected = f"{what}: {', '.join(names) or 'none'}"
    census = last_census(case)
    if census is None:
        return undecided(expected, "no census was taken")
    found = members(case, census, dead=dead)
    # Several descendants are one kind of survivor; two commands would be two names.
    kinds = sorted(set(found))
    seen = f"{what}: {', '.join(kinds) or 'none'}"
    aside = f"{len(found)} processes" if len(found) > len(kinds) else ""
    return judged(kinds == names, expected, seen, [census], aside=aside)


def judge_alive(wanted: str, case: Case) -> Judgement:
    """Whether one process is alive in the census after a settle."""
    census = last_census(case)
    expected = f"{wanted} alive"
    if census is None:
        return undecided(expected, "no census was taken")
    states = [p["state"] for p in census.data["processes"] if p["member"] == wanted]
    holds = any(state not in _DEAD for state in states)
    seen = "alive" if holds else "dead" if states else "not there"
    aside = f"state {', '.join(states)}" if states else ""
    return judged(holds, expected, seen, [census], aside=aside)
