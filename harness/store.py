"""Where a run is kept: one folder a run, written as it happens.

    reports/RUN-ID/
        run.json            what was run on what, written before anything runs
        scenarios.json      the scenarios as they were, so that old recordings can be judged again
        timelines/SUBJECT/SCENARIO.jsonl
                            the recordings, line by line as they came; one after the other
        results.json, junit.xml, report.html
                            written at the end, and again by ``harness report``
        agent.log           what agents said on stderr: empty unless something of ours failed
    reports/latest          a link to the newest run's folder

Everything but the timelines is written to a temporary file first and renamed, so that a reader
never sees half of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from harness.errors import ReportNotWritten, UsageError
from harness.model.timeline import Timeline, read_timelines
from harness.model.verdict import RunRecord
from harness.reporters import jsonreport

LATEST = "latest"
RESULTS = "results.json"


def subject_slug(spec: str) -> str:
    """A subject's name as a file name; different subjects of one run stay different."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", spec).strip("-.")
    if slug and slug == spec:
        return slug
    # path:/a/b and path:/a-b read the same by now: one would be judged by the other's recording.
    return f"{slug[-80:]}-{zlib.crc32(os.fsencode(spec)):08x}"


class RunFolder:
    """The folder of one run.  Every OSError becomes ReportNotWritten with the path and a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, reports: Path, run_id: str) -> RunFolder:
        """Make the folder of a new run; two runs at once get two folders."""
        path = reports / run_id
        with _explained(path):
            path.mkdir(parents=True)
            (path / "timelines").mkdir()
        return cls(path)

    @classmethod
    def open(cls, given: Path, reports: Path) -> RunFolder:
        """An existing run: a folder, its id, or ``latest``.  UsageError when there is none."""
        for path in (given, reports / given):
            if (path / "run.json").is_file():
                return cls(path.resolve())
        raise UsageError(
            f"no run at {given}: expected a folder with run.json, such as reports/latest"
        )

    def write(self, name: str, text: str) -> Path:
        """Write one file as a whole.  Lone surrogates, which no encoding has, become escapes."""
        path = self.path / name
        with _explained(path):
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                draft.write_text(text, encoding="utf-8", errors="backslashreplace")
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        return path

    def write_json(self, name: str, value: Any) -> Path:
        """Write a value as JSON."""
        return self.write(name, json.dumps(value, indent=1) + "\n")

    def read_json(self, name: str, *, members: Sequence[str] = ()) -> Any:
        """Read what :meth:`write_json` wrote.

        UsageError when it is not there or not JSON, or is not an object with these members.
        """
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise UsageError(f"{path} cannot be read: {fault}") from fault
        missing = [each for each in members if not isinstance(value, dict) or each not in value]
        if missing:
            raise UsageError(f"{path} is not what a run stores: it lacks {', '.join(missing)}")
        return value

    def agent_log(self) -> IO[bytes]:
        """The file for what agents say on stderr; the caller closes it."""
        path = self.path / "agent.log"
        with _explained(path):
            return path.open("a+b")

    def timeline_name(self, subject: str, scenario_id: str) -> str:
        """The recordings of one scenario on one subject, relative to this folder."""
        return f"timelines/{subject_slug(subject)}/{scenario_id}.jsonl"

    def timeline_path(self, name: str) -> Path:
        """The file that takes the recordings of one scenario; its folder is made here."""
        path = self.path / name
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def timelines(self, name: str) -> Iterator[Timeline]:
        """The recordings in one file, one by one; none when there is no such file."""
        path = self.path / name
        if path.is_file():
            try:
                with path.open(encoding="utf-8") as file:
                    yield from read_timelines(file)
            except (OSError, ValueError) as fault:
                raise UsageError(f"{path} cannot be read: {fault}") from fault

    def timeline(self, name: str, repeat: int) -> Timeline | None:
        """One recording, or None."""
        for index, timeline in enumerate(self.timelines(name)):
            if index == repeat:
                return timeline
        return None

    def results(self) -> RunRecord | None:
        """The stored results; None when the run never got as far as writing them."""
        path = self.path / RESULTS
        if not path.is_file():
            return None
        try:
            return jsonreport.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise UsageError(f"{path} cannot be read: {fault}") from fault

    def point_latest(self) -> None:
        """Let ``latest`` point here, in one step; a reports folder without links goes without."""
        link = self.path.parent / LATEST
        draft = self.path.parent / f".{LATEST}.{os.getpid()}"
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            draft.symlink_to(self.path.name)
            try:
                draft.replace(link)
            finally:
                draft.unlink(missing_ok=True)  # still there when latest is a folder


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise ReportNotWritten(
            f"cannot write {fault.filename or path}: {fault.strerror}; "
            "choose another folder with --reports, or make room"
        ) from fault


def write_output(target: str, text: str, *, append: bool = False) -> None:
    """Write a report where the user asked for it; the caller prints what goes to ``-``."""
    path = Path(target)
    with _explained(path):
        if path.parent != Path():
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = "a" if append else "w"
        with path.open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def record_of_run(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The members of ``run.json`` that are also those of a RunRecord."""
    names = (
        "run_id", "harness_version", "started_at", "hostname", "command", "seed", "hidden",
        "contract",
    )  # fmt: skip
    return {name: meta[name] for name in names}
