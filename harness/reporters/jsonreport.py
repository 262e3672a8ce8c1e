"""The run as one JSON object, and back: what is stored, re-reported and read by other programs.

Nothing is cut or escaped for people here: :func:`parse` of :func:`render` gives the same run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from harness.model.timeline import Timeline
from harness.model.verdict import (
    Deviation,
    Finding,
    Held,
    Interval,
    Rate,
    Result,
    RunRecord,
    Status,
    Subject,
)

#: Version of the object; a reader refuses what it does not know instead of guessing.
FORMAT = 1

T = TypeVar("T")


def render(run: RunRecord, timelines: Mapping[tuple[str, str], Timeline] | None = None) -> str:
    """The run as one JSON object with ``run``, ``subjects`` and ``results``, in ASCII.

    ASCII because a lone surrogate (a byte of an argument that is not UTF-8) survives only as an
    escape.
    """
    del timelines  # they are stored beside this file; each result names its own
    whole = dataclasses.asdict(run)
    document = {
        "run": {"format": FORMAT}
        | {name: value for name, value in whole.items() if name not in ("subjects", "results")},
        "subjects": whole["subjects"],
        "results": [
            result | {"rates": [_with_rate(rate) for rate in result["rates"]]}
            for result in whole["results"]
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True, default=str) + "\n"


def _with_rate(rate: dict[str, Any]) -> dict[str, Any]:
    # For readers in other languages: the share, so that nobody divides by zero.
    interval = Interval(**rate["failures"])
    return rate | {"failures": rate["failures"] | {"rate": interval.rate}}


def parse(text: str) -> RunRecord:
    """The inverse of :func:`render`.  ValueError says what is wrong with the text.

    Members that this version does not know are ignored; a missing one is an error unless the model
    gives it a default.
    """
    document = json.loads(text)
    try:
        header = document["run"]
        if header["format"] != FORMAT:
            raise ValueError(f"stored run has format {header['format']!r}, expected {FORMAT}")
        whole = header | {
            "subjects": tuple(_build(Subject, subject) for subject in document["subjects"]),
            "results": tuple(_result(result) for result in document["results"]),
        }
        return _build(RunRecord, whole)
    except KeyError as fault:
        raise ValueError(f"stored run has no member {fault}") from fault
    except (TypeError, AttributeError) as fault:
        raise ValueError(f"not a stored run: {fault}") from fault


def _build(kind: Callable[..., T], raw: Mapping[str, Any]) -> T:
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in raw.items() if name in names})


def _result(raw: Mapping[str, Any]) -> Result:
    return _build(
        Result,
        dict(raw)
        | {
            "status": Status(raw["status"]),
            "tags": tuple(raw.get("tags", ())),
            "clauses": tuple(raw.get("clauses", ())),
            "refs": tuple(raw.get("refs", ())),
            "findings": tuple(_finding(finding) for finding in raw.get("findings", ())),
            "deviations": tuple(_build(Deviation, one) for one in raw.get("deviations", ())),
            "rates": tuple(_rate(rate) for rate in raw.get("rates", ())),
        },
    )


def _finding(raw: Mapping[str, Any]) -> Finding:
    known = {"held": Held(raw["held"]), "events": tuple(raw.get("events", ()))}
    return _build(Finding, dict(raw) | known)


def _rate(raw: Mapping[str, Any]) -> Rate:
    return _build(Rate, dict(raw) | {"failures": _build(Interval, raw["failures"])})
