# Every command of the project. Each target builds .venv itself, with uv when it is
# installed and with venv + pip when it is not. Written for GNU make 3.81 (macOS) and up.

.DEFAULT_GOAL := help

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
BUILD := .build
UV    := $(shell command -v uv 2>/dev/null)
ARGS  ?=

# Temporary files stay inside the checkout; only the package cache is shared.
export TMPDIR := $(CURDIR)/$(BUILD)/tmp
export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS := never
# An activated environment or a foreign module path must not leak into ours; and without bytecode
# every process of a test compiles the whole project again.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# PYTHON=/path/to/python chooses an interpreter; otherwise the first that works is taken.
# A candidate is started, not just looked up: version managers leave names that do not run.
CANDIDATES := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11
PROBE := import sys, venv$(if $(UV),,; import ensurepip); sys.exit(sys.version_info < (3, 11))

.PHONY: help run test campaign cover snapshots test-fast check bench docs generate format mutate lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## run sample jobs under a supervisor on a throw-away store; Ctrl-C ends it
	@$(BIN)/python -m detent demo

test: $(READY) ## run all tests; ARGS="..." is handed to pytest instead
	@$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-q -n 4 --maxschedchunk 50 -m "not campaign")

campaign: $(READY) ## run what takes minutes: fleets that are killed at random, stores that go away
	@$(BIN)/python -m pytest -q -s -m campaign $(ARGS)

cover: $(READY) ## run all tests and say which lines none of them reached (twice the time)
	@$(BIN)/python -m pytest -q -n 2 -m "not campaign" --cov

snapshots: $(READY) ## accept what has changed for users, clients and stored data (tests/outside)
	@$(BIN)/python -m pytest -q tests/outside --write $(ARGS)

test-fast: $(READY) ## run the tests that take no time
	@$(BIN)/python -m pytest -q -m "not slow and not campaign" $(if $(ARGS),$(ARGS),-n 2)

check: $(READY) ## format, lint, types, layers, generated files, safety rules, documentation
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m pytest -q tests/tidy tests/docs
	$(BIN)/mkdocs build --strict --site-dir $(BUILD)/site

bench: $(READY) ## measure the lifecycle core against its rivals
	@$(BIN)/python -m bench $(ARGS)

docs: generate ## generate, then build the site into ./site
	$(BIN)/mkdocs build --strict --site-dir site

generate: $(READY) ## write the diagrams and tables of the docs from the machines
	$(BIN)/python -m tools.generate

format: $(READY) ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

mutate: $(READY) ## mutation tests of the lifecycle package (many minutes)
	$(BIN)/mutmut run $(ARGS)
	@$(BIN)/mutmut export-cicd-stats && cat mutants/mutmut-cicd-stats.json

lock: ## resolve the dependencies anew (needs uv)
	uv lock --upgrade
	uv export --quiet --frozen --all-groups --no-emit-project --output-file requirements-dev.lock

clean: ## remove everything that make has made
	rm -rf $(VENV) $(BUILD) site dist mutants htmlcov .coverage .coverage.* .hypothesis \
	  .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .uv_cache
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# `pip install .` in this environment puts a copy of the package in the place of the link to src: all
# commands would then run old code. It is prepared again.
COPIED := $(wildcard $(VENV)/lib/python3*/site-packages/detent/__init__.py)
.PHONY: prepare-again
prepare-again:

# What pip says while it installs, as a line now and then; and all of it where something goes wrong.
PROGRESS := /^Collecting/ { if (++n % 15 == 0) print "  " n " of some " all " packages fetched"; fflush(); next } \
  /^Installing/ { print "  installing them: half a minute"; fflush(); next } \
  /^(Downloading|Using cached|Successfully|Requirement already|  Downloading|  Using cached|Ignoring)/ { next } { print; fflush() }

# The stamp lives in the environment, so that removing the environment removes it too.
# Packages come with hashes from the lock; the project itself is built by the locked backend. The lock is
# whole, so pip resolves nothing: what names an extra of a package would have it look for newer ones.
$(READY): pyproject.toml uv.lock requirements-dev.lock $(if $(COPIED),prepare-again) | $(BUILD)/tmp
	@set -e; python=; \
	for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(PROBE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Detent needs Python 3.11 or newer with venv; tried: $(strip $(CANDIDATES))." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	if [ -n "$(UV)" ]; then \
	  echo "Preparing $(VENV) with uv; the first time this takes a minute or two"; \
	  "$(UV)" sync --frozen --python "$$python"; \
	else \
	  echo "Preparing $(VENV) with $$python and pip; the first time this takes a minute or two"; \
	  $(BIN)/python -c 'import pip; $(PROBE)' >/dev/null 2>&1 || "$$python" -m venv --clear $(VENV); \
	  pip="$(BIN)/python -m pip --disable-pip-version-check --no-input install"; \
	  rm -f $(BUILD)/installed; \
	  { $$pip --progress-bar off --no-deps --require-hashes -r requirements-dev.lock \
	      && touch $(BUILD)/installed; } 2>&1 | awk -v all="$$(grep -c '^[a-z].*==' requirements-dev.lock)" '$(PROGRESS)'; \
	  test -f $(BUILD)/installed; \
	  $$pip --quiet --no-deps --no-build-isolation -e .; \
	fi; \
	touch $@

# Also when the environment is there already: whoever removes the folder has not removed that.
$(BUILD)/tmp:
	@mkdir -p $@
