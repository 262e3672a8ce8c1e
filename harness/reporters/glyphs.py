"""The glyph of each kind of event: a shape around 0,0 and the tone that ``report.css`` colours.

The shape alone tells the kinds apart; colour only helps.
"""

from __future__ import annotations

from harness.model.timeline import Event, Kind

SHAPES = {
    "dot": '<circle r="4"/>',
    "ring": '<circle class="tl-hollow" r="3.6"/>',
    "end": '<path d="M-1.5-7h3v14h-3z"/>',
    "eof": '<path class="tl-line" d="M-4-6H2V6H-4"/>',
    "diamond": '<path d="M0-5 5 0 0 5-5 0z"/>',
    "cross": '<path class="tl-line" d="M-4-4 4 4M-4 4 4-4"/>',
    "square": '<path class="tl-hollow" d="M-4-4h8v8h-8z"/>',
    "block": '<path d="M-4-4h8v8h-8z"/>',
    "write": '<path d="M-5-4.5H5L0 5z"/>',
    "flag": '<path d="M-3-6H5L2.5-3 5 0H-1.5V6H-3z"/>',
    "tick": '<path class="tl-line" d="M-4 0-1 3.5 4-4"/>',
    "speech": '<path d="M-5-5H5V3H0L-3 6V3H-5z"/>',
    "bar": '<path class="tl-line" d="M0-5V5"/>',
}

_LOOKS: dict[Kind, tuple[str, str]] = {
    Kind.RECORDING_OPENED: ("bar", "mute"),
    Kind.RECORDING_CLOSED: ("bar", "mute"),
    Kind.PROCESS_STARTED: ("dot", "life"),
    Kind.PROCESS_IDENTIFIED: ("ring", "life"),
    Kind.PROCESS_EXITED: ("end", "life"),
    Kind.STATUS_COLLECTED: ("diamond", "life"),
    Kind.LAUNCHER_ENDED: ("end", "life"),
    Kind.LINE_READ: ("dot", "io"),
    Kind.OBJECT_READ: ("dot", "io"),
    Kind.EOF_READ: ("eof", "io"),
    Kind.CHANNEL_TRUNCATED: ("cross", "warn"),
    Kind.CHANNEL_CLOSED: ("eof", "mute"),
    Kind.DATA_WRITTEN: ("write", "io"),
    Kind.WRITE_FAILED: ("cross", "bad"),
    Kind.SIGNAL_SENT: ("write", "signal"),
    Kind.SIGNAL_FAILED: ("cross", "bad"),
    Kind.STATE_REACHED: ("diamond", "probe"),
    Kind.MARKER_SEEN: ("flag", "io"),
    Kind.HELPER_READY: ("tick", "good"),
    Kind.HELPER_STOPPED: ("block", "mute"),
    Kind.PROVIDER_READY: ("tick", "good"),
    Kind.PROVIDER_LOST: ("cross", "bad"),
    Kind.PROVIDER_STOPPED: ("block", "mute"),
    Kind.PROVIDER_FAILED: ("cross", "bad"),
    Kind.STEP_DONE: ("bar", "step"),
    Kind.STEP_TIMED_OUT: ("cross", "bad"),
    Kind.STEP_FAILED: ("cross", "bad"),
    Kind.SUPERVISOR_SAID: ("speech", "probe"),
    Kind.SUPERVISOR_REPORTED: ("speech", "good"),
    Kind.CLEANUP_DONE: ("block", "mute"),
}
_PROBE_LOOK = ("square", "probe")


def look(event: Event) -> tuple[str, str]:
    """The name of an event's shape in :data:`SHAPES`, and its tone."""
    shape, tone = _LOOKS.get(event.kind, _PROBE_LOOK)
    if event.kind is Kind.CONNECTION_PROBED:
        return ("tick", "good") if event.data.get("reached") else ("cross", "bad")
    if event.kind is Kind.STATUS_COLLECTED and event.data.get("signal") is not None:
        return shape, "signal"
    return shape, tone
