# hepcache: make demo | test | test-oldest | test-newest | test-pythons | test-live | lint | docs
SHELL := /bin/bash
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
.DEFAULT_GOAL := help
# Tests start hundreds of Python processes. Where no bytecode may be kept (containers often say
# so), each one compiles all that it imports, which takes four times as long as the imports.
unexport PYTHONDONTWRITEBYTECODE
# Rooms that stand on other packages, and what these tests need of what users install.
ROOMS  := $(addprefix tests/,process scheduling formats compat upstream)
# Of these, what comes closest to other packages, in three minutes: all of it with SHORT=1.
CLOSE  := $(addprefix tests/,upstream scheduling/test_{heartbeats,plugin,queues}.py \
  formats/test_{root,rntuple_in_file}.py formats/ttree/test_{baskets,source,tree_description}.py \
  process/test_{forms,lazy_columns,open_files,prefetch,runner,runner_events}.py \
  compat/test_{call_forms,copies,counts,executors,names,options}.py)
TRIED  := $(if $(SHORT),$(CLOSE),$(ROOMS))
EXTRAS := $(addprefix --extra ,dashboard examples hdf5 htcondor objects remote) --group test
# What hepcache reaches into: a newer release of one of these is worth a run of its own.
REACHED := awkward|coffea|dask|distributed|numba|numpy|uproot

.PHONY: help setup demo test test-oldest test-newest test-pythons test-live lint bench docs pictures recorded lock clean newest

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/.ready ## Make .venv with hepcache and everything it needs

# The lock makes every machine run the same versions; hepcache itself is editable.
$(VENV)/.ready: requirements.lock pyproject.toml benchmarks/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hepcache needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, run 'apt-get install python3-venv' as root"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep -o '^uv==[^ ;]*' requirements.lock)
	$(call install,$(VENV),requirements.lock)
	@touch $@

# uv is some ten times faster than pip; where it can't reach the registry as pip does, pip does it.
define install
$(BIN)/uv pip install --quiet --python $(1)/bin/python -r $(2) || \
  $(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2)
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable benchmarks
endef

demo: setup ## Make a NanoAOD sample, run five cycles, print the table, write the report
	$(BIN)/hepcache demo --out out/demo

test: setup ## Run the tests and the doctests, in minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-oldest: out/oldest/.ready ## Run the tests of what stands on other packages with their oldest versions; SHORT=1: some
	out/oldest/bin/python -m pytest -n 2 --dist loadfile -m "not slow" $(TRIED)

out/oldest/.ready: requirements.oldest pyproject.toml | setup
	@command -v python3.11 > /dev/null || { echo "the oldest versions are those for Python 3.11: python3.11 is not there"; exit 1; }
	@rm -rf out/oldest && python3.11 -m venv out/oldest
	$(call install,out/oldest,requirements.oldest)
	@touch $@

test-newest: setup ## Run the same tests where there are newer versions than the lock's
	@mkdir -p out && $(BIN)/uv pip compile --quiet --no-header --no-annotate --python $(BIN)/python $(EXTRAS) pyproject.toml -o out/newest.txt || \
	  { echo "nothing tried: uv can't ask the registry for the newest versions"; exit 0; }; \
	newer=$$(grep -E '^($(REACHED))==' out/newest.txt | grep -vxFf <(sed 's/ *;.*//' requirements.lock)); \
	if [ -z "$$newer" ]; then echo "nothing tried: the lock has the newest versions"; exit 0; fi; \
	echo "newer than the lock:" $$newer; $(MAKE) --no-print-directory newest

newest:
	@rm -rf out/newest && $(BIN)/python -m venv out/newest
	$(call install,out/newest,out/newest.txt)
	@# What a new release announces for later ends nothing today.
	out/newest/bin/python -m pytest -n 2 --dist loadfile -m "not slow" $(TRIED) \
	  $(foreach kind,Deprecation PendingDeprecation Future,-W default::$(kind)Warning)

test-pythons: setup ## Run some of them on every Python of this machine; docs/versions.md shows the result
	$(BIN)/python tests/pythons.py $(EXTRAS) -- $(CLOSE)

test-live: setup ## Run the tests that take longer: real servers, pools, machines; ROOM=condor: one room's
ifdef ROOM
	$(BIN)/python -m pytest tests/live/$(ROOM)
else
	@# All rooms share the two processes, each room in one of them: see tests/distribution.py.
	$(BIN)/python -m pytest -n 2 --dist loadfile -o "norecursedirs=.* build dist out golden" -m "slow or live"
endif

lint: setup ## Check style, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Run every benchmark in its quick form, one JSON object each
	$(BIN)/hepcache bench all --quick --out out/bench

docs: setup ## Build the documentation, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

pictures: setup ## Make README's figure anew, and in a browser the screenshot
	$(BIN)/hepcache demo --cycles 10 --out out/demo
	$(BIN)/hepcache report figures out/demo --out out/figures --format png
	cp out/figures/cycles.png docs/images/
	HEPCACHE_PICTURES=$(CURDIR)/docs/images $(BIN)/python -m pytest tests/live/dashboard

recorded: setup ## Execute the notebooks anew, that about HTCondor in a pool, and keep what they show
	$(BIN)/python -m tests.notebooks.record $(filter-out htcondor,$(basename $(notdir $(wildcard notebooks/*.ipynb))))
	HEPCACHE_RECORDED=$(CURDIR)/notebooks $(BIN)/python -m pytest tests/live/condor/test_notebook.py

lock: ## Resolve the lists of versions anew from pyproject.toml
	$(PYTHON) -m venv out/lock && out/lock/bin/python -m pip install --quiet uv
	out/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --extra docs --no-header --no-annotate pyproject.toml -o requirements.lock
	@# What a facility's machines need, in the same versions.
	out/lock/bin/uv pip compile --quiet --universal --python-version 3.11 $(addprefix --extra ,dashboard hdf5 htcondor objects remote) --constraints requirements.lock --no-header --no-annotate pyproject.toml -o deploy/ansible/roles/environment/files/requirements.txt
	out/lock/bin/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 $(EXTRAS) --constraints tests/oldest-constraints.txt --no-header --no-annotate pyproject.toml -o requirements.oldest

clean: ## Remove what the targets above made
	rm -rf $(VENV) out docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
