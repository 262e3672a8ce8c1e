"""The numbers that the README states, as ratios measured side by side in one process run.

``make bench`` prints them.  Nothing here is a test: a machine that is busy with something else
gives other numbers, which is why both sides of every ratio are measured in turn, block by block,
and the median of the blocks is told.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.errors import HarnessError
from harness.loader import LoadedScenario, load_scenarios
from harness.model.scenario import Scenario
from harness.model.timeline import Kind, Timeline
from harness.model.verdict import Result
from harness.pipeline import Job, Options, Run, StopSwitch, Target
from harness.store import RunFolder
from harness.subjects import choose_identity, find_targets, open_targets

ROOT = Path(__file__).parent.parent
# Where a run's reports go, and not in /tmp, where so much is removed all the time that ext4 takes
# ten times as long to make a file (measured: 0.25 ms and 0.03 ms).
(ROOT / "reports").mkdir(exist_ok=True)
REPORTS = tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "reports")
RUNS = itertools.count()
BLOCKS = 7
LAUNCHES = 60
SIMPLE = {
    "id": "bench.simple",
    "title": "A launch with a status stream ends with its command's exit status",
    "clauses": ["EXIT-1"],
    "sandbox": {
        "args": ["--unshare-pid"],
        "command": ["true"],
        "channels": {"status": {"option": "json-status-fd"}},
    },
    "expect": [
        {"exit": {"of": "monitor", "code": 0}},
        {"field": {"on": "status", "member": "exit-code", "equals": 0}},
    ],
}


class Silent:
    """A watcher that keeps the timelines it is shown."""

    def __init__(self) -> None:
        self.shown: list[Timeline] = []
        self.results: list[Result] = []

    def case_started(self, scenario_id: str, subject: str) -> None:
        pass

    def case_finished(self, result: Result, timeline: Timeline | None) -> None:
        self.results.append(result)
        if timeline is not None:
            self.shown.append(timeline)


def loaded(raw: dict[str, object], suffix: str = "") -> LoadedScenario:
    scenario = Scenario.model_validate({**raw, "id": f"{raw['id']}{suffix}"})
    return LoadedScenario(scenario, "bench", 1, "")


def record(jobs: Sequence[Job], *, workers: int, repeat: int | None = None) -> Silent:
    """Record and judge the jobs as ``harness run`` does."""
    watcher = Silent()
    switch = StopSwitch()
    try:
        # Removed at the end of it all, as nobody removes reports between two runs: ext4 takes long
        # to make files while it remembers those that were removed in the last seconds.
        folder = RunFolder.create(Path(REPORTS.name), f"bench-{next(RUNS)}")
        run = Run(folder, Options(jobs=workers, repeat=repeat), watcher, switch)
        run.record_all(jobs)
    finally:
        switch.close()
    fine = ("pass", "known", "skip")  # some versions are too old for some scenarios
    bad = [result for result in watcher.results if result.status not in fine]
    if bad:
        sys.exit(f"{bad[0].id}: {bad[0].status}: {bad[0].message}")
    return watcher


def bare(target: Target, times: int) -> None:
    """The same launch with subprocess and nothing else."""
    command = [target.path, "--dev-bind", "/", "/", "--unshare-pid", "true"]
    identity = {} if os.getuid() == target.uid else {"user": target.uid, "group": target.gid}
    if identity:
        identity["extra_groups"] = []  # type: ignore[assignment]
    for _ in range(times):
        subprocess.run(command, check=True, **identity)  # type: ignore[call-overload]


def timed(body: Callable[[], object]) -> float:
    started = time.perf_counter()
    body()
    return time.perf_counter() - started


def tell(what: str, measured: str, wanted: str) -> None:
    print(f"{what:<58} {measured:<26} {wanted}", flush=True)


def bench_overhead(target: Target) -> None:
    """Recorded and judged against bare, one after the other and two at a time."""
    job = Job(loaded(SIMPLE), target)
    many = [Job(loaded(SIMPLE, f"-{n}"), target) for n in range(LAUNCHES)]
    one, two = [], []
    for _ in range(BLOCKS):
        plain = timed(lambda: bare(target, LAUNCHES)) / LAUNCHES
        # A run starts its agent once; what starting it costs is told by itself, below.
        start = timed(lambda: record([job], workers=1, repeat=1))
        whole = timed(lambda: record([job], workers=1, repeat=LAUNCHES + 1))
        one.append((whole - start) / LAUNCHES / plain)
        start = timed(lambda: record(many[:2], workers=2))
        whole = timed(lambda: record(many, workers=2))
        two.append((len(many) - 2) / max(whole - start, 1e-9) * plain)
    tell("recorded and judged / bare launch, -j1", f"{statistics.median(one):.2f}", "at most 2.0")
    tell("scenarios a second at -j2 / bare loop", f"{statistics.median(two):.2f}", "above 1.0")


def bench_repeats(target: Target) -> None:
    """Cost of a repeat, few against many, and the memory that many take."""
    job = Job(loaded(SIMPLE), target)
    ratios = []
    for _ in range(3):
        start = timed(lambda: record([job], workers=1, repeat=1))
        few = (timed(lambda: record([job], workers=1, repeat=101)) - start) / 100
        many = (timed(lambda: record([job], workers=1, repeat=2001)) - start) / 2000
        ratios.append(many / few)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tell("cost of a repeat, 2000 repeats / 100", f"{statistics.median(ratios):.2f}", "about 1")
    tell("peak memory of the harness at 2000 repeats", f"{peak:.0f} MB", "below 100 MB")


LOSS = {
    "id": "bench.loss",
    "title": "Losing the provider ends the sandbox",
    "clauses": ["SUP-3"],
    "supervisor": {"kind": "reference"},
    "sandbox": {
        "spec": {"network": "provider"},
        "command": {"shell": "echo up; exec sleep 30"},
    },
    "providers": {"net": {}},
    "steps": [
        {"wait": {"line": "stdout", "contains": "up"}},
        {"wait": {"process": "command", "state": "running-command"}},
        {"signal": {"to": "net", "send": "KILL"}, "trigger": True},
        {"wait": {"report": "supervisor"}},
        {"settle": "2s"},
    ],
    "expect": [
        {"outcome": {"kind": "provider-lost", "provider_signal": "KILL"}},
        {"survivors": "none"},
    ],
}


def bench_loss(target: Target) -> None:
    """From the signal that kills the provider to the last process of the sandbox gone.

    Its pidfd tells its death only after the kernel has taken it apart, when the sandbox is gone
    already: the supervisor watches a pipe, which ends first.
    """
    times = []
    for n in range(30):
        shown = record([Job(loaded(LOSS, f"-{n}"), target)], workers=1).shown[0]
        dead = shown.first(Kind.SIGNAL_SENT, lane="net")
        gone = shown.last(Kind.PROCESS_EXITED, lane="child")
        monitor = shown.last(Kind.PROCESS_EXITED, lane="monitor")
        if dead and gone and monitor:
            times.append((max(gone.t_ns, monitor.t_ns) - dead.t_ns) / 1e6)
    measured = f"median {statistics.median(times):.1f} ms, worst {max(times):.1f} ms"
    tell("provider's death to the last sandbox process gone", measured, "median below 20 ms")


SUPERVISE = """
import sys
from harness.supervise import Launch, ProviderSpec, supervise
def on_event(name, fields):
    if name == "gate-opened":
        print("watching", flush=True)
supervise(Launch(command=["sleep", "3"], bwrap=sys.argv[1],
                 options=["--unshare-user", "--unshare-net", "--dev-bind", "/", "/"],
                 provider=ProviderSpec()), on_event=on_event)
"""


def bench_sleep(target: Target) -> None:
    """What the reference supervisor does while there is nothing to do, as strace sees it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, target.path], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    process.stdout.readline()
    with tempfile.NamedTemporaryFile("r") as trace:
        strace = subprocess.Popen(
            ["strace", "-q", "-o", trace.name, "-p", str(process.pid)], stderr=subprocess.DEVNULL
        )
        try:
            strace.wait(2)
        except subprocess.TimeoutExpired:
            strace.terminate()
            strace.wait()
        calls = [line for line in trace.read().splitlines() if re.match(r"\w+\(", line)]
    process.wait()
    ended = [line for line in calls if "resumed" not in line and "detached" not in line]
    measured = f"{len(ended)} system call(s) in 2 s"
    tell("the supervisor while it waits", measured, "none but the one it sleeps in")
    for line in ended[:3]:
        print(f"    {line[:100]}")


def bench_suite(target: Target) -> None:
    """The whole default suite at -j2."""
    everything = load_scenarios([ROOT / "scenarios"]).scenarios
    jobs = [Job(each, target) for each in everything]
    elapsed = timed(lambda: record(jobs, workers=2))
    tell(f"the whole suite, {len(jobs)} scenarios, -j2", f"{elapsed:.1f} s", "below 60 s")


IMAGES = ("debian-bullseye", "debian-bookworm", "debian-trixie", "debian-sid")
#: The same Debian release as the machine's, where that is one of ours: the same bwrap and Python.
NEAREST = "debian-bookworm"


@contextmanager
def opened(specs: Sequence[str]) -> Iterator[list[Target]]:
    """Subjects, found and identified, as ``harness run`` opens them."""
    switch = StopSwitch()
    try:
        with tempfile.TemporaryFile() as log, ExitStack() as stack:
            yield open_targets(
                specs,
                None,
                tools=("slirp4netns", "bash", "strace", "python3"),
                as_root=True,
                tell=lambda text: print(f"    {text}"),
                stop_fd=switch.fd,
                log=log,
                stack=stack,
            )
    finally:
        switch.close()


def bench_images(target: Target) -> None:
    """What a container costs: starting one, streaming out of one, and the whole suite in four."""
    try:
        with opened([f"image:{name}" for name in IMAGES]) as images:
            _bench_start()
            _bench_streaming(target)
            everything = load_scenarios([ROOT / "scenarios"]).scenarios
            local = [Job(each, target) for each in everything]
            far = [Job(each, image) for image in images for each in everything]
            alone, together = [], []
            for _ in range(3):
                alone.append(4 * timed(lambda: record(local, workers=2)))
                together.append(timed(lambda: record(far, workers=2)))
    except HarnessError as fault:
        tell("four images", "not measured", str(fault).partition("\n")[0])
        return
    ratio = statistics.median(t / a for t, a in zip(together, alone, strict=True))
    seconds = f"{ratio:.2f} ({statistics.median(together):.0f} s)"
    tell("the suite in four images / four times locally, -j2", seconds, "at most 1.3")


def _bench_start() -> None:
    spec = f"image:{NEAREST}"
    starts = []
    for _ in range(5):
        started = time.perf_counter()
        with opened([spec]):
            starts.append(time.perf_counter() - started)
    tell("from an image to a subject that proved itself", f"{statistics.median(starts):.2f} s",
         "below 3 s")  # fmt: skip


def _bench_streaming(bundled: Target) -> None:
    """The cost of a recording in a container against the same bwrap beside it."""
    with opened([f"image:{NEAREST}"]) as (image,):
        beside = bundled
        if shutil.which("bwrap") is not None:
            with opened(["host"]) as (host,):
                same = host.subject.sha256 == image.subject.sha256
                beside = host if same else bundled
        ratios = []
        for _ in range(BLOCKS):
            costs = []
            for each in (beside, image):
                job = Job(loaded(SIMPLE), each)
                start = timed(lambda job=job: record([job], workers=1, repeat=1))  # type: ignore[misc]
                whole = timed(
                    lambda job=job: record([job], workers=1, repeat=LAUNCHES + 1)  # type: ignore[misc]
                )
                costs.append(whole - start)
            ratios.append(costs[1] / costs[0])
    what = "the same binary" if beside.subject.sha256 == image.subject.sha256 else "bundled"
    tell(f"a recording in a container / {what} locally", f"{statistics.median(ratios):.2f}",
         "at most 1.1")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--only", choices=list(BENCHES))
    arguments = parser.parse_args()
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as log:
        identity = choose_identity(None)
        tools = ("slirp4netns", "bash", "strace", "python3")
        (target,) = find_targets(
            [arguments.subject], identity, tools=tools, stop_fd=read_end, log=log
        )
    os.close(read_end)
    os.close(write_end)
    print(json.dumps({"bwrap": target.subject.version, "kernel": target.subject.kernel}))
    for name, bench in BENCHES.items():
        if arguments.only in (None, name):
            bench(target)


BENCHES = {
    "overhead": bench_overhead,
    "repeats": bench_repeats,
    "loss": bench_loss,
    "sleep": bench_sleep,
    "suite": bench_suite,
    "images": bench_images,
}

if __name__ == "__main__":
    main()
