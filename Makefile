# Lakerunner. `make` alone lists what can be made.
# Knobs:  PYTHON=python3.12   the interpreter of the virtual environment (3.11 or newer)
#         PYTEST_ARGS="-k x"  further arguments of pytest
#         JOBS=3              tests at the same time; most of their time is waiting
#         CASE=ingest         which benchmark; without it `make bench` lists them
#         SEEDS=10            how often `make faults` does every cell, each time with other draws
#         ONLY=kafka/boxer    which cells it does: those whose name begins so
#         CALLS=20000         how many requests `make apifuzz` sends
#         DATA=folder         where `make demo` keeps its data

PYTHON ?= python3
PYTEST_ARGS ?=
DATA ?= lakerunner-data
JOBS ?= 3
SEEDS ?= 10
CALLS ?= 20000
ONLY ?=
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo init test test-fast lint fix bench promqltest differential apifuzz faults docs clean

##@ Use

demo: $(VENV)/.run ## Start everything on this machine, with a small shop's telemetry coming in; Ctrl-C stops it
	@$(BIN)/lakerunner serve --demo --set data.dir=$(DATA) --set auth.required=false

##@ Develop

init: $(VENV)/.dev ## Make the virtual environment with everything that tests need

test: lint $(VENV)/.dev ## All checks and tests, on real components that the suite starts itself
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

test-fast: $(VENV)/.dev ## The tests that take seconds
	@$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

lint: $(VENV)/.dev ## Style, types and the direction of imports
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

fix: $(VENV)/.dev ## Mend what style checks can mend
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(VENV)/.dev ## Benchmarks against a peer or a limit, as JSON lines: make bench CASE=ingest
	@$(BIN)/python -m bench $(CASE)

promqltest: $(VENV)/.dev ## Prometheus' test scripts of a folder through a real lake: make promqltest SUITE=DIR
	@$(BIN)/python -m tests.query.promqltest $(SUITE)

differential: $(VENV)/.dev ## Random queries against a real Prometheus, from PATH or the folder LAKERUNNER_TEST_PEERS
	@$(BIN)/python -m tests.differential

apifuzz: $(VENV)/.dev ## Random requests from the served OpenAPI document to a running API: make apifuzz CALLS=20000
	@$(BIN)/python -m tests.serve.apifuzz --calls $(CALLS)

faults: $(VENV)/.dev ## Kill every stage at every crash point, on both buses; a line per cell
	@$(BIN)/python -m tests.faults.ingest --seeds $(SEEDS) --only "$(ONLY)"

docs: $(VENV)/.dev ## Write the generated parts of docs/ anew
	@$(BIN)/python -m tests.docs.generate

clean: ## Remove the virtual environment and caches; data folders stay
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

##@ Help

help: ## This list
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*##/ {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lakerunner needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing lakerunner into $(VENV) (once)"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing what tests need into $(VENV) (once)"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
