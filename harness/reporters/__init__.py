"""Reporters: pure functions from the results of a run to text, one module per format.

Every report has the signature ``render(run, timelines) -> str``; the key of ``timelines`` is
``(result.id, result.subject)`` and a missing timeline is fine.  ``terminal`` and ``github`` make
pieces instead of one document, and so have functions named for the pieces.

Nothing here touches the operating system, knows what time it is, or raises because a command under
test printed something strange: all text that came from outside goes through
:func:`harness.reporters.words.visible` before it reaches a reader.

Read next: ``words`` (how things are said), then the format that you need: ``terminal``, ``junit``,
``tap``, ``github``, ``jsonreport``, ``html`` (with ``matrix``, ``lanes`` and ``svg``).
"""
