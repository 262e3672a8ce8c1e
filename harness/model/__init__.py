"""Data, and nothing but data: what a scenario is, what a recording is, what a verdict is.

``timeline`` is the centre: the only thing that passes from doing to judging.  ``timeline`` is
standard library only and runs on Python 3.9, because the agent writes it inside old images; the
other modules here are for the harness side.  This file imports nothing for the same reason.
"""
