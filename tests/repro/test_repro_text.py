"""The text of a script: Python 3.9, the standard library, and nothing that is not used."""

from __future__ import annotations

import ast
import builtins
import functools
import symtable
import sys

import pytest
from repro_place import by_id, script_of

from harness.errors import UsageError
from harness.repro.check_snippets import CHECK_OFTEN, CHECKING
from harness.repro.condition import VERSION, VERSION_OF
from harness.repro.needed import globals_of
from harness.repro.proc_snippets import ASKING
from harness.repro.snippets import ACTING


@functools.cache
def scripts() -> dict[str, str]:
    """Every script that can be written, by the scenario's id."""
    found = {}
    for scenario_id in by_id():
        try:
            found[scenario_id] = script_of(scenario_id)
        except UsageError:
            continue
    return found


def test_most_scenarios_have_a_script() -> None:
    assert len(scripts()) >= 249


def test_scripts_are_python_3_9() -> None:
    for scenario_id, text in scripts().items():
        ast.parse(text, scenario_id, feature_version=(3, 9))
        compile(text, scenario_id, "exec")


def test_scripts_import_the_standard_library_alone_and_only_what_they_use() -> None:
    for scenario_id, text in scripts().items():
        tree = ast.parse(text)
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)], scenario_id
        assert imported <= set(sys.stdlib_module_names), scenario_id
        used = globals_of(text)
        assert imported <= used, f"{scenario_id} imports {imported - used} and does not use it"


def test_every_definition_of_a_script_is_used_and_every_name_is_defined() -> None:
    for scenario_id, text in scripts().items():
        top = symtable.symtable(text, scenario_id, "exec")
        defined = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
        imported = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_imported()}
        used = globals_of(text)
        assert defined <= used, f"{scenario_id}: {defined - used} is never used"
        unknown = used - defined - imported - set(dir(builtins))
        assert unknown <= {"__name__"}, f"{scenario_id}: {unknown} is not defined"


def test_every_support_function_is_used_by_some_script() -> None:
    everything = "\n".join(scripts().values())
    for text in (*ASKING, *ACTING, *CHECKING, CHECK_OFTEN, VERSION, VERSION_OF):
        assert text in everything


def test_lines_are_not_too_long_to_read() -> None:
    for scenario_id, text in scripts().items():
        # A word that has no blank in it, such as an address, cannot be broken.
        long = [line for line in text.splitlines() if len(line) > 100 and " " in line.strip()]
        assert long == [], scenario_id


@pytest.mark.parametrize("scenario_id", sorted(by_id()))
def test_a_scenario_has_a_script_or_a_reason(scenario_id: str) -> None:
    if scenario_id in scripts():
        assert by_id()[scenario_id].scenario.title in scripts()[scenario_id]
        return
    with pytest.raises(UsageError) as refusal:
        script_of(scenario_id)
    assert str(refusal.value).startswith(f"no script can be written for {scenario_id}: ")
    assert f"harness run -k {scenario_id}" in str(refusal.value)
