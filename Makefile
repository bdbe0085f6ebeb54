# Needs make and Python 3.10 or newer with venv; everything else is installed into $(VENV).
PYTHON ?= python3
VENV ?= .venv
# More than cores: many tests wait for other processes.
JOBS ?= $(shell echo $$(($$(nproc) + 2)))
CORES ?= $(shell nproc)
DIR ?= demo
MINUTES ?= 10
SEED ?= 1
RUNS ?= 200000
SWAPS ?= 10000000

BIN := $(VENV)/bin
# Tests start some hundred Pythons: none of them compiles what another one has compiled, whatever the environment asks for.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder
# Markers of tests that `make test` leaves out: see pyproject.toml.
APART := toolchain or ray or long
.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint check mutants bench toolchains fuzz soak swaps nfs containers systemd slurm gpu frameworks incidents pictures clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) DIR=$(DIR) MINUTES=$(MINUTES) SEED=$(SEED) RUNS=$(RUNS) SWAPS=$(SWAPS)"

demo: $(VENV)/.installed ## Run a small RL job with the sidecar on it, in DIR; FAULT=NAME makes something go wrong
	$(BIN)/python -m rlship demo "$(DIR)"$(if $(FAULT), --fault "$(FAULT)")

test: $(VENV)/.installed-dev ## Test every promise, on JOBS cores (minutes; needs nothing but Python)
	$(PYTEST) -m "not ($(APART))"

test-all: $(VENV)/.installed-dev ## Run what `make test` leaves out: toolchains, Ray, long campaigns, all random cases (half an hour)
	$(PYTEST) -m "$(APART) or statistical" --all-cases

lint: $(VENV)/.installed-dev ## Run the linter, the formatter's check and the type checker
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint test ## Run lint and test

mutants: $(VENV)/.installed-dev ## Break one thing after the other and see that the tests notice (minutes)
	$(BIN)/python -m tests.mutants

bench: $(VENV)/.installed-bench ## Measure, and compare with what is promised
	$(BIN)/python -m benchmarks

toolchains: $(VENV)/.installed-toolchains ## Install what test-all needs: compilers, shells, Node, systemd, Chromium, kubectl, torch, Ray (Debian)
	tests/writers/toolchains.sh "$(VENV)"

fuzz: $(VENV)/.installed-dev ## Fuzz what reads files with RUNS inputs each, guided by coverage (minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[fuzz]"
	$(BIN)/python -m tests.fuzz --runs $(RUNS)

soak: $(VENV)/.installed-dev ## Strike a job and its sidecar at random for MINUTES, from SEED, and look for lost rows
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED) $(if $(LANES),--lanes $(LANES))

swaps: $(VENV)/.installed-dev ## Swap two samples' values SWAPS times; the ledger's digests see each (minutes)
	$(BIN)/python -m tests.ledger.swaps --swaps $(SWAPS)

nfs: $(VENV)/.installed-dev ## Try it on NFS, in a virtual machine (minutes; Debian, and see docs/campaigns.md)
	$(BIN)/python -m tests.nfs

containers: $(VENV)/.installed-dev ## Build the image with podman, run it, play the singleton as a pod (minutes; Debian, root)
	$(BIN)/python -m tests.containers

systemd: $(VENV)/.installed-dev ## Boot systemd in a container and try every unit (minutes; Debian, root)
	$(BIN)/python -m tests.booted

slurm: $(VENV)/.installed-dev ## Run the documented batch script on a Slurm of one node (minutes; Debian and root)
	$(BIN)/python -m tests.slurm

gpu: $(VENV)/.installed-dev ## Try GPU times, tensors and system metrics on a real GPU (VENV needs torch with CUDA)
	$(BIN)/python -m tests.gpu

frameworks: $(VENV)/.installed-dev $(VENV)-frameworks/.installed $(VENV)-ms-swift/.installed $(VENV)-native/.installed ## Train with TRL, ms-swift and others under the sidecar (minutes; 7 GB of packages)
	$(BIN)/python -m tests.frameworks $(VENV)-frameworks $(VENV)-ms-swift $(VENV)-native $(TRY)

incidents: $(VENV)/.installed-dev ## Try alerts and `rlship why` on simulated incidents and healthy runs, on CORES cores (half an hour)
	$(BIN)/python -m benchmarks.incidents --jobs $(CORES)

pictures: $(VENV)/.installed-dev ## Make the page's pictures for the documents, from a demo in headless Chromium
	rm -rf build/pictures && mkdir -p build
	$(BIN)/python -m rlship demo build/pictures --fault zero_rewards
	$(BIN)/python -m tests.page.pictures build/pictures docs/images

clean: ## Remove what tools and builds left behind, but not the virtual environment
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -path "./$(VENV)*" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml as long as what it names need not be installed again.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing rlship and the packages that it needs into $(VENV), with DuckDB for queries: a minute or two, once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[query,view]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-toolchains: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,toolchains]"
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

$(VENV)/.installed-bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@touch $@ $(VENV)/.installed

# verl and torchtitan ask for GPU packages that their loggers do not need. A CPU build of torch is enough: PIP_EXTRA_INDEX_URL
# may name an index that has it. The pins are what the samples in tests/foreign were written by.
$(VENV)-frameworks/.installed: tests/frameworks/trl.txt tests/frameworks/loggers.txt | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-frameworks
	$(VENV)-frameworks/bin/python -m pip install --quiet --disable-pip-version-check -r tests/frameworks/trl.txt
	$(VENV)-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/frameworks/loggers.txt -e .
	@touch $@

# The whole packages of verl, vLLM and TorchTitan, with what their modules import on a CPU and nothing of what they ask for
# beyond it: CUDA kernels, and two versions of torch.
$(VENV)-native/.installed: tests/frameworks/native.txt tests/frameworks/native-alone.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-native
	$(VENV)-native/bin/python -m pip install --quiet --disable-pip-version-check -r tests/frameworks/native.txt
	$(VENV)-native/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/frameworks/native-alone.txt -e .
	@touch $@

$(VENV)-ms-swift/.installed: tests/frameworks/ms-swift.txt | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-ms-swift
	$(VENV)-ms-swift/bin/python -m pip install --quiet --disable-pip-version-check -r tests/frameworks/ms-swift.txt
	@touch $@

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { echo "there is no $(PYTHON); name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10) and "rlship needs Python 3.10 or newer, $(PYTHON) is %d.%d; name another: make PYTHON=/path/to/python3.12" % tuple(sys.version_info[:2]))'
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv; install it (Debian, Ubuntu: apt install python3-venv) or name another: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV)"
	"$(PYTHON)" -m venv "$(VENV)"
