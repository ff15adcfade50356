# Aliquot's everyday commands. Each sets up what it needs in .venv; only Python >= 3.11 (venv, pip), cc and make are assumed.
PYTHON ?= python3
VENV   := .venv
JOBS   ?= 4
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
STAMPS := $(VENV)/stamps

SHIM_SOURCES   := setup.py arbiter/_arbiter_build.py $(wildcard arbiter/src/*) scheduler_ext/laying/_laying_build.py $(wildcard scheduler_ext/laying/src/*) libshim/_pages_build.py libshim/Makefile $(wildcard libshim/include/* libshim/src/* libshim/src/hooks/* libshim/forwarder/*.def libshim/forwarder/forward* libshim/*.mk)
TRACED         := $(CURDIR)/libshim/build/trace.json
DRIVER_SOURCES := $(wildcard sandbox/driver/Makefile $(foreach kind,c h def,sandbox/driver/*/*.$(kind)))

.PHONY: help demo test test-full test-cluster chaos api-down shim-chaos fuzz test-gpu coverage-report check-new-cuda lint format bench bench-quality bench-sched bench-shim bench-compute soak-compute native clean setup-demo setup-test setup-lint

help:
	@echo 'make demo       the whole path on this machine, no GPU and no Kubernetes needed'
	@echo 'make test       the tests, JOBS=4 at a time: what computes, what measures time, and one by one what needs the machine'
	@echo 'make test-full  the long tests that make test leaves out; says what was not run'
	@echo 'make test-cluster  the tests on real Kubernetes components; the first time builds these with Go, which takes long'
	@echo 'make chaos      kills everything at random for MINUTES=10, SEED=n repeats a run'
	@echo 'make api-down   the API server is away from a whole cluster for MINUTES=10'
	@echo 'make shim-chaos  two tenants do everything to one card while processes are killed and limits change; MINUTES=10, SEED=n'
	@echo 'make fuzz       fuzzes pages and sequences of calls for MINUTES=10 with libFuzzer; keeps what is new in the corpus'
	@echo 'make test-gpu   the quota and its cost on a real card, with the Python that ALIQUOT_GPU_PYTHON names'
	@echo 'make coverage-report  every driver function that matters: what is done about it, and which tests enter it'
	@echo 'make check-new-cuda   names what the newest cuda-bindings have and the hook table has not'
	@echo 'make lint       ruff, mypy, import-linter, C warnings with two compilers'
	@echo 'make bench      figures, one JSON object a line'
	@echo 'make bench-quality  how much of a real cluster placement fills; TRACES=DIR has the traces, SEEDS=10, WHAT="default churn-default", VIA_HTTP=1'
	@echo 'make bench-sched   the extender at 5,000 nodes, from outside: filter, bind, start, memory; some minutes'
	@echo 'make bench-shim of these, what the interceptor adds to a call; WHAT="launch alloc" some of them'
	@echo 'make bench-compute  shares of compute time, 50 minutes; CASES="single* pair/50*" some of them, SECONDS=8, RUNS=3'
	@echo 'make soak-compute   random mixes of tenants on one card; MIXES=200, SEED=n repeats them, CASES="mix/1/7" some of them'
	@echo 'make clean      removes what the others made'

demo: setup-demo
	@$(BIN)/aliquot demo

# A module's tests stay together, in the order of the modules: those that start whole clusters come early. Collecting all
# tests takes each worker seconds, so the later passes are told their files, in an order that is the same everywhere.
BESIDE = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
MARKED = grep -rl --include='test_*.py' mark.$(1) tests | LC_ALL=C sort

test: setup-test
	$(BESIDE) -m 'not timed and not alone and not slow and not gpu and not cluster'
	$(BESIDE) -m 'timed and not alone and not slow and not gpu and not cluster' $$($(call MARKED,timed))
	$(BIN)/pytest -m 'alone and not slow and not gpu and not cluster' $$($(call MARKED,alone))

test-full: setup-test
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'slow and not timed and not alone and not gpu and not cluster'
	$(BIN)/pytest -m 'slow and (timed or alone) and not gpu and not cluster'
	$(MAKE) --no-print-directory test-cluster
	@.ci/not-run

# What cannot be had here (no Go, no root) is skipped test by test, with NOT RUN and the reason. The first test waits for images.
test-cluster: setup-test
	@$(BIN)/python -m tests.cluster.programs >/dev/null || true
	$(BIN)/pytest --timeout 900 -m cluster $$($(call MARKED,cluster))

chaos: setup-test
	MINUTES=$(or $(MINUTES),10) $(if $(SEED),SEED=$(SEED)) $(BIN)/pytest -s tests/integration/chaos/test_chaos.py

api-down: setup-test
	MINUTES=$(or $(MINUTES),10) $(BIN)/pytest -s tests/cluster/faults/test_api_down.py

shim-chaos: setup-test
	MINUTES=$(or $(MINUTES),10) $(if $(SEED),SEED=$(SEED)) $(BIN)/pytest -s tests/native/chaos

fuzz: setup-test
	$(BIN)/python -m tests.fuzz.fuzzing --minutes $(or $(MINUTES),10)

# ALIQUOT_GPU_PYTHON names the Python whose PyTorch and CuPy are tested.
test-gpu: setup-test
	$(BIN)/pytest -m gpu -rs
	$(BIN)/python bench/gpu/overhead.py

# The native tests run on the interceptor's tracing flavour; what each of them entered is kept beside it.
coverage-report: setup-test
	@$(BIN)/python -m tests.native.tracing $(TRACED)
	@$(BIN)/python -m libshim.coverage.report $(TRACED)

check-new-cuda: $(STAMPS)/venv
	@$(BIN)/python -m libshim.coverage.new_cuda

lint: setup-test setup-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory -C libshim lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C sandbox/driver lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C arbiter lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'
	$(MAKE) --no-print-directory -C scheduler_ext/laying lint ZIG='$(CURDIR)/$(BIN)/python -m ziglang cc'

format: setup-lint
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

# TRACES is a directory with the files of cluster-trace-gpu-v2023 that docs/placement.md names.
bench-quality: setup-test
	@$(BIN)/python bench/quality.py --traces '$(TRACES)' --seeds $(or $(SEEDS),10) $(if $(VIA_HTTP),--via-http) $(WHAT)

bench: setup-test
	@for program in $(filter-out bench/cluster_scale.py bench/cluster_start.py bench/compute.py bench/observe.py bench/quality.py bench/sched.py bench/start.py,$(wildcard bench/*.py)); do $(BIN)/python $$program || exit 1; done

bench-sched: setup-test
	@$(BIN)/python bench/sched.py $(WHAT)

bench-shim: setup-test
	@$(BIN)/python bench/shim.py $(WHAT)

bench-compute: setup-test
	@CASES='$(CASES)' SECONDS=$(or $(SECONDS),8) RUNS=$(or $(RUNS),3) $(BIN)/python bench/compute.py

soak-compute: setup-test
	@MIXES=$(or $(MIXES),200) SEED=$(or $(SEED),1) CASES='$(CASES)' SECONDS=$(or $(SECONDS),8) $(BIN)/python bench/compute.py soak

native: $(STAMPS)/native

clean:
	rm -rf $(VENV) build dist *.egg-info libshim/build libshim/*.so libshim/forwarder/*.so.1 libshim/_pages.c arbiter/*.so arbiter/_arbiter.c scheduler_ext/laying/*.so scheduler_ext/laying/_laying.c sandbox/driver/build \
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
