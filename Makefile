# hepcache: make demo | test | test-live | lint | bench | docs
SHELL := /bin/bash
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
.DEFAULT_GOAL := help
# Live tests with neither servers nor links of their own: two at a time.
TOGETHER := $(addprefix tests/live/,compat hdf5 packaging schemas workflow)

.PHONY: help setup demo test test-live lint bench docs pictures recorded lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/.ready ## Make .venv with hepcache and everything it needs

# The lock makes every machine run the same versions; hepcache itself is editable.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hepcache needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, run 'apt-get install python3-venv' as root"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep -o '^uv==[^ ;]*' requirements.lock)
	@# uv is some ten times faster than pip; where it can't reach the registry as pip does, pip does it.
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## Make a NanoAOD sample, run five cycles, print the table, write the report
	$(BIN)/hepcache demo --out out/demo

test: setup ## Run the tests and the doctests, in minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-live: setup ## Run the tests that take longer: many processes, real servers, pools and machines
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow
	$(BIN)/python -m pytest -n 2 --dist loadfile $(TOGETHER)
	$(BIN)/python -m pytest tests/live $(addprefix --ignore=,$(TOGETHER))

lint: setup ## Check style, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Run every benchmark in its quick form, one JSON object each
	$(BIN)/hepcache bench all --quick --out out/bench

docs: setup ## Build the documentation, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

pictures: setup ## Make the documentation's screenshot anew, in a browser
	HEPCACHE_PICTURES=$(CURDIR)/docs/images $(BIN)/python -m pytest tests/live/dashboard

recorded: setup ## Execute the notebook about HTCondor anew, in a pool, and keep what it shows
	HEPCACHE_RECORDED=$(CURDIR)/notebooks $(BIN)/python -m pytest tests/live/condor/test_notebook.py

lock: ## Resolve requirements.lock anew from pyproject.toml
	$(PYTHON) -m venv out/lock && out/lock/bin/python -m pip install --quiet uv
	out/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --extra docs --no-header --no-annotate pyproject.toml -o requirements.lock

clean: ## Remove what the targets above made
	rm -rf $(VENV) out docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
