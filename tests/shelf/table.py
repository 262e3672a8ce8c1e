"""The published table of the shelf: which scenario catches which fake.

    python tests/shelf/table.py            regenerate README.md (some minutes)
    python tests/shelf/table.py --all      count among all scenarios (half an hour)
    python tests/shelf/table.py --fast     keep the counts that are published

What catches a fake is said in ``shelf_catalogue``, and the tests hold the harness to it.  How many
other scenarios notice something is counted here, among those of the table, or among all that are
the same each time and start no network provider.  A scenario counts when it comes out otherwise
than with the fake's control, which is made in the same way and has no defect, and does so twice:
a busy machine may be late once.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shelf_catalogue import (
    CAUGHT,
    CONTROLS,
    NOT_CAUGHT,
    RELAY,
    WAITER,
    Caught,
    defect_of,
)
from shelf_place import SHELF, identify, load_all, run_pairs, shelf_place, tools_of

from harness.model.verdict import Status

README = SHELF / "README.md"
JOBS = 8
_HEAD = """\
# The shelf

Bwraps that are broken on purpose, each in one way. Every one of them sandboxes, reports its version
and proves itself to be a bwrap, and every one is caught by the scenario whose clause it breaks:

| fake | defect | caught by | rule | clause | others |
|---|---|---|---|---|---|
"""
_FOOT = """\

*Others*: how many more scenarios come out otherwise than with a fake that is made in the same way
and has no defect, of {total} scenarios that were tried.

Two of the fakes are better than bwrap, not worse: a known deviation vanishes, and the scenario that
knows it says *unexpected pass*.

{not_caught}## How they are made

A fake takes the command line apart (`shelf_wrapping.py`), does one thing wrong to it, and executes
the real bwrap in its own place, so that the pid that the supervisor knows is bwrap's. There are
three kinds, and for each there is a control without a defect, which must come out of the scenario
that catches the fake as the real bwrap does:

- `faithful`: it executes bwrap. Some of these leave a process beside it that holds an fd or a lock;
  that process is no child of bwrap and is in a session of its own.
- `faithful-relay`: a process beside passes the status stream on, changed ({relays}).
- `faithful-waiter`: it runs bwrap as its child and waits for it, because its own exit status is to
  be wrong ({waiters}). child-pid is then no child of the pid that the supervisor knows: a second
  difference, which other scenarios notice in the control as well and which is not counted above.

None of them can tell whether SIGPIPE was ignored when it was started, since Python ignores it
before the first line runs: the real bwrap always gets it at its default.

Regenerate this page with `python tests/shelf/table.py`; a test compares it with
`shelf_catalogue.py`.
"""
_ROW = re.compile(
    r"\| `([^`]+)` \| (.+?) \| `([^`]+)` \| (.*?) \| ([A-Z]+[0-9]?-[0-9]+) \| (.*?) \|"
)


def published() -> dict[str, tuple[str, str, str]]:
    """What the page says: fake -> defect, scenario, clause."""
    return {row[1]: (row[2], row[3], row[5]) for row in _ROW.finditer(README.read_text())}


def _published_counts() -> tuple[dict[str, str], str]:
    text = README.read_text()
    total = re.search(r"of (\d+) scenarios that were tried", text)
    return {row[1]: row[6] for row in _ROW.finditer(text)}, total[1] if total else "0"


Pair = tuple[str, str]  # scenario, fake


def count_others(fakes: Sequence[str], *, among_all: bool) -> tuple[dict[str, str], str]:
    """How many scenarios besides the one of the table notice each fake, and how many were tried."""
    in_table = {line.scenario for line in CAUGHT}
    scenarios = {
        name: each
        for name, each in load_all().items()
        if (name in in_table or among_all)
        and each.scenario.repeat == 1
        and not each.scenario.providers
    }
    lines = {line.fake: line for line in CAUGHT}
    with shelf_place() as place, tempfile.TemporaryDirectory(dir="/tmp") as reports:
        specs = {fake: place.subject(fake) for fake in (*CONTROLS, *fakes)}
        names = {spec: fake for fake, spec in specs.items()}
        targets = identify(specs.values(), place.identity, tools_of(scenarios.values()))

        def statuses(pairs: Iterable[Pair]) -> dict[Pair, str]:
            wanted = [(scenarios[scenario], targets[specs[fake]]) for scenario, fake in pairs]
            results = run_pairs(Path(reports), wanted, jobs=JOBS)
            return {(name, names[spec]): each["status"] for (name, spec), each in results.items()}

        control = statuses((name, fake) for name in scenarios for fake in CONTROLS)

        def noticed(pairs: Iterable[Pair]) -> list[Pair]:
            found = statuses(pairs).items()
            return [
                (name, fake)
                for (name, fake), status in found
                if control[name, lines[fake].held_against] in (Status.PASS, Status.KNOWN)
                and status != control[name, lines[fake].held_against]
            ]

        twice = noticed(noticed((name, fake) for name in scenarios for fake in fakes))
    others = [fake for name, fake in twice if name != lines[fake].scenario]
    return {fake: str(others.count(fake)) for fake in fakes}, str(len(scenarios))


def render(counts: Mapping[str, str], total: str) -> str:
    """The page."""
    rows = [
        f"| `{line.fake}` | {defect_of(line.fake)} | `{line.scenario}` | {_rule(line)} "
        f"| {line.clause} | {counts.get(line.fake, '')} |\n"
        for line in CAUGHT
    ]
    uncaught = [f"- `{fake}` ({defect_of(fake)}) {why}.\n" for fake, why in NOT_CAUGHT.items()]
    foot = _FOOT.format(
        total=total,
        not_caught="Caught by no scenario so far:\n\n" + "".join(uncaught) + "\n"
        if uncaught
        else "",
        relays=_names(RELAY),
        waiters=_names(WAITER),
    )
    return _HEAD + "".join(rows) + foot


def _rule(line: Caught) -> str:
    return f"`{line.rule}`" if line.rule else "(unexpected pass)"


def _names(control: str) -> str:
    return f"{sum(line.held_against == control for line in CAUGHT)} of them"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="keep the published counts")
    parser.add_argument("--all", action="store_true", help="count among all scenarios")
    parser.add_argument("fakes", nargs="*", help="count these anew (default: all)")
    arguments = parser.parse_args()
    counts, total = _published_counts() if README.exists() else ({}, "0")
    if not arguments.fast:
        fakes = arguments.fakes or [line.fake for line in CAUGHT]
        fresh, total = count_others(fakes, among_all=arguments.all)
        counts |= fresh
    README.write_text(render(counts, total))


if __name__ == "__main__":
    main()
