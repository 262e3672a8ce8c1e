"""A running container as a place to start agents in, and why one of them was lost."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import IO, TYPE_CHECKING

import docker.errors

from harness.agent.startup import RELAYED
from harness.agent.watchdog import UNFIT
from harness.backends.connection import ENGINE_FAULTS, innermost
from harness.backends.local import AGENT_PROGRAM, NO_ROOM_TO_WORK
from harness.backends.stream import StreamAgent, Wire
from harness.errors import EnvironmentUnfit, HarnessError, RecordingLost

if TYPE_CHECKING:
    from harness.backends.docker import Engine

#: ``-S`` as in ``local``; ``-P`` is not known before Python 3.11, and the folder is our own.
AGENT_COMMAND = ("python3", "-S", "-u", *AGENT_PROGRAM, RELAYED)
#: How long a container may take to be gone after its stream was closed.
_GONE_DEADLINE_S = 10.0


class Container:
    """A running container: a backend, which starts agents in it.  ``close`` it."""

    def __init__(self, engine: Engine, name: str, container_id: str, wire: Wire) -> None:
        self._engine = engine
        self._name = name
        self.id = container_id
        self._wire = wire
        self._lock = threading.Lock()
        self._proved = False
        self._spare: StreamAgent | None = None

    def start_agent(self, *, stop_fd: int, log: IO[bytes]) -> StreamAgent:
        """An agent in an exec of its own.  RecordingLost when the container or engine is gone."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.log = log
            return spare
        try:
            exec_id, wire = self._engine.open_exec(self.id, AGENT_COMMAND)
        except ENGINE_FAULTS as fault:
            raise self._why_lost(None, innermost(fault)) from fault
        return StreamAgent(
            wire,
            stop_fd=stop_fd,
            log=log,
            why_lost=lambda said: self._why_lost(exec_id, said),
            has_ended=lambda limit_s: self._wait_ended(exec_id, limit_s),
        )

    def proved(self) -> None:
        """An agent has answered here: from now on, one that cannot start was lost."""
        self._proved = True

    def keep(self, agent: StreamAgent) -> None:
        """Keep an agent for the first worker that asks for one: its start takes a while."""
        self._spare = agent

    def look_up(self, user: str) -> tuple[int, int]:
        """The uid and gid of a user of the image, by name or number: passwd(5).

        EnvironmentUnfit when there is none of that name; a number needs no entry.
        """
        for line in self._engine.read_file(self.id, "/etc/passwd").decode().splitlines():
            fields = line.split(":")
            if len(fields) > 3 and user in (fields[0], fields[2]):
                return int(fields[2]), int(fields[3])
        if not user.isdecimal():
            raise EnvironmentUnfit(f"there is no user {user} in image:{self._name}")
        return int(user), int(user)

    def close(self) -> None:
        """End the container: its stdin hangs up, and the engine removes it."""
        if self._spare is not None:
            self._spare.close()
        self._wire.hang_up()
        deadline = time.monotonic() + _GONE_DEADLINE_S
        with contextlib.suppress(TimeoutError):
            while self._wire.read(deadline) is not None:
                pass  # the end of its output comes with its own
        self._wire.close()
        self._engine.remove(self.id)

    def _wait_ended(self, exec_id: str, limit_s: float) -> bool:
        """Whether an exec's process is gone; its streams have ended, so it is about to be."""
        deadline = time.monotonic() + limit_s
        with contextlib.suppress(*ENGINE_FAULTS):
            while self._engine.exec_state(exec_id)["Running"]:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)  # the API has nothing to wait on
        return True

    def _why_lost(self, exec_id: str | None, said: str) -> HarnessError:
        """What became of an agent whose stream has ended."""
        image = f"image:{self._name}"
        try:
            state = self._engine.container_state(self.id)
            if exec_id is not None:
                self._wait_ended(exec_id, 1.0)
            status = None if exec_id is None else self._engine.exec_state(exec_id).get("ExitCode")
        except docker.errors.NotFound:
            status = None
        except ENGINE_FAULTS:
            return RecordingLost(
                f"the docker engine at {self._engine.address} went away: what {image} had recorded "
                "is kept; start the engine and run it again"
            )
        quoted = f"; it said:\n{said}" if said else ""
        if state is None or not state.get("Running"):
            killed = " for want of memory" if state and state.get("OOMKilled") else ""
            return RecordingLost(f"the container of {image} has ended{killed}{quoted}")
        if not self._proved:
            return self._unfit(image, status, said)
        if status == UNFIT:
            return EnvironmentUnfit(f"{image}: {said}; {NO_ROOM_TO_WORK}")
        return RecordingLost(f"the agent in {image} has ended with status {status}{quoted}")

    def _unfit(self, image: str, status: int | None, said: str) -> EnvironmentUnfit:
        """Why no agent ever ran here: nearly always its interpreter."""
        last = said.splitlines()[-1] if said else "it said nothing"
        if status in (126, 127) or "executable file not found" in said:
            return EnvironmentUnfit(
                f"{image} has no python3, which the recorder runs on: add the package python3 to "
                "the image"
            )
        if "ModuleNotFoundError" in said or "No module named" in said:
            return EnvironmentUnfit(
                f"the python3 of {image} lacks a part of the standard library ({last}): install "
                "python3, not python3-minimal"
            )
        return EnvironmentUnfit(f"the recorder cannot run in {image} (status {status}): {last}")
