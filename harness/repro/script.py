"""A scenario as one Python script: what it says about itself, its functions, its main."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.loader import LoadedScenario
from harness.model.contract import Clause
from harness.model.scenario import Expectation, Scenario
from harness.repro.channels import lay_out, open_channels
from harness.repro.check_snippets import CHECK, CHECK_OFTEN, CHECKING
from harness.repro.checks import write_checks
from harness.repro.condition import VERSION, VERSION_OF, condition_expression
from harness.repro.main_text import MAIN, MAIN_REPEATED, PREPARE, START, TRY
from harness.repro.needed import imports, needed
from harness.repro.preamble import docstring
from harness.repro.probes import take_census
from harness.repro.proc_snippets import ASKING
from harness.repro.seeing import Seeing
from harness.repro.snippets import ACTING
from harness.repro.source import Source, literal
from harness.repro.steps import write_step
from harness.repro.story import Story, needs_supervisor, refuse
from harness.repro.surroundings import make_environment, make_files, start_helper

#: Facts of harness doctor that a script finds out by asking bwrap for that namespace.
_TRIED_FACTS = {"network-namespace": "--unshare-net", "cgroup-namespace": "--unshare-cgroup"}


def write_script(
    loaded: LoadedScenario, clauses: Mapping[str, Clause], *, bwrap: str = "bwrap", version: str
) -> str:
    """The text of a script that does what the scenario says and exits 1 if it finds the deviation.

    ``bwrap`` is the program that it runs when none is given to it; ``version`` is the harness's.
    UsageError when the scenario says what no script can, naming the step or rule.
    """
    story = tell(loaded.scenario, clauses)
    is_repeated, seeing = story.scenario.repeat > 1, story.seeing()
    forget = seeing.forget() + "    os.closerange(3, 256)\n"
    if any("take(" in line for line in story.source.lines):
        forget += "    taken.clear()\n"
    start = START.format(bwrap=literal(bwrap))
    attempt = _attempt(story.source)
    end = [
        prepare(story),
        TRY.format(forget=forget if is_repeated else ""),
        main(story.scenario),
    ]
    library = needed(_library(seeing, is_repeated=is_repeated), attempt, *end)
    head = "#!/usr/bin/env python3\n" + docstring(story, version)
    code = [start, attempt, *library, *end]
    parts = [imports(*code), *code]
    return head + "\n" + "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def _library(seeing: Seeing, *, is_repeated: bool) -> list[str]:
    """Every support function there is, in the order of a script."""
    checking = [CHECK_OFTEN if each is CHECK and is_repeated else each for each in CHECKING]
    return [*seeing.library(), *ASKING, *ACTING, VERSION, VERSION_OF, *checking]


def _attempt(body: Source) -> str:
    lines = [" " * 4 + line if line.strip() else "" for line in body.lines]
    head = [
        "def attempt(scratch):",
        '    """The scenario itself, in the folder scratch, which is the current one."""',
    ]
    return "\n".join([*head, *lines]) + "\n"


def tell(scenario: Scenario, clauses: Mapping[str, Clause]) -> Story:
    """The statements of one try of the scenario."""
    if scenario.supervisor.kind == "reference":
        raise refuse(
            scenario,
            "it is about the reference supervisor (supervisor: kind: reference), not bwrap",
        )
    story = Story(scenario, clauses)
    story.checks = chosen_rules(scenario)
    several = scenario.sandboxes is not None
    for name, spec in scenario.named_sandboxes.items():
        told = needs_supervisor(scenario) or spec.launched_by != "supervisor"
        prefix = f"{name}." if several else ""
        story.boxes[name] = lay_out(story, name, prefix, spec, is_told=told)
    refuse_shared_names(story)
    _write_body(story)
    return story


def refuse_shared_names(story: Story) -> None:
    """Channels a-b of x and b of x-a would both be x_a_b."""
    ends = [
        end
        for box in story.boxes.values()
        for pipe in box.channels.values()
        for end in (pipe.near, pipe.far)
        if end
    ]
    if len(set(ends)) < len(ends):
        raise refuse(story.scenario, "two of its channels would have one name in a script")


def _write_body(story: Story) -> None:
    source, scenario = story.source, story.scenario
    make_files(story)
    open_channels(story)
    for name, helper in scenario.helpers.items():
        start_helper(story, name, helper)
    if story.seeing().markers:
        source.add("watch_markers(scratch)")
    make_environment(story)
    for number, step in enumerate(scenario.all_steps, 1):
        write_step(story, number, step)
    if "census" not in story.probes:
        take_census(story)
    write_checks(story)
    for box in story.boxes.values():
        for pipe in box.channels.values():
            if not pipe.is_declared and pipe.lane.endswith("stderr"):
                lane = literal(pipe.lane)
                with source.block(f"if text[{lane}]:"):
                    source.add(f'print("on {pipe.lane}:", text[{lane}].rstrip())')


def chosen_rules(scenario: Scenario) -> list[tuple[str, Expectation]]:
    """The rules that become checks: those of the known deviations, or else all."""
    known = {entry.rule for entry in scenario.known}
    named = zip(scenario.rule_names(), scenario.expect, strict=True)
    return [(name, rule) for name, rule in named if not known or name in known]


# --- main ----------------------------------------------------------------------------------------


def prepare(story: Story) -> str:
    """The function that finds out whether the scenario can be tried here at all."""
    scenario, extra = story.scenario, Source()
    for tool in scenario.needs.tools:
        with extra.block(f"if shutil.which({literal(tool)}) is None:"):
            extra.add(f'raise Inconclusive("this needs the program {tool}")')
    for device in scenario.needs.devices:
        with extra.block(f"if not os.access({literal(device)}, os.R_OK | os.W_OK):"):
            extra.add(f'raise Inconclusive("this needs access to {device}")')
    if scenario.needs.bwrap is not None:
        expression = condition_expression(story, scenario.needs.bwrap)
        with extra.block(f"if not ({expression}):"):
            extra.add(f'raise Inconclusive("this needs {scenario.needs.bwrap}")')
    options = []
    for fact in scenario.needs.facts:
        if fact not in _TRIED_FACTS:
            raise refuse(scenario, f"it needs {fact}, which only harness doctor finds out")
        options.append(literal(_TRIED_FACTS[fact]))
    is_root = scenario.user == "root" or scenario.needs.user == "root"
    asks_version = any("VERSION" in line for line in (*extra.lines, *story.source.lines))
    if asks_version:
        extra.lines.insert(0, "VERSION = asked.stdout")
    return PREPARE.format(
        version=", VERSION" if asks_version else "",
        identity=_AS_ROOT if is_root else _AS_NOBODY,
        options="".join(f", {option}" for option in options),
        extra="\n".join("    " + line for line in extra.lines if line)
        + ("\n" if any(extra.lines) else ""),
    )


_AS_ROOT = """\
    if os.getuid() != 0:
        raise Inconclusive("this is about what root sees: run it as root")
"""
_AS_NOBODY = """\
    if os.getuid() == 0:  # root hides some of what bwrap does for everybody else
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, or /proc/self would be root's now
"""


def main(scenario: Scenario) -> str:
    """The main function: one try, or as many as the scenario asks for."""
    if scenario.repeat == 1:
        return MAIN
    allowed = scenario.rate.at_most if scenario.rate is not None else 0.0
    failed = f"failed > {allowed} * tries" if allowed else "failed"
    return MAIN_REPEATED.format(tries=scenario.repeat, failed=failed, hint=_hint(scenario))


def _hint(scenario: Scenario) -> str:
    """What a race that never showed proves: nothing, before so many tries as find it 95 times of
    100 even at the smallest share that was measured."""
    rates = [entry.rate_at_least for entry in scenario.known if entry.rate_at_least is not None]
    if not rates:
        return ""
    enough = math.ceil(math.log(0.05) / math.log(1 - min(rates)))
    return (
        f"    if not failed and tries < {enough}:\n"
        f'        print("A race may be there all the same, in {min(rates):.1%} of many tries: "\n'
        f'              "python3 repro.py BWRAP {enough}")\n'
    )
