"""Conformance and test harness for bubblewrap (bwrap) supervision.

Read ``harness.pipeline`` for the run in order, ``harness.model.timeline`` for what passes from
doing to judging, ``harness.agent`` for what happens beside a sandbox.  This module imports
nothing, so that the agent can be loaded by the old interpreters of old images.
"""

__version__ = "0.1.0"
