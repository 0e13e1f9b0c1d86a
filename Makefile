# Every target sets up its environment itself and needs only Python 3.11 or newer with pip.
PYTHON ?= python3
BIN := .venv/bin
# The versions that are installed; `make unit CONSTRAINTS=/dev/null` takes the newest ones.
CONSTRAINTS ?= constraints.txt
# Waiting threads of torch leave the core to other processes.
export OMP_WAIT_POLICY ?= passive

.PHONY: test lint unit integration deployment slow fuzz coverage package lowest flower bench guard reproduce docs site clean

# All that is needed before a commit.
test: lint unit integration

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedfv needs Python 3.11 or newer; choose one with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=$(CONSTRAINTS) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# Deno, a single program from PyPI, checks the scripts and the style sheet of the report page; it asks for no network.
lint: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deno fmt --check
	$(BIN)/deno lint
	$(BIN)/deno check src/fedfv/reports/page/page.js
	$(BIN)/zizmor --offline --quiet .github

# The tests without a marker and the examples in docstrings: a minute or a few, by machine.
unit: .venv/.ready
	$(BIN)/pytest -n auto

# Tests that take seconds each, or start processes or a browser, on all cores.
integration: .venv/.ready
	$(BIN)/pytest -n auto -m integration

# Tests with real Flower processes: a SuperLink and SuperNodes on loopback.
deployment: .venv/.ready
	$(BIN)/pytest -m deployment

# Damages inputs of every kind for SECONDS, from the seed SEED on: each must give one clear sentence.
fuzz: .venv/.ready
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0) $(addprefix --target ,$(TARGET))

# Tests that take minutes each.
slow: .venv/.ready
	$(BIN)/pytest -m slow

# Lines and branches of the package that the unit and integration shelves reach.
coverage: .venv/.ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'not deployment and not slow'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Builds wheel and sdist, uses both as a user would, runs the unit tests from the sdist, and puts both into dist/.
package: .venv/.ready
	$(BIN)/python -m scripts.check_package $(OPTIONS)

# The unit tests with the lowest versions that pyproject.toml allows, in a new environment; torch as in constraints.txt, or TORCH.
lowest: .venv/.ready
	$(BIN)/python -m scripts.lowest $(addprefix --torch ,$(TORCH))

# Compares fedfv with its peers and fills docs/performance.md; the machine should be idle otherwise.
bench: .venv/.ready
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/write_performance.py

# Fails if a part has become much slower than recorded.
guard: .venv/.ready
	$(BIN)/python benchmarks/guard.py

# Reproduces Table 3 of the paper, with every cell beside the printed one; the data come with the package.
reproduce: .venv/.ready
	$(BIN)/fedfv reproduce table3

# Runs the federation of Table 3 over the local network interface, and compares it with the simulator.
flower: .venv/.ready
	$(BIN)/python examples/flower-fashion/loopback.py

# Fills docs/reproduction.md and docs/benchmark.md, and draws their figures, from results/.
docs: .venv/.ready
	$(BIN)/python scripts/fill_reproduction.py
	$(BIN)/python scripts/fill_benchmark.py

# Builds the documentation in build/site and executes its tutorials; a warning or a broken link is an error.
site: .venv/.ready
	$(BIN)/python -m sphinx --fail-on-warning --quiet --jobs auto docs build/site

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
