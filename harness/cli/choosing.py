"""Which scenarios a command is about: paths, ids and filters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.cli.voice import tell
from harness.errors import HarnessError, ScenarioFilesInvalid, UsageError
from harness.loader import Loaded, LoadedScenario, Problem, load_leniently, nearest
from harness.model.verdict import Status
from harness.selection import Filters, Selection
from harness.store import LATEST, RunFolder


def load(paths: Sequence[str]) -> tuple[Loaded, tuple[Problem, ...], set[str]]:
    """Load the paths; ``FILE::ID`` loads the file and asks for that id."""
    wanted = {path.partition("::")[2] for path in paths if "::" in path}
    files = list(dict.fromkeys(Path(path.partition("::")[0]) for path in paths))
    loaded, problems = load_leniently(files)
    for missing in sorted(wanted - {each.scenario.id for each in loaded.scenarios}):
        raise _no_such(missing, loaded, problems)
    return loaded, problems, wanted


def find(scenario_id: str, paths: Sequence[str]) -> tuple[Loaded, LoadedScenario]:
    """The one scenario that a command is about, and all that it was loaded with."""
    loaded, problems, _wanted = load(paths or ["scenarios"])
    for each in loaded.scenarios:
        if each.scenario.id == scenario_id:
            return loaded, each
    raise _no_such(scenario_id, loaded, problems)


def _no_such(missing: str, loaded: Loaded, problems: Sequence[Problem]) -> HarnessError:
    """Why there is no scenario of that id: a typing error, or a file that cannot be loaded."""
    close = nearest(missing, [each.scenario.id for each in loaded.scenarios])
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    text = f"there is no scenario {missing} in what was given{hint}"
    if not problems:
        return UsageError(text)
    told = "\n\n".join(str(problem) for problem in problems)
    return ScenarioFilesInvalid(f"{text}; it may be in a file that cannot be loaded:\n\n{told}")


def filters_of(arguments: argparse.Namespace, wanted: set[str]) -> Filters:
    failed: frozenset[str] | None = None
    if arguments.rerun_failed:
        reports = Path(arguments.reports)
        last = RunFolder.open(Path(LATEST), reports).results()
        if last is None:
            raise UsageError("the last run has no results yet: nothing to rerun")
        settled = (Status.PASS, Status.KNOWN, Status.SKIP)
        failed = frozenset(r.id for r in last.results if r.status not in settled)
    return Filters(
        ids=frozenset(wanted) if wanted else None,
        pattern=arguments.pattern,
        tags=tuple(arguments.tag),
        without_tags=tuple(arguments.exclude_tag),
        rerun=failed,
        shard=arguments.shard,
    )


def tell_hidden(chosen: Selection) -> None:
    for what, count in chosen.hidden.items():
        if count:
            tell(f"{what} hid {count} scenario(s)")
