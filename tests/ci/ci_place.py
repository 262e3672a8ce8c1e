"""A runner of other people's CI, as far as a test needs one: a workspace, and who starts a step.

Nothing here imports the harness: the tests of this folder see what a user of the action sees.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHECKOUT = Path(__file__).resolve().parents[2]
#: As GitHub's runner starts the shell of a step (ScriptHandlerHelpers.cs in actions/runner).
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
#: Nothing here takes a tenth of it; a loaded machine may.
PATIENCE_S = 110.0

CONTRACT = """\
- id: T-1
  family: test
  sentence: "What a test claims."
  source: "tests/ci"
"""

PASSES = """\
id: own.{name}
title: The exit status of a command is the one it gave
clauses: [T-1]
sandbox:
  command: {{shell: "exit 7"}}
expect:
  - exit: {{of: monitor, code: {code}}}
"""

#: Tells through a FIFO that it runs, and then runs until somebody ends it.
LONG = """\
id: own.long
title: The command of this scenario runs until it is ended
clauses: [T-1]
sandbox:
  command: {{shell: "echo ran >'{fifo}'; touch $SCRATCH/ran; sleep 300"}}
steps:
  - wait: {{marker: ran}}
    trigger: true
  - wait: {{exit: monitor}}
    within: 100s
expect:
  - ran: ran
"""

#: A bwrap that is refused while a file says 1, as all of them are by a knob that this kernel lacks.
GUARDED_BWRAP = """\
#!/bin/sh
if [ "$1" != --version ] && [ "$(cat '{knob}')" != 0 ]; then
    echo 'bwrap: setting up uid map: Permission denied' >&2
    exit 1
fi
exec '{bwrap}' "$@"
"""

#: sudo, as far as the script uses it: no password, and nothing of the environment is kept.
SUDO = """\
#!/bin/sh
[ "$1" = -n ] && shift
printf '%s\\n' "$*" >>'{log}'
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


@dataclasses.dataclass(frozen=True)
class Stepped:
    """What came of one step: its exit code, its log, its outputs, and its summary."""

    code: int
    log: str
    outputs: Mapping[str, str]
    summary: str

    def annotations(self, kind: str) -> list[str]:
        """The texts of the annotations of one kind, as GitHub shows them."""
        found = re.findall(rf"^::{kind} [^:]*::(.*)$", self.log, re.M)
        return [text.replace("%0A", "\n").replace("%25", "%") for text in found]


def action() -> dict[str, Any]:
    """The action's own description."""
    loaded = YAML(typ="safe").load(CHECKOUT / "action.yml")
    assert isinstance(loaded, dict)
    return loaded


class Workspace:
    """The folder that a step runs in, with blanks in its path; every user can enter it."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="harness ci-", dir="/tmp"))
        self.base.chmod(0o755)
        self.path = self.base / "work space"
        self.temporary = self.base / "runner temp"
        self.programs = self.base / "bin"
        for folder in (self.path, self.temporary, self.programs):
            folder.mkdir()
        self.output = self.base / "output"
        self.summary = self.base / "summary"
        self.write("own scenarios/contract.yaml", CONTRACT)
        self.write("own scenarios/one.yaml", PASSES.format(name="one", code=7))

    def write(self, name: str, text: str) -> Path:
        """Write a file of the workspace; its path."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def program(self, name: str, text: str) -> Path:
        """Put a program in front of those that PATH has; its path."""
        path = self.programs / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        """The machine's environment, less what another CI has put into it."""
        foreign = ("GITHUB_", "RUNNER_", "ACTION_", "HARNESS_", "CI")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        for file in (self.output, self.summary):
            file.write_text("")
        return {
            **kept,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            **changes,
        }

    def command(self, script: str, prelude: Sequence[str] = ()) -> list[str]:
        """The command line of a step with that script."""
        file = self.base / "step.sh"
        file.write_text(script, encoding="utf-8")
        return [*prelude, *BASH, str(file)]

    def step(
        self, script: str, env: Mapping[str, str] | None = None, prelude: Sequence[str] = ()
    ) -> Stepped:
        """Run a script as a step; ``prelude`` is a command that ends in exec."""
        done = subprocess.run(
            self.command(script, prelude),
            cwd=self.path,
            env=self.environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return self.stepped(done.returncode, done.stdout)

    def stepped(self, code: int, log: str) -> Stepped:
        """What came of a step that has ended."""
        lines = self.output.read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in lines)
        assert len(outputs) == len(lines), lines
        return Stepped(code, log, outputs, self.summary.read_text())

    def action_step(
        self, inputs: Mapping[str, str], checkout: Path = CHECKOUT
    ) -> tuple[str, dict[str, str]]:
        """Script and environment of the action's step, as the runner makes them of the inputs.

        Unless told otherwise with the tests' own installation, and the workspace's scenarios.
        """
        described = action()
        (step,) = described["runs"]["steps"]
        given = {"venv": sys.prefix, "paths": "own scenarios", **inputs}
        assert given.keys() <= described["inputs"].keys()
        values = {
            name: given.get(name, each["default"]) for name, each in described["inputs"].items()
        }
        env = {"GITHUB_ACTION_PATH": str(checkout)}
        for name, text in step["env"].items():
            found = INPUT.fullmatch(text)
            assert found is not None, text
            env[name] = values[found[1]]
        return step["run"], env

    def act(
        self,
        inputs: Mapping[str, str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        prelude: Sequence[str] = (),
        checkout: Path = CHECKOUT,
    ) -> Stepped:
        """Run the action, as the runner would run it in a workflow."""
        script, mapped = self.action_step(inputs or {}, checkout)
        done = self.step(script, {**mapped, **(env or {})}, prelude)
        assert done.outputs["exit-code"] == str(done.code)
        assert not list(self.temporary.glob("harness-work-*")), "left in the temporary folder"
        return done

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.base)


def copy_checkout(target: Path) -> Path:
    """What a checkout of this version would have, without what only lies in the working tree."""
    for name in ("harness", "scenarios", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, target / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, target / name)
    return target


def without_user_namespaces() -> list[str]:
    """A prelude: in a user namespace whose max_user_namespaces is 0."""
    return [sys.executable, "-S", "-P", str(CHECKOUT / "tests/cli/cli_preludes.py"), "forbid"]


def with_closed_tun(told: Path) -> list[str]:
    """A prelude: in a mount namespace whose /dev/net/tun is root's alone.

    What mode it has at the end is written to the file ``told``.
    """
    script = (
        'told="$1"; shift; mount -t tmpfs none /dev/net; mknod -m 600 /dev/net/tun c 10 200\n'
        'code=0; "$@" || code=$?; stat -c %a /dev/net/tun >"$told"; exit "$code"'
    )
    return ["unshare", "-m", "sh", "-ec", script, "sh", str(told)]


def no_package_index(place: Workspace) -> bool:
    """Whether pip cannot get packages here, so that nothing can be said of an installation."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "setuptools"]
    command += ["--dest", str(place.base / "downloads")]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0
