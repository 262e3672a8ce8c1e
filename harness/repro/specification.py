"""A small sandbox specification as bwrap arguments, the way ``harness.supervise`` has it."""

from __future__ import annotations

from harness.model.scenario import Spec
from harness.repro.source import filled
from harness.repro.story import Box, Story, refuse
from harness.repro.surroundings import BASE_ENVIRONMENT, port_name
from harness.supervise.spec import SYSTEM_DIRECTORIES, SandboxSpec, SpecConflict, bwrap_arguments

#: Stands for the scenario's folder where a path has to be absolute; it is one component, too.
_SCRATCH = "/{scratch}"


def spec_words(story: Story, box: Box, spec: Spec) -> list[str]:
    """The expressions of the arguments that a specification comes to.

    Which system directories there are is not known here: bwrap is told to try each.
    """

    def inside(path: str) -> str:
        return path.replace("{scratch}", _SCRATCH)

    socket = spec.control_socket
    try:
        words = bwrap_arguments(
            SandboxSpec(
                read_only=tuple(map(inside, spec.read_only)),
                read_write=tuple(map(inside, spec.read_write)),
                environment=tuple(spec.environment),
                network=spec.network,
                control_socket=inside(socket) if socket else None,
            ),
            environ=_environment(story, box),
            exists=lambda _path: True,
        )
    except SpecConflict as conflict:
        raise refuse(story.scenario, f"its specification contradicts itself: {conflict}") from None
    for number, word in enumerate(words):
        if word == "--ro-bind" and words[number + 1] in SYSTEM_DIRECTORIES:
            words[number] = "--ro-bind-try"
    names = {"scratch": "scratch"}
    names |= {key: f'environment["{key}"]' for key in _ports(story)}
    return [filled(word.replace(_SCRATCH, "{scratch}"), names) for word in words]


def _ports(story: Story) -> list[str]:
    helpers = story.scenario.helpers.items()
    return [port_name(name) for name, helper in helpers if helper.listen == "tcp"]


def _environment(story: Story, box: Box) -> dict[str, str]:
    """bwrap's environment, with what is known only when it runs as placeholders."""
    ports = {key: "{" + key + "}" for key in _ports(story)}
    return {**BASE_ENVIRONMENT, "SCRATCH": "{scratch}", **ports, **box.spec.env}
