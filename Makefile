# Lakerunner. `make` lists the targets.
# Variables:  PYTHON=python3.12   interpreter of the virtual environment (3.11 or newer)
#             PYTEST_ARGS="-k x"  further arguments for pytest
#             JOBS=4              number of parallel tests; they spend most of their time waiting
#             CASE=ingest         benchmark to run; without it `make bench` lists them
#             SEEDS=10            runs of each cell of `make faults`, each with another seed
#             ONLY=kafka/boxer    prefix of the cells that `make faults` runs
#             EXAMPLES=20         how many times the examples of `make test` does `make properties` try
#             MINUTES=20          length of `make soak`
#             CALLS=20000         number of requests that `make apifuzz` sends
#             LANGUAGE=logql      language of `make differential`; promql without it
#             DATA=folder         data folder of `make demo`

PYTHON ?= python3
PYTEST_ARGS ?=
DATA ?= lakerunner-data
JOBS ?= 4
SEEDS ?= 10
CALLS ?= 20000
COUNT ?= 2000
LANGUAGE ?= promql
MINUTES ?= 20
EXAMPLES ?= 20
ONLY ?=
VENV := .venv
BIN := $(VENV)/bin

# Without compiled modules, each of the hundreds of processes that tests start would compile ours again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo cluster init test tests test-fast lint style types fix bench promqltest logqltest traceqltest differential apifuzz rewrites properties faults soak docs clean

##@ Use

demo: $(VENV)/.run ## Start everything on this machine, with simulated telemetry of a small shop; Ctrl-C stops it
	@$(BIN)/lakerunner serve --demo --set data.dir=$(DATA) --set auth.required=false \
		--set derive.span_metrics=true --set derive.service_graph=true

cluster: $(VENV)/.dev ## Start the deployment of docs/deploy.md here: PostgreSQL, Kafka, S3, Spark, two hosts; Ctrl-C stops it
	@$(BIN)/python -m tests.cluster

##@ Develop

init: $(VENV)/.dev ## Create the virtual environment with everything the tests need

test: style ## Run all checks and tests, against real components that the suite starts itself
	@$(MAKE) --no-print-directory -j2 types tests

# Types are checked beside the first tests: mypy has one thread.
tests: $(VENV)/.dev ## Run all tests, without the checks
	@$(BIN)/python -m tests.run --durations=30 --durations-min=5 -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

test-fast: $(VENV)/.dev ## Run the tests that take seconds
	@$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

lint: style types ## Check style, types and import layers

style: $(VENV)/.dev ## Check style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev ## Check types and import layers
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

fix: $(VENV)/.dev ## Fix style automatically
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(VENV)/.dev ## Run a benchmark against a peer or a limit, with JSON output: make bench CASE=ingest
	@$(BIN)/python -m bench $(CASE)

promqltest: $(VENV)/.dev ## Run Prometheus' test scripts through a real lake: make promqltest SUITE=DIR
	@$(BIN)/python -m tests.query.promqltest $(SUITE)

logqltest: $(VENV)/.dev ## Ask recorded LogQL queries of a real lake over HTTP: make logqltest SUITE=DIR
	@$(BIN)/python -m tests.query.logqltest $(SUITE)

traceqltest: $(VENV)/.dev ## Ask recorded TraceQL queries and Tempo requests of a real lake: make traceqltest SUITE=DIR
	@$(BIN)/python -m tests.query.traceqltest $(SUITE)

differential: $(VENV)/.dev ## Compare random queries with a real Prometheus or Loki, from the folder LAKERUNNER_TEST_PEERS or PATH
	@$(BIN)/python -m tests.differential --language $(LANGUAGE)

apifuzz: $(VENV)/.dev ## Random requests from the served OpenAPI document to a running API: make apifuzz CALLS=20000
	@$(BIN)/python -m tests.serve.apifuzz --calls $(CALLS)

rewrites: $(VENV)/.dev ## Compare answers of rules with raw ones, over random rules, queries and data: make rewrites COUNT=20000
	@$(BIN)/python -m tests.query.rules.rewrites --count $(COUNT)

properties: $(VENV)/.dev ## Try properties that say `examples(…)` with many more than `make test` does: make properties EXAMPLES=20
	@LAKERUNNER_TEST_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -m hypothesis -n $(JOBS) --timeout 7200 $(PYTEST_ARGS)

faults: $(VENV)/.dev ## Kill every stage at every crash point, and break a cluster in every way; ONLY=cluster for these alone
	@case "$(ONLY)" in cluster*) ;; *) $(BIN)/python -m tests.faults.ingest --seeds $(SEEDS) --only "$(ONLY)" \
	  && $(BIN)/python -m tests.faults.lifecycle --seeds $(SEEDS) --only "$(ONLY)";; esac
	@case "$(ONLY)" in ""|cluster*) $(BIN)/python -m tests.cluster.faults --only "$(ONLY)";; esac

soak: $(VENV)/.dev ## Kill roles and PostgreSQL of `serve --demo` for 20 minutes, then count every row: make soak MINUTES=1
	@$(BIN)/python -m tests.soak --minutes $(MINUTES)

docs: $(VENV)/.dev ## Regenerate the generated pages of docs/
	@$(BIN)/python -m tests.docs.generate

clean: ## Remove the virtual environment and caches, but no data folders
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

##@ Help

help: ## Show this list
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*##/ {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lakerunner needs Python 3.11 or newer; choose one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing lakerunner into $(VENV) (once)"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e .
	@echo "compiling kernels (once)"
	@$(BIN)/lakerunner warm
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing test dependencies into $(VENV) (once)"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
