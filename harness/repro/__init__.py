"""``harness repro``: a scenario as a short Python script that stands alone.

A scenario of the model goes in, the text of a script comes out that a bwrap maintainer can read
from top to bottom and run with nothing but Python and bwrap.  The statements are those that a
person would have written for this one scenario; nothing of the harness is carried along.  What no
script can say is refused, never left out.  Pure: it reads no files and starts nothing.

Read next: ``script`` (the whole), ``story`` (what it is about), ``steps`` and ``checks`` (one
function a verb), ``snippets`` (the support functions, each emitted only when it is used).
"""

from __future__ import annotations

from harness.repro.script import write_script

__all__ = ["write_script"]
