"""What is told while a run goes on: one line a case, and a bar on a terminal.

Lines go to stderr.  On a terminal the bar shows the running scenario and the elapsed time; in a
CI log nothing moves the cursor.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from harness.model.timeline import Timeline
from harness.model.verdict import Result, Status
from harness.reporters import terminal


def tell_line(text: str) -> None:
    """Words for people, to stderr.  Where nobody reads them any more, the run still goes on."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # What is left in the buffer would fail once more at the end, and change the exit code.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())


class Progress:
    """Implements the pipeline's Watcher.  Use as a context manager around the recording."""

    def __init__(self, total: int, style: terminal.Style, quiet: bool) -> None:
        self._style = style
        self._quiet = quiet
        # Said here, because rich would take FORCE_COLOR for a terminal and move its cursor.
        self._console = Console(
            file=sys.stderr,
            highlight=False,
            markup=False,
            soft_wrap=True,
            force_terminal=sys.stderr.isatty(),
            no_color=not style.color,
        )
        self._bar = Bar(
            TextColumn("{task.fields[running]}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal or quiet,
        )
        self._task = self._bar.add_task("", total=total, running="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _fault: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def case_started(self, scenario_id: str, subject: str) -> None:
        """A worker took up a scenario."""
        self._bar.update(self._task, running=f"{scenario_id} [{subject}]")

    def case_finished(self, result: Result, timeline: Timeline | None) -> None:
        """A scenario has its verdict."""
        del timeline
        self._bar.advance(self._task)
        settled = result.status in (Status.PASS, Status.KNOWN, Status.SKIP)
        if self._quiet and settled:
            return
        line = terminal.case_line(result, self._style)
        if self._bar.disable:
            tell_line(line)
        else:
            # Already coloured and escaped by the reporter; rich only has to keep the bar below it.
            self._console.out(line, highlight=False)
