# Two commands on a fresh machine, each doing all of its own set-up:
#   make run     record, judge and report everything in scenarios/
#   make test    the same set-up, then all tests
# PYTHON chooses the interpreter (3.11 or newer); ARGS is passed on to `harness run` or to pytest.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup system run test lint bench clean

help:
	@sed -n '2,4s/^# *//p' $(MAKEFILE_LIST)
	@echo "also: make lint, make bench, make clean"

# Outdated whenever the declared dependencies change.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "harness needs Python 3.11 or newer: make run PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "cannot make a virtual environment: install python3-venv" >&2; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What scenarios need and pip cannot bring. Missing and not permitted is no error: the scenarios
# that need it are skipped, and say so.
system:
	@sh tools/install-system.sh

setup: $(STAMP) system

run: setup
	$(BIN)/harness run scenarios/ -j2 $(ARGS)

test: setup
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python bench/ratios.py $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
