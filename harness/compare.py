"""Two recorded sides -> the list of what changed, and what did the changing.  Pure.

A *side* is one subject of one run.  Only what both sides recorded is compared, scenario by
scenario: the verdicts; what lies inside the same verdict (``harness.signature``); and rates, with
Fisher's exact test.  A change is laid at the subject's door only where the scenario is the same on
both sides and the bwrap is not; where the suite or the environment differs, that is said first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.judges.rates import fisher_exact, wilson
from harness.model.change import Cause, Change, Comparison, Direction
from harness.model.verdict import Result, Status, Subject

#: The chance that a whole comparison calls anything different that is not, of what wavers.
SIGNIFICANT = 0.01
#: So often must each side have been recorded before the order of two of its events is compared:
#: what was seen once may come the other way next time.
ORDER_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Side:
    """One subject of one run, as far as a comparison needs it.

    ``statements`` counts, for each scenario and statement, the values over its repeats;
    ``digests`` are of what each scenario said.
    """

    label: str
    subject: Subject
    hostname: str
    harness_version: str
    results: Mapping[str, Result]
    digests: Mapping[str, str]
    statements: Mapping[str, Mapping[str, Counter[str]]] = field(default_factory=dict)
    orders: Mapping[str, Mapping[str, Counter[str]]] = field(default_factory=dict)


#: How good a verdict is for whoever relies on the clause; None: it says nothing.
_RANK: dict[Status, int | None] = {
    Status.PASS: 3,
    Status.UNEXPECTED_PASS: 3,
    Status.KNOWN: 2,
    Status.FAIL: 1,
    Status.INCONCLUSIVE: None,
    Status.ERROR: None,
    Status.SKIP: None,
}
#: How the facts that ``doctor`` found are called among those of a subject.
_FACT = "doctor."
_WORDS = {True: "works", False: "does not work"}
_ORDER = (Direction.REGRESSION, Direction.LOST, Direction.IMPROVEMENT, Direction.NEUTRAL)


@dataclass(slots=True)
class _Chance:
    """How often chance was asked, since whoever asks a hundred times is told yes once (Bonferroni).

    A question whose answer is clear beforehand, as nothing was ever otherwise, does not count
    (Tarone 1990).
    """

    questions: int = 0

    def of(self, hits_a: int, n_a: int, hits_b: int, n_b: int) -> float:
        """The p-value of two shares being so different."""
        if 0 < hits_a + hits_b < n_a + n_b:
            self.questions += 1
        return fisher_exact(hits_a, n_a, hits_b, n_b)

    def explains(self, change: Change) -> bool:
        """Whether a change may be chance after all that was asked."""
        limit = SIGNIFICANT / max(1, self.questions)
        return change.p_value is not None and change.p_value >= limit


def compare(before: Side, after: Side) -> Comparison:
    """What changed from one side to the other."""
    common = [name for name in before.results if name in after.results]
    refusal = _refuse(before, after, common)
    if refusal:
        return Comparison(before.label, after.label, 0, (), refusal)
    changes = [*_environment(before, after), *_suite(before, after)]
    chance = _Chance()
    for name in common:
        changes += _scenario(before, after, name, _cause(before, after, name), chance)
    changes = [change for change in changes if not chance.explains(change)]
    changes.sort(key=lambda change: (_ORDER.index(change.direction), change.scenario))
    return Comparison(before.label, after.label, len(common), tuple(changes))


def _refuse(before: Side, after: Side, common: list[str]) -> str:
    for side in (before, after):
        if not side.results:
            return f"{side.label} has no results"
    if not common:
        return f"{before.label} and {after.label} have no scenario in common"
    decided = [
        name
        for name in common
        if all(_RANK[side.results[name].status] is not None for side in (before, after))
    ]
    if not decided:
        return f"no scenario has a verdict both in {before.label} and in {after.label}"
    return ""


def _same_text(before: Side, after: Side, name: str) -> bool:
    return before.digests.get(name) == after.digests.get(name)


def _cause(before: Side, after: Side, name: str) -> Cause:
    if not _same_text(before, after, name):
        return Cause.SUITE
    # The very same binary: whatever made the difference, it was not bwrap.
    is_same = before.subject.sha256 and before.subject.sha256 == after.subject.sha256
    return Cause.ENVIRONMENT if is_same else Cause.SUBJECT


def _place(side: Side) -> str:
    return "a container" if side.subject.image_digest else "the machine itself"


def _environment(before: Side, after: Side) -> list[Change]:
    facts = (before.subject.facts, after.subject.facts)
    pairs = (
        ("place", _place(before), _place(after)),
        ("kernel", before.subject.kernel, after.subject.kernel),
        ("user", str(before.subject.uid), str(after.subject.uid)),
        ("machine", before.hostname, after.hostname),
        ("harness", before.harness_version, after.harness_version),
        *(
            (name.removeprefix(_FACT), *(_WORDS[bool(each[name])] for each in facts))
            for name in facts[0]
            if name.startswith(_FACT) and name in facts[1]
        ),
    )
    return [
        Change(Cause.ENVIRONMENT, Direction.NEUTRAL, "", what, old, new)
        for what, old, new in pairs
        if old != new
    ]


def _suite(before: Side, after: Side) -> list[Change]:
    changes = []
    for name in sorted(set(before.results) | set(after.results)):
        old, new = name in before.results, name in after.results
        if old and new and not _same_text(before, after, name):
            changes.append(
                Change(Cause.SUITE, Direction.NEUTRAL, name, "scenario", "as it was", "rewritten")
            )
        elif old != new:
            words = ("there", "not there")
            changes.append(
                Change(
                    Cause.SUITE, Direction.NEUTRAL, name, "scenario", words[not old], words[not new]
                )
            )
    return changes


def _scenario(before: Side, after: Side, name: str, cause: Cause, chance: _Chance) -> list[Change]:
    old, new = before.results[name], after.results[name]
    if old.status is not new.status:
        return [
            Change(
                cause,
                _direction(old.status, new.status),
                name,
                "verdict",
                _verdict(old),
                _verdict(new),
            ),
            *_inside(before, after, name, cause, chance),
        ]
    if _RANK[old.status] is None:
        return []
    return [*_rates(old, new, cause, chance), *_inside(before, after, name, cause, chance)]


def _direction(old: Status, new: Status) -> Direction:
    old_rank, new_rank = _RANK[old], _RANK[new]
    if new_rank is None:
        return Direction.LOST if old_rank is not None else Direction.NEUTRAL
    if old_rank is None or old_rank == new_rank:
        return Direction.NEUTRAL
    return Direction.REGRESSION if new_rank < old_rank else Direction.IMPROVEMENT


def _verdict(result: Result) -> str:
    return f"{result.status}: {result.message}" if result.message else str(result.status)


def _rates(old: Result, new: Result, cause: Cause, chance: _Chance) -> list[Change]:
    changes = []
    olds = {rate.rule: rate.failures for rate in old.rates}
    for rate in new.rates:
        a, b = olds.get(rate.rule), rate.failures
        if a is None or not a.n or not b.n:
            continue
        p_value = chance.of(a.hits, a.n, b.hits, b.n)
        worse = Direction.REGRESSION if b.rate > a.rate else Direction.IMPROVEMENT
        what = f"rate of failures of {rate.rule}"
        changes.append(Change(cause, worse, old.id, what, str(a), str(b), p_value))
    return changes


def _inside(before: Side, after: Side, name: str, cause: Cause, chance: _Chance) -> list[Change]:
    """What lies inside the verdict.

    A scenario that was recorded once says only what its rules looked at, and what is steady:
    whatever else one recording shows (who had been reaped when it ended) may be otherwise next
    time.
    """
    old, new = before.results[name], after.results[name]
    if min(old.repeats, new.repeats) < ORDER_REPEATS:
        return [*_findings(old, new, cause), *_steady(before, after, name, cause)]
    changes: list[Change] = []
    sides = [(side.statements.get(name, {}), side) for side in (before, after)]
    for what in sorted({what for each, _ in sides for what in each}):
        was, now = (_with_absent(each.get(what), _recorded(side, name)) for each, side in sides)
        changes += _shares(name, what, was, now, cause, chance)
    old_orders, new_orders = before.orders.get(name, {}), after.orders.get(name, {})
    for pair in sorted(set(old_orders) & set(new_orders)):
        was, now = old_orders[pair], new_orders[pair]
        if {_always(was), _always(now)} == {"before", "after"}:
            first, _, second = pair.partition(", ")
            then, since = (f"{first} {_always(each)} {second}" for each in (was, now))
            p_value = chance.of(was["before"], was.total(), now["before"], now.total())
            changes.append(Change(cause, Direction.NEUTRAL, name, "order", then, since, p_value))
    return changes


#: Statements that came out alike in nine pairs of runs of one bwrap (three subjects, 283
#: scenarios).  They were chosen by those very pairs, so a later pair may yet differ in one.
#: Not among them: ends of processes and files, and who is left, where somebody else ends the
#: recording; objects, where bwrap dies of what it reports.
_STEADY = re.compile(
    r"(lines on|fds of|fds seen by|environment of|marker|signals|locks at|connection at|outcome of|"
    r"step|capabilities of|no_new_privs of|seccomp of|uid_map of|gid_map of)\b"
)


def _steady(before: Side, after: Side, name: str, cause: Cause) -> Iterator[Change]:
    """What both sides say of one recording and is no matter of chance, and differs."""
    olds, news = (side.statements.get(name, {}) for side in (before, after))
    # What was not recorded on one side (it was skipped there) says nothing about the other.
    for what in sorted(set(olds) | set(news)) if olds and news else ():
        if _STEADY.match(what):
            was, now = (_always(each.get(what, _NOTHING)) for each in (olds, news))
            if was is not None and now is not None and was != now:
                yield Change(cause, Direction.NEUTRAL, name, what, was, now)


#: What differs between two recordings of the same thing: times, counts of reads and bytes, pids.
_VARYING = re.compile(r"-?\d+(\.\d+)? ms|\d+ bytes|\d+ read\(s\)|\d{4,}|/\S*/s[0-9a-f]{6,}")
#: Rules that leave open what is seen: such a number, or how a process ends that may end anyhow.
_LEFT_OPEN = re.compile(r"= (pid|inode) of|^\S+ ends$")


def _findings(old: Result, new: Result, cause: Cause) -> list[Change]:
    """Rules that came out alike and yet saw something else."""
    olds = {finding.rule: finding for finding in old.findings}
    changes = []
    for finding in new.findings:
        was = olds.get(finding.rule)
        if was is None or _LEFT_OPEN.search(finding.expected):
            continue
        then, now = (_VARYING.sub("N", each.observed) for each in (was, finding))
        if then != now:
            what = f"seen by {finding.rule}"
            direction = Direction.NEUTRAL
            changes.append(Change(cause, direction, old.id, what, was.observed, finding.observed))
    return changes


_NOTHING = Counter({"nothing": 1})


def _always(values: Counter[str]) -> str | None:
    """The one value that was seen in every repeat, or None."""
    seen = [value for value, count in values.items() if count]
    return seen[0] if len(seen) == 1 else None


def _shares(
    name: str, what: str, old: Counter[str], new: Counter[str], cause: Cause, chance: _Chance
) -> Iterator[Change]:
    """The values of a statement that were seen more or less often."""
    if old == new:
        return
    values = sorted(set(old) | set(new))
    # Of two values the share of one says all.
    for value in values if len(values) > 2 else values[:1]:
        a, b = wilson(old[value], old.total()), wilson(new[value], new.total())
        then, since = _always(old), _always(new)
        if then is None or since is None:
            then, since = f"{value} in {a}", f"{value} in {b}"
        p_value = chance.of(a.hits, a.n, b.hits, b.n)
        yield Change(cause, Direction.NEUTRAL, name, what, then, since, p_value)


def _recorded(side: Side, name: str) -> int:
    return max(1, side.results[name].repeats)


def _with_absent(values: Counter[str] | None, n: int) -> Counter[str]:
    full = Counter(values or {})
    if full.total() < n:
        full["nothing"] += n - full.total()
    return full
