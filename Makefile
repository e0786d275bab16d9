# One command a job; each sets up what is missing first.
#   make bench   compare the systems under a memory cap, draw the figures    (PROFILE=smoke|quick|standard|paper FIGURES=headline|all|id,id)
#   make figures every figure and claim of the reference results in results/reference, without a run
#   make test    run the tests, the slow ones apart    make test-all    run all of them
#   make docs    build the docs site into build/site
#   make gpu     prove and measure the GPU path, on a machine with a GPU
PROFILE ?= quick
FIGURES ?= headline
PYTEST_ARGS ?=
SLOW ?= none

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find workloads/native systems/native -type f) CMakeLists.txt pyproject.toml

# A process of ours that compiles its modules each time takes a second longer to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench figures test test-all lint report docs sanitize benchmarks gpu setup clean

bench: setup
	@$(BIN)/outcore bench --profile $(PROFILE) --figures $(FIGURES)

figures: setup
	@$(BIN)/outcore report --reference results/reference

test: setup
	@scripts/setup --browser
	@scripts/setup --triton
	@scripts/test --slow $(SLOW) $(PYTEST_ARGS)

test-all:
	@$(MAKE) --no-print-directory test SLOW=all

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@scripts/lint-native

report: setup
	@$(BIN)/outcore report

docs: build/docs-venv/.installed
	@PATH="$$PWD/build/docs-venv/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

build/docs-venv/.installed: requirements-docs.lock
	@PYTHON=$(PYTHON) scripts/setup --docs
	@touch $@

# The native code again under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.
sanitize: setup
	@scripts/sanitize

# Ours beside the alternatives, interleaved; needs the peers of requirements-bench.lock.
benchmarks: setup
	@scripts/benchmarks

# Every phase runs, whatever the phases before it found.
gpu: setup
	@status=0; for phase in check measure compare; do scripts/gpu $$phase || status=$$?; [ $$status = 2 ] && break; done; exit $$status

# Asked for by name, it ends with the way to the command.
setup: $(VENV)/.built
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "ready: source $(VENV)/bin/activate gives the command outcore in this terminal; or call $(BIN)/outcore",:)

# Builds the native modules again; after a change of the packages, and the first time, it installs these, too.
$(VENV)/.built: requirements.lock scripts/setup $(NATIVE)
	@PYTHON=$(PYTHON) scripts/setup $(if $(filter requirements.lock scripts/setup,$?),,--build)
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
