"""What a person reads in a terminal or a CI log: lines, failure blocks, the summary.

Pure text building: the live progress bar belongs to ``harness.cli``.  Nothing here moves a cursor;
text that came from a command can neither (``words.visible``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.model.timeline import Event, Timeline
from harness.model.verdict import Finding, Held, Result, RunRecord, Status
from harness.reporters.events import describe, shares_wake_up
from harness.reporters.words import (
    NEEDS_ATTENTION,
    STATUS_ORDER,
    area,
    by_urgency,
    clause_sentence,
    counts_sentence,
    events_sentence,
    first_of_each_reason,
    milliseconds,
    missing_sentence,
    one_line,
    plural,
    seconds,
    seen_on,
    visible,
    why,
)

#: Events shown before and after each cited one; two is enough to see the stimulus and its echo.
EXCERPT_RADIUS = 2

#: An excerpt longer than this hides the failure that it explains.
EXCERPT_LIMIT = 24

#: Width of a rule; a terminal narrower than this wraps, wider ones do not need more.
_WIDTH = 100

_WORDS = {
    Status.PASS: "PASS",
    Status.FAIL: "FAIL",
    Status.KNOWN: "KNOWN",
    Status.UNEXPECTED_PASS: "UNEXPECTED PASS",
    Status.INCONCLUSIVE: "INCONCLUSIVE",
    Status.SKIP: "SKIP",
    Status.ERROR: "ERROR",
}

# SGR codes of ECMA-48 that look right on dark and on light terminals.
_COLORS = {
    Status.PASS: "32",
    Status.FAIL: "1;31",
    Status.KNOWN: "35",
    Status.UNEXPECTED_PASS: "1;31",
    Status.INCONCLUSIVE: "33",
    Status.SKIP: "2",
    Status.ERROR: "1;33",
}

_ASCII = str.maketrans({"✓": "+", "✗": "x", "•": "?", "─": "-", "▸": ">", "…": "...", "—": "-"})


@dataclass(frozen=True, slots=True)
class Style:
    """How to print: with colour or without, in Unicode or in ASCII."""

    color: bool = False
    unicode: bool = True

    def paint(self, text: str, code: str) -> str:
        """``text`` in the colour of an SGR code, or as it is."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text

    def encode(self, text: str) -> str:
        """``text`` as the terminal can show it: in ASCII, the rest becomes backslash escapes."""
        if self.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def wants_color(flag: str, environ: Mapping[str, str], isatty: bool) -> bool:
    """Whether to print colours: ``flag`` is ``auto``, ``always`` or ``never``.

    An explicit flag beats everything, then a non-empty NO_COLOR (https://no-color.org), then
    FORCE_COLOR (non-empty and not ``0``), then whether the output is a terminal that can.
    """
    if flag in ("always", "never"):
        return flag == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return isatty and environ.get("TERM") != "dumb"


def case_line(result: Result, style: Style) -> str:
    """One finished case on one line, without a newline."""
    word = style.paint(f"{_WORDS[result.status]:<5}", _COLORS[result.status])
    name = style.paint(one_line(result.id), "1")
    subject = style.paint(f"[{one_line(result.subject)}]", "36")
    took = style.paint(seconds(result.duration_s), "2")
    message = "" if result.status is Status.PASS else why(result)
    return style.encode(f"{word} {name} {subject} {took}{'  ' if message else ''}{message}")


def failure_block(
    result: Result,
    timeline: Timeline | None,
    style: Style,
    *,
    contract: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Everything a person needs of a case that needs attention, several lines.

    ``contract`` (``run.contract``) adds the sentence of each clause.  Findings that held are only
    counted: the others are what is to be looked at.
    """
    word = _WORDS[result.status]
    head = f"── {word}  {one_line(result.id)} [{one_line(result.subject)}] "
    lines = [style.paint(head + "─" * max(3, _WIDTH - len(head)), _COLORS[result.status])]
    lines += ["   " + one_line(result.title)] if result.title else []
    if result.file:
        lines.append("   " + style.paint(one_line(f"{result.file}:{result.line}"), "2"))
    broken = [finding for finding in result.findings if finding.held is not Held.YES]
    if not broken and why(result):
        lines += ["", "   " + one_line(result.message or why(result), limit=2000)]
    if result.reason and result.reason != result.message:
        lines += _continued("   reason    ", result.reason)
    for finding in broken:
        lines += ["", *_finding_lines(finding, contract or {}, style)]
    held = len(result.findings) - len(broken)
    if held:
        lines += ["", "   " + style.paint(f"✓ {plural(held, 'other expectation')} held", "2")]
    for rate in result.rates:
        lines.append(f"   rate      {one_line(rate.rule)}: {rate.failures} failed,")
        lines[-1] += f" allowed {one_line(rate.allowed)}"
    if result.remedy:
        lines.append(f"   remedy    {one_line(result.remedy)}")
    for deviation in result.deviations:
        lines.append(f"   deviation {one_line(deviation.because)} ({one_line(deviation.issue)})")
        if deviation.file:
            lines.append(f"             {one_line(deviation.file)}:{deviation.line}")
    if timeline is not None and timeline.events:
        lines += ["", *_excerpt(timeline, broken, result, style)]
    if result.rerun:
        lines += ["", f"   rerun     {style.paint(one_line(result.rerun, limit=2000), '1')}"]
    return style.encode("\n".join(lines))


def summary(run: RunRecord, style: Style, *, reports: Mapping[str, str] | None = None) -> str:
    """The end of a run; ``reports`` maps the name of a report (``html``) to where it is."""
    blocks = [
        _known(run, style),
        _skips(run),
        _families(run),
        _attention(run, style),
        _closing(run, style, reports or {}),
    ]
    return style.encode("\n\n".join("\n".join(block) for block in blocks if block))


def _continued(name: str, text: str) -> list[str]:
    """A named text; its further lines stand below its first one, behind a bar.

    The bar matters: GitHub's runner obeys ``::error::`` at the beginning of an indented line.
    """
    first, *rest = visible(text).split("\n")
    return [name + first, *(f"{'| ':>{len(name)}}{line}" for line in rest)]


def _finding_lines(
    finding: Finding, contract: Mapping[str, Mapping[str, str]], style: Style
) -> list[str]:
    sign, code = ("✗", "31") if finding.held is Held.NO else ("•", "33")
    lines = [f"   {style.paint(f'{sign} {one_line(finding.rule)}', code)}"]
    if finding.clause:
        sentence = one_line(clause_sentence(contract, finding.clause))
        lines.append(f"     clause    {one_line(finding.clause)}{': ' * bool(sentence)}{sentence}")
    for name, text in (("expected", finding.expected), ("observed", finding.seen)):
        lines += _continued(f"     {name}  ", text)
    return [*lines, f"     events    {events_sentence(finding)}"]


def _excerpt(
    timeline: Timeline, broken: Iterable[Finding], result: Result, style: Style
) -> list[str]:
    cited = {seq for finding in broken for seq in finding.events}
    shown = _around(timeline.events, cited)
    repeat = f", repeat {result.shown_repeat + 1} of {result.repeats}" if result.repeats > 1 else ""
    title = f"timeline around the cited events{repeat}" if cited else f"end of the timeline{repeat}"
    lines = [f"   {title}, times in ms"]
    lane_width = max(len(one_line(event.lane)) for event in shown)
    previous: Event | None = None
    for event in shown:
        if previous is not None and event.seq > previous.seq + 1:
            lines.append(f"        … {plural(event.seq - previous.seq - 1, 'event')} …")
        # "=" says that the two events were noticed in one wake-up: their order is not known.
        joined = "=" if previous is not None and shares_wake_up(previous, event) else " "
        mark = "▸" if event.seq in cited else " "
        line = (
            f"   {mark} #{event.seq:<4}{joined}{milliseconds(event.t_ns):>10}"
            f"  {one_line(event.lane):<{lane_width}}  {one_line(describe(event), limit=160)}"
        )
        lines.append(style.paint(line, "1") if event.seq in cited else line)
        previous = event
    return lines


def _around(events: list[Event], cited: set[int]) -> list[Event]:
    if not cited & {event.seq for event in events}:
        return events[-2 * EXCERPT_RADIUS - 2 :]
    for radius in range(EXCERPT_RADIUS, -1, -1):
        # Not every pair of events is looked at: a flood has thousands, and cites them all.
        wanted = {seq + offset for seq in cited for offset in range(-radius, radius + 1)}
        near = [event for event in events if event.seq in wanted]
        if len(near) <= EXCERPT_LIMIT:
            return near
    return [event for event in events if event.seq in cited][:EXCERPT_LIMIT]


def _known(run: RunRecord, style: Style) -> list[str]:
    grouped: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in run.results:
        if result.status is Status.KNOWN:
            for deviation in result.deviations:
                fixed = f", fixed in {deviation.fixed_in}" if deviation.fixed_in else ""
                key = (deviation.because, deviation.issue, deviation.when + fixed)
                grouped[key].append(result)
    lines = []
    for (because, issue, when), results in grouped.items():
        lines.append(f"  {one_line(because)} ({one_line(when)})")
        lines.append(f"    {style.paint(one_line(issue), '36')}")
        for name in dict.fromkeys(result.id for result in results):
            specs = [result.subject for result in results if result.id == name]
            where = seen_on(run, specs) if len(run.subjects) > 1 else specs[0]
            lines.append(f"    {one_line(name)} [{one_line(where)}]")
    return [style.paint("Known deviations", "1"), *lines] if lines else []


def _skips(run: RunRecord) -> list[str]:
    grouped = Counter(
        (result.reason or result.message or "no reason given", result.remedy)
        for result in run.results
        if result.status is Status.SKIP
    )
    lines = []
    for (reason, remedy), count in grouped.most_common():
        lines.append(f"  {count:>3}  {one_line(reason)}")
        lines += [f"       remedy: {one_line(remedy)}"] if remedy else []
    return ["Skipped", *lines] if lines else []


def _families(run: RunRecord) -> list[str]:
    families = sorted({area(result.id) for result in run.results})
    if not families:
        return []
    used = [status for status in STATUS_ORDER if run.count(status)]
    width = max(len("Area"), *(len(one_line(name)) for name in families))
    lines = [f"{'Area':<{width}}" + "".join(f"  {status.value:>6}" for status in used)]
    for name in families:
        counted = Counter(result.status for result in run.results if area(result.id) == name)
        cells = (f"  {counted[s] or '.':>{max(6, len(s.value))}}" for s in used)
        lines.append(f"{one_line(name):<{width}}" + "".join(cells))
    tags = Counter(tag for result in run.results for tag in result.tags)
    if tags:
        words = ", ".join(f"{one_line(tag)} {count}" for tag, count in sorted(tags.items()))
        lines.append(f"Tags: {words}")
    return lines


def _attention(run: RunRecord, style: Style) -> list[str]:
    urgent = [r for r in by_urgency(run.results) if r.status in NEEDS_ATTENTION]
    shown, more = first_of_each_reason(urgent)
    lines = [case_line(result, style) for result in shown]
    lines += [f"      … and {each}" for each in more]
    return [style.paint("Needs attention", "1"), *lines] if lines else []


def _closing(run: RunRecord, style: Style, reports: Mapping[str, str]) -> list[str]:
    lines = [
        f"Hidden by {one_line(name)}: {plural(count, 'scenario')}"
        for name, count in run.hidden.items()
        if count
    ]
    if not run.complete:
        lines.append(style.paint(missing_sentence(run), "1;31"))
    width = max((len(name) for name in reports), default=0)
    lines += [f"{name:<{width}}  {one_line(where)}" for name, where in reports.items()]
    bad = next((status for status in STATUS_ORDER if run.count(status)), None)
    color = _COLORS[bad] if bad in NEEDS_ATTENTION else "1;32"
    color = "1;33" if bad is None else color
    subjects = ", ".join(f"{one_line(s.spec)} {one_line(s.version)}" for s in run.subjects)
    closing = f"{counts_sentence(run)} in {seconds(run.duration_s)}"
    lines.append(style.paint(closing, color) + (f" — {subjects}" if subjects else ""))
    return lines
