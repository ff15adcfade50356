# Aliquot's everyday commands. Each sets up what it needs in .venv; only Python >= 3.11 (venv, pip), cc and make are assumed.
PYTHON ?= python3
VENV   := .venv
JOBS   ?= 4
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
STAMPS := $(VENV)/stamps

SHIM_SOURCES   := setup.py arbiter/_arbiter_build.py $(wildcard arbiter/src/*) scheduler_ext/scoring/_scoring_build.py $(wildcard scheduler_ext/scoring/src/*) libshim/_pages_build.py libshim/Makefile $(wildcard libshim/include/* libshim/src/*.* libshim/src/hooks/* libshim/forwarder/*.def libshim/forwarder/forward* libshim/*.mk)
DRIVER_SOURCES := $(wildcard sandbox/driver/Makefile $(foreach kind,c h def,sandbox/driver/*/*.$(kind)))

# Without compiled modules every worker of the tests, and every service that they start, compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help help-all demo test test-full test-timing lint format bench wheel native clean setup-demo setup-test setup-lint

help:
	@echo 'make demo         the whole path on this machine; no GPU and no Kubernetes needed'
	@echo 'make test         whether the code is right, on any machine, however busy it is; JOBS=4 modules at a time'
	@echo 'make test-timing  tests that judge time; a run on a busy machine is discarded and repeated'
	@echo 'make test-full    everything that make test leaves out; says what was not run'
	@echo 'make lint         ruff, mypy, import-linter, C warnings with two compilers'
	@echo 'make format       formats the Python code'
	@echo 'make bench        figures, one JSON object a line'
	@echo 'make wheel        dist/aliquot-….whl for x86-64 and aarch64, every glibc since 2.17'
	@echo 'make clean        removes what the others made'
	@echo 'make help-all     every other target: single parts of test-full, long runs, single benches'

help-all: help
	@$(MAKE) --no-print-directory -C tests help
	@$(MAKE) --no-print-directory -C bench help

demo: setup-demo
	@$(BIN)/aliquot demo

# Fewer workers than tests wait at once, more than this machine has processors. A module's tests stay together.
BESIDE = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: setup-test
	$(BESIDE) -m 'not timing and not slow and not gpu and not cluster and not driver'

test-timing: setup-test
	@$(MAKE) --no-print-directory -C tests timing

# Tests on real components wait more than they compute, so others run beside them; each says all when it has ended.
# The two longest begin; what needs no node fills the place of the one that ends first.
test-full: setup-test
	@$(MAKE) --no-print-directory -C tests -j2 --output-sync=target cluster-node slow control-plane driver properties model
	@$(MAKE) --no-print-directory -C tests timing
	@.ci/not-run

lint: setup-test setup-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory -C libshim lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C sandbox/driver lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C arbiter lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C scheduler_ext/scoring lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'

format: setup-lint
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

bench: setup-test
	@$(MAKE) --no-print-directory -C bench all

# ziglang brings the libraries of every glibc and compiles for both processors. What is built follows from the sources, this
# compiler and Python's own flags; the files' times are those of the last commit. Debian's Python has its pyconfig.h in a
# directory named after this processor, which a compiler for another system does not search.
ARCHS ?= x86_64 aarch64
DIST  ?= dist
WHEELS = $(ARCHS:%=wheel-%)
OWN_HEADERS = import sysconfig as s; print(s.get_path("include").rpartition("/")[0], s.get_config_var("MULTIARCH"), sep="/")
.PHONY: $(WHEELS)
wheel: $(WHEELS)
$(WHEELS): wheel-%: setup-test
	@mkdir -p build/wheel/include
	@ln -sfn "$$($(BIN)/python -c '$(OWN_HEADERS)')" build/wheel/include/$*-linux-gnu
	@printf '[build]\nbuild_base = build/wheel/%s\n[bdist_wheel]\nplat_name = manylinux_2_17_%s\n' $* $* > build/wheel/$*.cfg
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} DIST_EXTRA_CONFIG='$(CURDIR)/build/wheel/$*.cfg' \
	  CC='$(CURDIR)/$(BIN)/python -m ziglang cc -target $*-linux-gnu.2.17' CFLAGS='-O2 -Ibuild/wheel/include' LDFLAGS=-s; \
	LDSHARED="$$CC -shared" $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) .
	@ls $(DIST)/*_$*.whl

native: $(STAMPS)/native

clean:
	rm -rf $(VENV) build dist *.egg-info libshim/build libshim/*.so libshim/forwarder/*.so.1 libshim/_pages.c arbiter/*.so arbiter/_arbiter.c scheduler_ext/scoring/*.so scheduler_ext/scoring/_scoring.c sandbox/driver/build \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up: one stamp a dependency group, so that the demo does not wait for the test tools ----

setup-demo: $(STAMPS)/native $(STAMPS)/demo
setup-test: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/compiled
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

# pytest compiles the tests' modules in its own way; without this each worker of the first run would compile them all at once.
# What cannot be collected is told by the tests themselves.
$(STAMPS)/compiled: $(STAMPS)/native $(STAMPS)/test
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

$(STAMPS)/native: $(STAMPS)/package $(SHIM_SOURCES) $(DRIVER_SOURCES)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@$(MAKE) --no-print-directory --silent -C sandbox/driver
	@touch $@
