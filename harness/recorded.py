"""A stored run as something to compare: one :class:`harness.compare.Side` a subject.

This is where ``compare`` meets the disk; the comparing itself is pure.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness.archive import judge_again
from harness.compare import Side
from harness.errors import UsageError
from harness.model.verdict import RunRecord, Subject
from harness.signature import certain_orders, signature
from harness.store import RunFolder


def open_side(given: str, reports: Path) -> Side:
    """``RUN`` or ``RUN@SUBJECT``, where RUN is a folder, a run's id, or ``latest``.

    UsageError when there is no such run or subject, or when the run has several subjects and none
    is named.
    """
    name, _, wanted = given.partition("@")
    folder = RunFolder.open(Path(name), reports)
    record = folder.results() or judge_again(folder)
    subject = _choose(record, wanted, given)
    results = {r.id: r for r in record.results if r.subject == subject.spec}
    statements: dict[str, dict[str, Counter[str]]] = {}
    orders: dict[str, dict[str, Counter[str]]] = {}
    for result in results.values():
        for timeline in folder.timelines(result.timeline) if result.timeline else ():
            _count(statements.setdefault(result.id, {}), signature(timeline))
            _count(orders.setdefault(result.id, {}), certain_orders(timeline))
    return Side(
        label=f"{record.run_id}@{subject.spec} (bwrap {subject.version})",
        subject=subject,
        hostname=record.hostname,
        harness_version=record.harness_version,
        results=results,
        digests={
            entry["scenario"]["id"]: entry["sha256"] for entry in folder.read_json("scenarios.json")
        },
        statements=statements,
        orders=orders,
    )


def _choose(record: RunRecord, wanted: str, given: str) -> Subject:
    specs = [subject.spec for subject in record.subjects]
    if not wanted and len(specs) == 1:
        return record.subjects[0]
    if wanted in specs:
        return record.subjects[specs.index(wanted)]
    problem = f"it has no subject {wanted}" if wanted else "it has several subjects"
    raise UsageError(f"{given}: {problem}: write RUN@SUBJECT with one of {', '.join(specs)}")


def _count(counters: dict[str, Counter[str]], values: dict[str, str]) -> None:
    for name, value in values.items():
        counters.setdefault(name, Counter())[value] += 1
