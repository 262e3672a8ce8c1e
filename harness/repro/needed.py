"""Which support functions and imports a script needs: those that its text names, and no others."""

from __future__ import annotations

import symtable
from collections.abc import Iterator, Sequence

#: What a script may import: modules of the standard library of Python 3.9.
MODULES = frozenset(
    [
        "collections",
        "contextlib",
        "ctypes",
        "fcntl",
        "glob",
        "itertools",
        "json",
        "os",
        "pty",
        "pwd",
        "re",
        "select",
        "shutil",
        "signal",
        "socket",
        "struct",
        "subprocess",
        "sys",
        "tempfile",
        "termios",
        "threading",
        "time",
    ]
)


def needed(library: Sequence[str], *roots: str) -> list[str]:
    """Those texts of the library that ``roots`` name, and that these name, in their order.

    A text is one or more definitions at the top level, which come and go together.
    """
    defined = [definitions(text) for text in library]
    names = set().union(*(globals_of(text) for text in roots))
    chosen: set[int] = set()
    while more := {n for n, each in enumerate(defined) if n not in chosen and each & names}:
        chosen |= more
        names = names.union(*(globals_of(library[number]) for number in more))
    return [text for number, text in enumerate(library) if number in chosen]


def imports(*texts: str) -> str:
    """The import statements for what these texts name, sorted."""
    names = set().union(*(globals_of(text) for text in texts))
    return "\n".join(f"import {name}" for name in sorted(names & MODULES))


def definitions(text: str) -> set[str]:
    """What a text defines at its top level."""
    top = symtable.symtable(text, "script", "exec")
    return {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}


def globals_of(text: str) -> set[str]:
    """The names that a text takes from elsewhere, or from its own top level."""
    return set(_globals(symtable.symtable(text, "script", "exec")))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_top or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)
