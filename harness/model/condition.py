"""Conditions on what runs: ``bwrap <= 0.13.1 and uid != 0``.

Used by ``when:`` of expectations and known deviations, and by ``needs: bwrap``.  Terms are joined
by ``and``; there is no ``or`` (write two entries, each with its own reason).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

_TERM = re.compile(r"\s*([a-z][a-z0-9_.-]*)\s*(<=|>=|==|!=|<|>)\s*([A-Za-z0-9_.+~-]+)\s*")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
#: What a condition may ask about; ``doctor.NAME`` asks about one fact (true or false).
SUBJECTS = ("bwrap", "kernel", "uid")


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison."""

    name: str
    compare: str
    value: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Terms that must all hold.  ``text`` is how it was written."""

    text: str
    terms: tuple[Term, ...]

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds for ``facts``: ``bwrap`` and ``kernel`` versions, ``uid``, doctor facts.

        A fact that is not known makes a term false: a deviation is never assumed.
        """
        return all(_holds(term, facts) for term in self.terms)

    def __str__(self) -> str:
        return self.text


def parse_condition(text: Any) -> Condition:
    """Read a condition.  ValueError says which term is wrong and what was expected."""
    if not isinstance(text, str):
        raise ValueError('expected a condition such as "bwrap <= 0.13.1"')
    terms = []
    for part in re.split(r"\band\b", text):
        match = _TERM.fullmatch(part)
        if match is None:
            raise ValueError(
                f'cannot read "{part.strip()}": expected a term such as bwrap <= 0.13.1'
            )
        name, compare, value = match.groups()
        if name not in SUBJECTS and not name.startswith("doctor."):
            raise ValueError(
                f'unknown fact "{name}": expected {", ".join(SUBJECTS)} or doctor.NAME'
            )
        if name in ("bwrap", "kernel"):
            try:
                Version(value)
            except InvalidVersion:
                raise ValueError(f'"{value}" is not a version') from None
        if name == "uid" and not value.isdigit():
            raise ValueError(f'uid is compared with a number, not "{value}"')
        if name.startswith("doctor.") and value not in ("true", "false"):
            raise ValueError(f"{name} is compared with true or false")
        terms.append(Term(name, compare, value))
    return Condition(text.strip(), tuple(terms))


def _holds(term: Term, facts: Mapping[str, Any]) -> bool:
    known = facts.get(term.name)
    if known is None:
        return False
    if term.name in ("bwrap", "kernel"):
        found = leading_version(str(known))
        return found is not None and _COMPARE[term.compare](found, Version(term.value))
    if term.name == "uid":
        return _COMPARE[term.compare](int(known), int(term.value))
    return _COMPARE[term.compare](bool(known), term.value == "true")


def leading_version(text: str) -> Version | None:
    """The version at the start of ``text`` (``6.18.44-fc`` -> 6.18.44), or None."""
    match = re.match(r"\d+(\.\d+)*", text)
    return Version(match[0]) if match else None
