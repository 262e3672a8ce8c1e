"""A place to run the real ``harness`` in: a folder of its own, scenario files, what came of it.

Nothing here imports the harness: the tests below this folder see what a user sees.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CHECKOUT = Path(__file__).resolve().parents[2]
HARNESS = str(Path(sys.executable).with_name("harness"))
#: Nothing here takes a tenth of it; a loaded machine may.
PATIENCE_S = 90.0
#: What issue 2 allows between the end of the harness and the end of all that it started.
GONE_S = 2.0

CONTRACT = """\
- id: T-1
  family: test
  sentence: "What a test claims."
  source: "tests/cli"
"""

PASSES = """\
id: good.{name}
title: The exit status of a command is the one it gave
clauses: [T-1]
tags: [{tag}]
sandbox:
  command: {{shell: "exit 7"}}
expect:
  - exit: {{of: monitor, code: 7}}
"""

FAILS = """\
id: bad.status
title: The exit status of a command is one that it did not give
clauses: [T-1]
tags: [wrong]
sandbox:
  command: {shell: "exit 7"}
expect:
  - exit: {of: monitor, code: 8}
"""

#: Its stimulus never comes, so nothing was shown: no verdict.
UNDECIDED = """\
id: bad.undecided
title: A stimulus that is never carried out decides nothing
clauses: [T-1]
sandbox:
  command: {shell: "test -z $SCRATCH && touch $SCRATCH/never; exit 7"}
steps:
  - wait: {marker: never}
    within: 100ms
    trigger: true
expect:
  - exit: {of: monitor, code: 7}
"""

#: Runs until somebody ends it: the command sleeps for longer than any test may take.
LONG = """\
id: long.{name}
title: The command of this scenario runs until it is ended
clauses: [T-1]
sandbox:
  command: {{shell: "touch $SCRATCH/ran; sleep 300"}}
steps:
  - wait: {{marker: ran}}
    trigger: true
  - wait: {{exit: monitor}}
    within: 100s
expect:
  - ran: ran
"""


def passes(name: str, tag: str = "plain") -> str:
    """A scenario that passes on every bwrap."""
    return PASSES.format(name=name, tag=tag)


def several(*scenarios: str) -> str:
    """Several scenarios in one file."""
    return "---\n".join(scenarios)


@dataclass(frozen=True)
class Ran:
    """What came of one command."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be JSON and nothing but that."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one message of an error; fails when there is not exactly one."""
        found = [line for line in self.err.splitlines() if line.startswith("harness: ")]
        assert len(found) == 1, self.err
        return found[0]


class Started:
    """A harness that is running."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.process = process
        self._errors = errors

    def finish(self, within_s: float = PATIENCE_S) -> Ran:
        """Wait for its end."""
        try:
            out, _ = self.process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        finally:
            self._errors.seek(0)
            err = self._errors.read().decode("utf-8", "surrogateescape")
            self._errors.close()
        assert "Traceback" not in err, err
        assert "Exception ignored" not in err, err
        return Ran(self.process.returncode, out, err)


class Place:
    """A folder that every user can enter, with a contract; the working directory of all runs."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="harness-cli-", dir="/tmp"))
        self.path.chmod(0o755)
        self.temporary = self.path / "tmp"
        self.temporary.mkdir()
        self.reports = self.path / "reports"
        self.write("contract.yaml", CONTRACT)

    def write(self, name: str, text: str) -> Path:
        """Write a file; its path."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, text: str) -> str:
        """Write an executable file; its path as a subject."""
        path = self.write(name, text)
        path.chmod(0o755)
        return f"path:{path}"

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str | None] | None = None,
        prelude: Sequence[str] = (),
        program: Sequence[str] = (HARNESS,),
        stdout: int = subprocess.PIPE,
    ) -> Started:
        """Start ``harness ARGUMENTS``; ``prelude`` is a command that ends in exec."""
        errors = tempfile.TemporaryFile(dir=self.path)  # noqa: SIM115
        process = subprocess.Popen(
            [*prelude, *program, *arguments],
            cwd=self.path,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            start_new_session=True,
        )
        return Started(process, errors)

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The environment of a plain shell, with some changes; None takes a variable away."""
        plain = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/",
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.temporary),
            "PYTHONWARNINGS": "error",
        }
        merged: dict[str, str | None] = {**plain, **(changes or {})}
        return {name: value for name, value in merged.items() if value is not None}

    def run(self, *arguments: str, **how: Any) -> Ran:
        """Run ``harness ARGUMENTS`` to its end."""
        return self.start(*arguments, **how).finish()

    def results(self, run: str = "latest") -> dict[str, str]:
        """The status of every case of a stored run."""
        stored = json.loads((self.reports / run / "results.json").read_text())
        return {each["id"]: each["status"] for each in stored["results"]}

    def runs(self) -> list[str]:
        """The ids of the runs that are kept, oldest first."""
        if not self.reports.is_dir():
            return []
        return sorted(each.name for each in self.reports.iterdir() if each.name[0].isdigit())

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.path)


def side_by_side(jobs: Iterable[Callable[[], Ran]]) -> list[Ran]:
    """Run several commands, as many at once as there are cores, and one more."""
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        return [each.result() for each in [pool.submit(job) for job in jobs]]


def wait_until(met: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Look until it is so; fails at the deadline."""
    deadline = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)  # between two looks at what has no fd to wait on


def recorded(place: Place, text: str) -> bool:
    """Whether some recording below the newest run says ``text``."""
    return any(
        text in each.read_text(errors="replace")
        for each in place.reports.glob("*/timelines/*/*.jsonl")
    )


# --- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A line of /proc/PID/stat."""

    pid: int
    name: str
    state: str
    parent: int


def processes() -> list[Process]:
    """Every process there is."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            text = Path("/proc", entry, "stat").read_text(errors="replace")
            head, _, rest = text.rpartition(")")  # the name may hold blanks and parentheses
            state, parent = rest.split()[:2]
            found.append(Process(int(entry), head.partition("(")[2], state, int(parent)))
    return found


def below(ancestor: int) -> list[Process]:
    """Every descendant of a process, zombies as well."""
    every = processes()
    family = {ancestor}
    found: list[Process] = []
    while True:
        more = [each for each in every if each.parent in family and each.pid not in family]
        if not more:
            return found
        found += more
        family |= {each.pid for each in more}


def living() -> list[Process]:
    """What lives below the test process; a zombie only waits for somebody to collect it."""
    return [each for each in below(os.getpid()) if each.state not in "ZX"]


def sweep() -> list[Process]:
    """What is left below the test process after GONE_S; it is killed then.

    The test process is a subreaper, so whatever outlived its parent has come here.
    """
    deadline = time.monotonic() + GONE_S
    while True:
        _reap()
        left = below(os.getpid())
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    for each in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    if left:
        wait_until(lambda: not _reap() and not below(os.getpid()))
    return left


def _reap() -> bool:
    """Collect every dead child; False, for use in a condition."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return False
