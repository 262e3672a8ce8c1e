"""YAML files -> scenarios, or every problem in them with its position.

Start reading in ``load``.  Nothing here runs anything or prints anything, and nothing of pydantic's
or of the YAML parser's own wording reaches the user.
"""

from harness.loader.load import Loaded, LoadedScenario, load_leniently, load_scenarios
from harness.loader.problem import Problem, ScenarioProblems, nearest
from harness.loader.schema import json_schema

__all__ = [
    "Loaded",
    "LoadedScenario",
    "Problem",
    "ScenarioProblems",
    "json_schema",
    "load_leniently",
    "load_scenarios",
    "nearest",
]
