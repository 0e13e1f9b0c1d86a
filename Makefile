# `make test` and `make reproduce` set themselves up: all they need is Python 3.11 or newer with pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test lint unit slow bench reproduce clean

test: lint unit

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedfv needs Python 3.11 or newer; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

lint: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: .venv/.ready
	$(BIN)/pytest

slow: .venv/.ready
	$(BIN)/pytest -m slow

bench: .venv/.ready
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/simulation.py

# The two sides of the paper's claim on the data that come with the package; its tables are not here yet.
reproduce: .venv/.ready
	for seed in 0 1 2; do \
	  for name in fashion-average fashion-fair; do $(BIN)/fedfv run $$name --seed $$seed || exit 1; done; \
	done
	$(BIN)/fedfv report runs/fashion-average-seed* runs/fashion-fair-seed*

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
