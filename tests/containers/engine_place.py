"""A docker engine of the tests' own, with roots of its own, ended by its own pid.

It has neither bridge nor firewall rules: no test needs the network, and the machine's is not ours.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker

CHECKOUT = Path(__file__).resolve().parents[2]
HARNESS = str(Path(sys.executable).with_name("harness"))
#: The image that most tests run in.
IMAGE = "debian-bookworm"
#: A loaded machine may take ten times as long as an idle one, for which these are plenty.
START_S = 60.0
PATIENCE_S = 240.0


def why_no_engine() -> str:
    """Why no engine can be started here, and what to do about it; empty when it can."""
    if os.geteuid() != 0:
        return "dockerd must be started by root: run the tests as root"
    for program, package in (("dockerd", "docker.io"), ("mmdebstrap", "mmdebstrap")):
        if shutil.which(program) is None:
            return f"{program} is missing: install the package {package}"
    return ""


class OwnEngine:
    """One dockerd.  ``start`` it, ``stop`` it; ``kill`` it to see what becomes of others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._pid = 0

    def command(self) -> list[str]:
        """What is started.  The folder is among its words: that is how it is told from others."""
        return [
            "dockerd",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/dockerd.pid",
            "--bridge=none",
            "--iptables=false",
            f"--host={self.address}",
        ]

    def start(self) -> str:
        """Start it and wait until it answers; returns why it did not, or an empty text.

        It is no child of the tests': each of them is asked whether it left one.
        """
        background = f"{shlex.join(self.command())} >>{self.folder}/engine.log 2>&1 & echo $!"
        told = subprocess.run(
            ["sh", "-c", background],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            check=True,
        )
        self._pid = int(told.stdout)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and Path(f"/proc/{self._pid}").exists():
            if self._answers():
                return ""
            time.sleep(0.05)  # dockerd tells nobody when it is ready
        tail = (self.folder / "engine.log").read_text(errors="replace").splitlines()[-3:]
        self.stop()
        return f"{self.command()[0]} does not start here: " + " / ".join(tail)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
            asking.settimeout(5)
            asking.connect(self.address.removeprefix("unix://"))
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(100)
        return False

    def client(self) -> Any:
        """A client of the SDK; the caller closes it."""
        return docker.DockerClient(base_url=self.address, version="auto", timeout=60)

    def containers(self) -> list[str]:
        """The ids of all containers there are, running or not."""
        client = self.client()
        try:
            return [each["Id"] for each in client.api.containers(all=True)]
        finally:
            client.close()

    def wait_for_no_container(self, limit_s: float) -> list[str]:
        """The containers that are left when there are none, or when the time is up."""
        deadline = time.monotonic() + limit_s
        while (left := self.containers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def kill(self) -> None:
        """SIGKILL, as the kernel does it when memory is short."""
        self._end(self._pid, signal.SIGKILL)
        (self.folder / "dockerd.pid").unlink(missing_ok=True)
        self._end_containerd()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Have it hang for a while: it takes connections, and answers none."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it in good order, and everything below it that did not end with it."""
        self._end(self._pid, signal.SIGTERM)
        self._end_containerd()
        for entry in os.listdir("/proc"):  # shims of containers that a failed test left
            if entry.isdecimal():
                self._end(int(entry), signal.SIGKILL)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            mounted = line.split()[1]
            if mounted.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)

    def _end_containerd(self) -> None:
        """dockerd starts one of its own, and does not always take it along.

        Its pid file must go too: one that is dead but not yet reaped looks alive to the next
        dockerd, which then waits for it to answer.
        """
        pid_file = self.folder / "exec/containerd/containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            self._end(int(pid_file.read_text()), signal.SIGKILL)
            pid_file.unlink()

    def _end(self, pid: int, number: signal.Signals) -> None:
        """Signal one of ours, and wait for its end; SIGKILL when that takes too long.

        Ours are those with our folder, which nobody else knows, among their arguments.
        """
        if pid == os.getpid():
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return  # it is gone
        try:
            # The pidfd holds the process: what is read of it now is what will be signalled.
            # Ours only: the folder is part of dockerd's, containerd's and every shim's arguments.
            if str(self.folder).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return
            signal.pidfd_send_signal(fd, number)
            if not select.select([fd], [], [], 30)[0]:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                select.select([fd], [], [], 30)
        except (FileNotFoundError, ProcessLookupError):
            pass
        finally:
            os.close(fd)


class OwnPodman(OwnEngine):
    """One Podman, which answers as docker does; with a storage of its own."""

    def command(self) -> list[str]:
        """As for docker.  What is not an option of Podman's is in two files."""
        configuration = self.folder / "containers.conf"
        # The limits are those that a machine without CAP_SYS_RESOURCE can give.
        configuration.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        storage = self.folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder}/root"\n'
            f'runroot = "{self.folder}/run"\n'
        )
        settings = [f"CONTAINERS_CONF={configuration}", f"CONTAINERS_STORAGE_CONF={storage}"]
        return ["env", *settings, "podman", "system", "service", "--time=0", self.address]


def harness(
    arguments: Sequence[str],
    folder: Path,
    address: str,
    within_s: float = PATIENCE_S,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run the real ``harness`` in ``folder`` against an engine, to its end."""
    return subprocess.run(
        [HARNESS, *arguments],
        cwd=folder,
        env=surroundings(address, **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def surroundings(address: str, **more: str) -> dict[str, str]:
    """The environment of a harness that talks to the engine at ``address``."""
    return {**os.environ, "NO_COLOR": "1", "DOCKER_HOST": address, **more}
