# Everything is set up on first use and cached; a change of pyproject.toml sets up again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Hundreds of processes are started here: each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run example test check format lint types imports bench simulate chaos docs dashboard clean help

help:            ## this list
	@grep -E '^[a-z-]+: .*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml apps/tonearm/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (set PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e './apps/tonearm[onnx]'
	@touch $@

run: $(STAMP)    ## the first sixty seconds: Tonearm listens to songs while its workers die (MUSIC=folder: to yours)
	@MUSIC="$(MUSIC)" $(BIN)/python -m tonearm.demo

example: $(STAMP)  ## a small application: two crews at work, to watch and to kill workers of
	@$(BIN)/python -m examples.demo

test: $(STAMP)   ## all tests
	@$(BIN)/python -m pytest -m alone  # first: in a new clone the four that follow find the tests compiled
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m "not alone"

check: $(STAMP) format lint types imports test  ## what CI runs

format: $(STAMP)
	@$(BIN)/ruff format --check .

lint: $(STAMP)
	@$(BIN)/ruff check .

types: $(STAMP)
	@$(BIN)/basedpyright

imports: $(STAMP)
	@$(BIN)/lint-imports

bench: $(STAMP)  ## how fast it is here, beside what this machine allows
	@$(BIN)/python -m bench

simulate: $(STAMP)  ## 10,000 seeded histories of whole systems on a virtual clock (SEEDS=)
	@$(BIN)/python tests/simulation $(or $(SEEDS),10000)

chaos: $(STAMP)  ## real processes, killed at random (JOBS=, SEED=, MINUTES=)
	@$(BIN)/python -m chaos

dashboard:       ## build the dashboard's files from their source (needs Node.js 20.19 or newer; users do not)
	@cd src/chargehand/web/dashboard/source && npm install --no-save --no-audit --no-fund && npm run --silent build

docs: $(STAMP)   ## write docs/reference.md from the code
	@$(BIN)/python docs/generate.py

clean:           ## remove what was set up
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
