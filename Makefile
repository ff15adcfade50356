# Aliquot's everyday commands. Each sets up what it needs in .venv; only Python >= 3.11 (venv, pip), cc and make are assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
STAMPS := $(VENV)/stamps

SHIM_SOURCES   := setup.py libshim/_pages_build.py libshim/Makefile $(wildcard libshim/include/* libshim/src/* libshim/src/hooks/*)
DRIVER_SOURCES := $(wildcard sandbox/driver/Makefile $(foreach kind,c h def,sandbox/driver/*/*.$(kind)))

.PHONY: help demo test test-full chaos lint format bench native clean setup-demo setup-test setup-lint

help:
	@echo 'make demo       the whole path on this machine, no GPU and no Kubernetes needed'
	@echo 'make test       the tests'
	@echo 'make test-full  the long tests that make test leaves out; says what was not run'
	@echo 'make chaos      kills everything at random for MINUTES=10, SEED=n repeats a run'
	@echo 'make lint       ruff, mypy, import-linter, C warnings with two compilers'
	@echo 'make bench      figures, one JSON object a line'
	@echo 'make clean      removes what the others made'

demo: setup-demo
	@$(BIN)/aliquot demo

test: setup-test
	$(BIN)/pytest -m 'not slow'

test-full: setup-test
	$(BIN)/pytest -m slow
	@.ci/not-run

chaos: setup-test
	MINUTES=$(or $(MINUTES),10) $(if $(SEED),SEED=$(SEED)) $(BIN)/pytest -s tests/integration/journey/test_chaos.py

lint: setup-test setup-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory -C libshim lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C sandbox/driver lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'

format: setup-lint
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

bench: setup-test
	@for program in bench/*.py; do $(BIN)/python $$program || exit 1; done

native: $(STAMPS)/native

clean:
	rm -rf $(VENV) build dist *.egg-info libshim/build libshim/*.so libshim/_pages.c sandbox/driver/build \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up: one stamp a dependency group, so that the demo does not wait for the test tools ----

setup-demo: $(STAMPS)/native $(STAMPS)/demo
setup-test: $(STAMPS)/native $(STAMPS)/test
setup-lint: $(STAMPS)/lint

$(STAMPS)/venv: constraints.txt
	@echo 'setting up $(VENV) ...'
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Aliquot needs Python >= 3.11; set PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip setuptools wheel cffi
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/package: $(STAMPS)/venv pyproject.toml setup.py
	@$(PIP) --quiet --no-build-isolation --editable .
	@touch $@

$(STAMPS)/demo $(STAMPS)/test $(STAMPS)/lint: $(STAMPS)/package
	@$(PIP) --group $(@F)
	@touch $@

$(STAMPS)/native: $(STAMPS)/package $(SHIM_SOURCES) $(DRIVER_SOURCES)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@$(MAKE) --no-print-directory --silent -C sandbox/driver
	@touch $@
