"""Rules about the reference supervisor's report, and about waits that were met."""

from __future__ import annotations

from typing import Any

from harness.judges.rules import Case, Judgement, judged, shown, undecided
from harness.model.scenario import ExpectOutcome, WaitFor
from harness.model.timeline import Kind


def judge_outcome(rule: ExpectOutcome, case: Case) -> Judgement:
    """What the reference supervisor reported."""
    wanted = {
        "kind": rule.kind,
        "error": rule.error,
        "exit_code": rule.code,
        "phase": rule.phase,
        "provider_signal": rule.provider_signal,
        "provider_code": rule.provider_code,
    }
    wanted = {key: value for key, value in wanted.items() if value is not None}
    expected = "outcome " + _describe(wanted)
    event = case.timeline.first(Kind.SUPERVISOR_REPORTED, lane=rule.of)
    if event is None:
        crash = case.timeline.first(Kind.SUPERVISOR_SAID, lane=rule.of, name="crashed")
        why = f"it crashed: {crash.data['fields']['reason']}" if crash else "it reported nothing"
        return judged(False, expected, why, [crash])
    got = flatten_outcome(event.data["outcome"])
    holds = {key: got.get(key) for key in wanted} == wanted
    seen = "outcome " + _describe({key: got.get(key, "none") for key in wanted})
    # The rest may be a matter of chance: whether a provider had been started when set-up failed.
    rest = {key: value for key, value in got.items() if key not in wanted}
    if rule.stderr_contains is not None:
        tail = (event.data["outcome"].get("provider") or {}).get("stderr-tail") or ""
        is_there = rule.stderr_contains in tail
        expected += f', stderr with "{rule.stderr_contains}"'
        seen += f', stderr {"with" if is_there else "without"} "{rule.stderr_contains}"'
        holds = holds and is_there
        rest["stderr"] = shown(tail)
    return judged(holds, expected, seen, [event], aside=_describe(rest))


def flatten_outcome(outcome: dict[str, Any]) -> dict[str, Any]:
    """An outcome's members with the provider's share on the same level, None left out.

    Signals become names: ``provider_signal: KILL``.
    """
    flat = {"kind": outcome.get("kind"), "exit_code": outcome.get("exit-code")}
    for member in ("error", "reason"):
        flat[member] = outcome.get(member)
    provider = outcome.get("provider") or {}
    ended = provider.get("exit") or provider.get("status") or {}
    flat["phase"] = provider.get("phase")
    flat["provider_code"] = ended.get("code")
    if ended.get("signal") is not None:
        flat["provider_signal"] = signal_name(ended["signal"])
    return {key: value for key, value in flat.items() if value is not None}


#: signal(7), the numbers of x86 and ARM, for what a provider or a bwrap can die of.
_SIGNALS = {
    1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2",
    13: "PIPE", 14: "ALRM", 15: "TERM",
}  # fmt: skip


def signal_name(number: int) -> str:
    """The name of a signal without SIG; the number as text when it has none here."""
    return _SIGNALS.get(number, str(number))


def _describe(members: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in members.items())


def judge_reached(rule: WaitFor, case: Case) -> Judgement:
    """Whether a wait step was met within its deadline."""
    index = next((i for i, step in enumerate(case.scenario.all_steps) if step.wait == rule), None)
    expected = "the wait to be met: " + ", ".join(
        f"{key} {value}" for key, value in rule.model_dump(exclude_none=True).items()
    )
    done = case.timeline.first(Kind.STEP_DONE, index=index)
    late = case.timeline.first(Kind.STEP_TIMED_OUT, Kind.STEP_FAILED, index=index)
    if done is not None:
        return judged(True, expected, f"met at {done.t_ns / 1e6:.1f} ms", [done])
    if late is not None:
        why = late.data.get("reason", "its deadline passed")
        return judged(False, expected, why, [late])
    return undecided(expected, "the steps did not get there")
