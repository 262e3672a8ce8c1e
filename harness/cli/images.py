"""``harness images``: build and list the images of ``image:`` subjects.

The docker SDK takes 0.1 s to import, so only these commands do.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from harness.backends.docker import Engine
from harness.cli.voice import answer, tell
from harness.errors import ExitCode, UsageError
from harness.images import Workshop, default_cache, image_states, read_catalogue


def build(arguments: argparse.Namespace) -> ExitCode:

    catalogue = read_catalogue(_given_path(arguments.containers))
    if arguments.all == bool(arguments.names):
        raise UsageError("name the images to build, or give --all")
    names = arguments.names
    if arguments.all:
        # What cannot be built without a registry is no reason to build nothing without one.
        wanted = catalogue.definitions.values()
        names = [each.name for each in wanted if arguments.source == "registry" or each.bootstrap]
        for each in wanted:
            if each.name not in names:
                tell(f"{each.name} is left out: it needs --from registry")
    for name in names:
        _ = catalogue[name]
    cache = _given_path(arguments.cache) or default_cache()
    engine = Engine.connect()
    try:
        engine.sweep()
        workshop = Workshop(catalogue, engine, cache, tell, arguments.mirror)
        for name in names:
            built = workshop.build(name, arguments.source)
            tell(f"{built.tag}: bwrap {built.bwrap}, {built.built_from}, {built.digest}")
    finally:
        engine.close()
    return ExitCode.AS_EXPECTED


def list_images(arguments: argparse.Namespace) -> ExitCode:

    catalogue = read_catalogue(_given_path(arguments.containers))
    engine = Engine.connect()
    try:
        states = image_states(catalogue, engine)
    finally:
        engine.close()
    if arguments.format == "json":
        answer(json.dumps([dataclasses.asdict(each) for each in states], indent=1) + "\n")
        return ExitCode.AS_EXPECTED
    width = max((len(each.name) for each in states), default=0)
    for each in states:
        version = f"bwrap {each.bwrap}" if each.bwrap else ""
        answer(f"{each.name:<{width}}  {each.state:<7}  {version:<13}  {each.about}\n")
    return ExitCode.AS_EXPECTED


def _given_path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
