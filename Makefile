# Two commands: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= demo-out
JOBS ?= 2
PARALLEL := -n $(JOBS) --dist worksteal --durations=20

.PHONY: help setup system demo test test-all quick-tests all-tests lint style types format bench docs coverage-tables clean
help:
	@echo "make demo       set up, run the demo on synthetic hospitals, print the report's path"
	@echo "make test       set up, lint, type-check, run the tests (less than ten minutes on two cores)"
	@echo "make test-all   the same with the slow tests: long simulations, deep trainings, many kills and full disks"
	@echo "make lint       ruff and mypy"
	@echo "make bench      run the benchmarks and rewrite benchmarks/README.md"
	@echo "make docs       write the generated pages and pictures of docs/ anew"
	@echo "make coverage-tables  simulate what the intervals promise, rewrite docs/reference/coverage.md and levels.md"

setup: system $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[all,dev,bench]'
	@touch $(STAMP)

# Debian's chromium shows the report to the browser tests. Installed where we may, named where we may not.
system:
	@sh tools/system-programs.sh chromium

demo: setup
	$(BIN)/elsewhere demo --out $(OUT)

lint: style types

style: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: setup
	$(BIN)/mypy

# mypy uses one core for a minute: it runs beside the tests.
test: style
	@$(MAKE) --no-print-directory -j 2 types quick-tests

test-all: style
	@$(MAKE) --no-print-directory -j 2 types all-tests

quick-tests: setup
	$(BIN)/pytest -m "not slow" $(PARALLEL)

all-tests: setup
	$(BIN)/pytest $(PARALLEL)

format: setup
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_images.py
	$(BIN)/python docs/make_results.py

coverage-tables: setup
	$(BIN)/elsewhere coverage --out docs/reference --replace

clean:
	rm -rf $(OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
