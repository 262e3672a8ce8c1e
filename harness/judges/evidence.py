"""Does a recording show a bwrap at work at all?

A program that merely ends, hangs, or prints a plausible line must not make a scenario pass that
claims something about bwrap, also where nobody asked it to prove itself first.  So a recording
counts towards a pass only if something in it needs a sandbox, or is bwrap's own word that it made
none.  That word is looked for by the name in front of it, which every error of bwrap has
(bubblewrap, utils.c: die), never by its wording.
"""

from __future__ import annotations

from harness.model.scenario import Scenario
from harness.model.timeline import Event, Kind, Timeline

_INSIDE = ("child", "reaper", "command")
#: What programs that are not bwrap end with: success, failure, and the shell's two refusals.
_SAYS_NOTHING = (0, 1, 126, 127)


def find_missing_evidence(scenario: Scenario, timeline: Timeline, held: set[str]) -> str:
    """Why the recording proves nothing about a bwrap, or an empty text.

    ``held`` are the names of the rules that held: text that was asked for by its words came from a
    command.
    """
    started = [e for e in timeline.of(Kind.PROCESS_STARTED) if _part(e) == "monitor"]
    if not started:
        return ""  # nothing was launched, so nothing is claimed of a bwrap
    names = {_name(event) for event in started}
    if any(_is_evidence(event, names) for event in timeline.events):
        return ""
    for rule, name in zip(scenario.expect, scenario.rule_names(), strict=True):
        if name in held and rule.text is not None and (rule.text.contains or rule.text.lines):
            return ""
    return (
        "nothing in the recording shows a bwrap at work: no process below it, no error of its own"
    )


def _part(event: Event) -> str:
    return event.lane.rpartition(".")[2]


def _name(started: Event) -> str:
    """What the kernel calls the process.

    One that was gone before it could be looked at has no name in the recording; then it is what
    was executed, cut to the 15 bytes that the kernel keeps (proc(5), /proc/PID/comm).
    """
    comm = str(started.data.get("comm") or "")
    program = (started.data.get("argv") or [""])[0]
    return comm or program.rpartition("/")[2][:15]


def _is_evidence(event: Event, monitors: set[str]) -> bool:
    match event.kind:
        case Kind.PROCESS_STARTED | Kind.PROCESS_IDENTIFIED | Kind.STATE_REACHED:
            return _part(event) in _INSIDE
        case Kind.MARKER_SEEN | Kind.COMMAND_OBSERVED:
            return True
        case Kind.LINE_READ:
            return str(event.data["text"]).startswith("bwrap: ")
        case Kind.EOF_READ:
            return str(event.data["rest"]).startswith("bwrap: ")
        case Kind.STATUS_COLLECTED:
            code = event.data.get("code")
            return _part(event) == "monitor" and code is not None and code not in _SAYS_NOTHING
        case Kind.LOCKS_PROBED:
            return any(lock["member"].rpartition(".")[2] in _INSIDE for lock in event.data["locks"])
        case Kind.CENSUS_TAKEN:
            # A clone of the monitor, called what the monitor is called.
            return any(
                process["member"].rpartition(".")[2] in (*_INSIDE, "descendant")
                and process.get("comm") in monitors
                for process in event.data["processes"]
            )
        case _:
            return False
