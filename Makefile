# Everything that a fresh machine needs: Python 3.11+ with venv and pip. See CONTRIBUTING.md.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Spinning OpenMP threads beyond the free cores make everything five to twenty times slower.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
EXTRAS := dev,verifier,mlx,gguf,torch,bench,sim
PYTEST := $(PY) -m pytest
# Processes that share the fast tests, a file at a time. The long ones run alone: some of them measure.
TESTERS ?= 2

.PHONY: help setup install model demo test test-all check browser tools proto dictionary traces clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /	/' | expand -t 14

$(STAMP): pyproject.toml setup.cfg
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip 'setuptools>=77'
	@# torch first and by pip: other installers, and open ranges, bring a CUDA build of several GB.
	$(PY) -m pip install --quiet 'torch>=2.11,<=2.13.0'
	$(PY) -m pip install --quiet --no-build-isolation --editable '.[$(EXTRAS)]'
	touch $@

setup: install model ## virtual environment, all packages, the default model

install: $(STAMP)
	@# A strict editable install links files one by one: new ones appear only after another install.
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable . 2>/dev/null || \
	  $(PY) -m pip install --no-deps --no-build-isolation --editable .

model: install
	@$(VENV)/bin/acespec models pull smollm2-135m

demo: setup ## plain cloud decoding against drafted, over an enforced 50 Kbps link
	$(PY) -m acespec.bench.demo

check: install ## lint, format, types, import rules, generated files
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy -p acespec.proto -p acespec.models -p acespec.kernels -p acespec.edge -p acespec.cloud -p acespec.sim -p acespec.bench
	$(VENV)/bin/lint-imports
	$(PY) scripts/generate_stubs.py --check

test: check model browser ## check, then the tests (under 15 minutes on 2 cores)
	$(PYTEST) -n $(TESTERS) --dist loadfile -m "not slow"

test-all: check model browser tools ## and the long ones
	$(PYTEST) --timeout 900

browser: # for the tests of the page, which are skipped without one
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 || \
	  echo "no Chromium, and apt-get cannot install it here: the page's tests in a browser are skipped" >&2

tools:
	@command -v tcpdump >/dev/null || (apt-get update -qq && apt-get install -y -qq tcpdump iproute2)

proto: install ## regenerate the gRPC stubs
	$(PY) scripts/generate_stubs.py

traces: install ## record the acceptance traces of the real pair again (1.6 GB of downloads, an hour)
	$(PY) -m acespec.bench.acceptance --record

dictionary: install ## retrain the prompt dictionary from proto/dictionary_*.txt
	$(PY) -m acespec.proto.train_dictionary

clean: ## remove everything that was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
