"""``python -m harness.cli``."""

from harness.cli import run_as_program

run_as_program()
