"""What an fd probe sees of a process that is still on its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_client import Agent, make_plan

from harness.model.timeline import Kind

#: Busy for some 10 ms with fd 3 open, as a loader is with a library; then it waits without.
BUSY = (
    "exec 3</dev/null; touch $SCRATCH/ran; i=0; "
    "while [ $i -lt 20000 ]; do i=$((i+1)); done; exec 3<&-; read x"
)


@pytest.fixture
def agent(temporary_folder: Path) -> Iterator[Agent]:
    """An agent that is ended, whatever the test did to it."""
    client = Agent(temporary_folder)
    yield client
    client.close()


def test_an_fd_probe_waits_until_the_process_does(agent: Agent, bwrap: str) -> None:
    plan = make_plan(
        bwrap,
        sandbox={"command": {"shell": BUSY}, "channels": {"input": {"option": "stdin"}}},
        steps=[
            {"wait": {"marker": "ran"}, "trigger": True},
            {"probe": {"fds": "command"}},
        ],
    )
    (probed,) = agent.record(plan).of(Kind.FDS_PROBED)
    assert sorted(probed.data["fds"]) == ["0", "1", "2"]
