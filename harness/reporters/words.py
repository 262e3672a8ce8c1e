"""How results are put into words, the same in every format.

Which characters of foreign text are safe to show is decided here (:func:`visible`) and must never
be decided a second time elsewhere.  Read next: ``events``, for the words of a recording.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from harness.model.verdict import Finding, Held, Result, RunRecord, Status, Subject

#: What a person has to look at, the most urgent first.
NEEDS_ATTENTION = (Status.FAIL, Status.UNEXPECTED_PASS, Status.ERROR, Status.INCONCLUSIVE)

#: The order in which statuses are counted and listed everywhere.
STATUS_ORDER = (*NEEDS_ATTENTION, Status.KNOWN, Status.SKIP, Status.PASS)

#: A field of a report keeps this many characters; a workload may print megabytes, and a report that
#: cannot be opened proves nothing.  The JSON report and the stored run keep everything.
FIELD_LIMIT = 2_000

#: A finding names this many of its events; in 1698 results none had more than nine.
EVENTS_NAMED = 20

# Characters that act instead of being seen: C0 and C1 controls (ANSI escapes begin with one), DEL,
# line separators, marks that reorder or hide text (U+061C, U+200B-F, U+202A-E, U+2060-9, U+FEFF),
# tag characters; and what XML 1.0 section 2.2 forbids or UTF-8 cannot carry: lone surrogates and
# noncharacters.  Tab and newline are decided by the caller.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f"
    + "".join(chr(plane * 0x10000 + low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF))
    + "\ud800-\udfff]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: object, *, limit: int = FIELD_LIMIT) -> str:
    """``text`` with every character that acts shown as an escape; newlines and tabs stay.

    The result is fit for a terminal, for XML 1.0 and for UTF-8.  Past ``limit`` characters it is
    cut, and says how much is missing.
    """
    whole = str(text)
    shown = _ACTIVE.sub(_escape, whole[:limit].replace("\r\n", "\n"))
    if len(whole) > limit:
        shown += f" … ({len(whole) - limit} more characters)"
    return shown


def one_line(text: object, *, limit: int = 300) -> str:
    """:func:`visible` on one line: newlines and tabs are shown as escapes too."""
    shown = visible(str(text).strip(), limit=limit)
    return shown.replace("\n", "\\n").replace("\t", "\\t")


def short(text: object, *, width: int) -> str:
    """:func:`one_line` in at most ``width`` characters, the last of them an ellipsis when cut."""
    shown = one_line(str(text)[: width * 2])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def seconds(duration_s: float) -> str:
    """A duration for people: ``3 ms``, ``1.20 s``, ``2 min 05 s``."""
    if duration_s < 0.9995:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 59.995:
        return f"{duration_s:.2f} s"
    minutes, rest = divmod(round(duration_s), 60)
    return f"{minutes} min {rest:02d} s"


def milliseconds(t_ns: int) -> str:
    """A point in time for people, in milliseconds with microseconds: ``12.345``."""
    return f"{t_ns / 1e6:.3f}"


def plural(count: int, noun: str) -> str:
    """``1 event``, ``2 events``, ``2 passes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def area(scenario_id: str) -> str:
    """The area of a scenario: its id up to the first dot."""
    return scenario_id.split(".", 1)[0]


def web_address(text: str) -> str | None:
    """``text`` when it is an http or https address that is safe to put into a link, else None."""
    return text if re.fullmatch(r"https?://[^\s\"'<>\\^`{|}\x00-\x20\x7f-\uffff]+", text) else None


def clause_sentence(contract: Mapping[str, Mapping[str, str]], clause: str | None) -> str:
    """The sentence of a contract clause; empty when the contract does not have it."""
    return contract.get(clause, {}).get("sentence", "") if clause else ""


def subject_of(run: RunRecord, spec: str) -> Subject | None:
    """The subject that a result names, or None: a result may be of none (a file not loaded)."""
    return next((subject for subject in run.subjects if subject.spec == spec), None)


def subject_order(run: RunRecord) -> list[str]:
    """All subject specs, those of the run first, then those that only results name."""
    named = [subject.spec for subject in run.subjects]
    return list(dict.fromkeys([*named, *(result.subject for result in run.results)]))


def by_urgency(results: Iterable[Result]) -> list[Result]:
    """Results in the order of :data:`STATUS_ORDER`, otherwise as they were."""
    return sorted(results, key=lambda result: STATUS_ORDER.index(result.status))


#: So many cases in error are told one by one before those for the same reason are only counted.
TOLD_OF_EACH_REASON = 3


def first_of_each_reason(results: Iterable[Result]) -> tuple[list[Result], list[str]]:
    """Results without most of those in error for one and the same reason, which are counted.

    An engine that goes away takes hundreds of cases along, and hides what else needs attention.
    """
    seen: Counter[str] = Counter()
    shown = []
    for result in results:
        if result.status is Status.ERROR:
            seen[result.message] += 1
            if seen[result.message] > TOLD_OF_EACH_REASON:
                continue
        shown.append(result)
    more = [
        f"{count - TOLD_OF_EACH_REASON} more in error for the same reason: {one_line(reason)}"
        for reason, count in seen.items()
        if count > TOLD_OF_EACH_REASON
    ]
    return shown, more


def counts_sentence(run: RunRecord) -> str:
    """The counts by status in one line, the urgent ones first; statuses that nothing has are left
    out."""
    nouns = {
        Status.FAIL: "failed",
        Status.UNEXPECTED_PASS: "passed unexpectedly",
        Status.ERROR: "in error",
        Status.INCONCLUSIVE: "inconclusive",
        Status.KNOWN: "known",
        Status.SKIP: "skipped",
        Status.PASS: "passed",
    }
    parts = [f"{run.count(status)} {nouns[status]}" for status in STATUS_ORDER if run.count(status)]
    return ", ".join(parts) or "nothing ran"


def missing_sentence(run: RunRecord) -> str:
    """Why cases have no result, in one sentence; empty when all have one."""
    if run.complete:
        return ""
    if run.cut_short:
        return (
            "Stopped at the first unexpected result, as --fail-fast asks: "
            f"{plural(len(run.results), 'result')}, and the rest was not run."
        )
    return f"The run is incomplete: only {plural(len(run.results), 'result')} recorded."


def seen_on(run: RunRecord, specs: Iterable[str]) -> str:
    """Which subjects of a run, in few words: ``all 6 subjects``, else their bwrap versions.

    A version stands for all subjects that have it; where only some of those are meant, and where a
    result names a subject that the run does not know, the subject is named.
    """
    meant = set(specs)
    known = {subject.spec for subject in run.subjects}
    if len(known) > 1 and meant == known:
        return f"all {len(known)} subjects"
    names: dict[str, None] = {}
    for subject in sorted(run.subjects, key=lambda subject: version_key(subject.version)):
        if subject.spec in meant:
            same = {other.spec for other in run.subjects if other.version == subject.version}
            apart = f"{subject.version} ({subject.spec})" if subject.version else subject.spec
            names[subject.version if subject.version and same <= meant else apart] = None
    return ", ".join([*names, *sorted(meant - known)])


def version_key(version: str) -> tuple[int, ...]:
    """What to sort versions by: ``0.13.1`` comes after ``0.8.0``."""
    return tuple(int(number) for number in re.findall(r"[0-9]{1,9}", version))


def events_named(finding: Finding) -> tuple[int, ...]:
    """The events of a finding that a report names: a flood has thousands, and none of them tells
    more than the first few and the last."""
    whole = finding.events
    return whole if len(whole) <= EVENTS_NAMED else (*whole[: EVENTS_NAMED - 1], whole[-1])


def events_sentence(finding: Finding) -> str:
    """Which events prove a finding."""
    if finding.events:
        named = events_named(finding)
        text = ", ".join(f"#{seq}" for seq in named)
        more = len(finding.events) - len(named)
        return f"{text} and {more} more" if more else text
    return "none: undecided" if finding.held is Held.UNKNOWN else "none: the proof is an absence"


def why(result: Result) -> str:
    """One line that says why a result has its status, from the best source there is."""
    deviation = result.deviations[0] if result.deviations else None
    match result.status:
        case Status.KNOWN if deviation is not None:
            return one_line(f"{deviation.because} ({deviation.issue})")
        case Status.UNEXPECTED_PASS if not result.message and deviation is not None:
            entry = f"{deviation.file}:{deviation.line}" if deviation.file else deviation.rule
            return one_line(f"the known deviation did not happen; change the entry at {entry}")
        case Status.SKIP if result.reason:
            return one_line(result.reason)
        case Status.PASS:
            return one_line(result.message)
        case _:
            pass
    if result.message:
        return one_line(result.message)
    broken = next((f for f in result.findings if f.held is not Held.YES), None)
    if broken is None:
        return one_line(result.reason)
    return one_line(f"{broken.rule}: expected {broken.expected}, observed {broken.seen}")
