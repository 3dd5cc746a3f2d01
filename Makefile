# Everything a checkout can do. `make help` lists the targets; each sets up .venv by itself.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   ?= sample_data
SIZE   ?= 64x64
LIMIT  ?= 600
QUALITY ?= 60
LARGE  ?= $(DATA)
SECONDS ?= 60
WORK   ?= build/paper

.PHONY: help setup site demo test check format faults fuzz compat oldest flows browser bench-stage bench-fit bench-rd look bench-psnr bench-targets bench-encode bench-scores bench-read bench-cluster paper rivals pictures sample-data kernel kernel-check priors priors-exact bench-exact clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp is newer than pyproject.toml when the environment holds what the project asks for.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "tpca needs Python 3.10 or later; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing tpca into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(VENV)/ready-kernel: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,kernel]'
	@touch $@

$(VENV)/ready-bench: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@

$(VENV)/ready-site: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,site]'
	@touch $@

setup: $(VENV)/ready ## create .venv and install tpca into it

site: $(VENV)/ready-site ## build the documentation into build/site; warnings and broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

demo: $(VENV)/ready ## compress sample_data/ into one file, restore it, and show both
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/demo.sh

test: $(VENV)/ready ## run the tests
	@$(BIN)/python -m pytest

check: $(VENV)/ready ## format, lint, types, tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest

format: $(VENV)/ready ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

faults: $(VENV)/ready ## crash, disk, damage and hostile-file tests (needs strace): [CVE=folder of HDF5 files]
	@command -v strace >/dev/null || { echo "make faults needs strace: install it with your package manager"; exit 1; }
	@TPCA_CVE="$(CVE)" $(BIN)/python -m pytest -o addopts= -q --import-mode=importlib tests/faults

$(VENV)/ready-fuzz: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,fuzz]'
	@touch $@

fuzz: $(VENV)/ready-fuzz ## fuzz index, bundle, blocks, exact blocks and images, guided by coverage: SECONDS=60 for each
	@for target in index bundle block exact image; do $(BIN)/python tests/fuzz/fuzz.py $$target $(SECONDS) || exit 1; done

compat: $(VENV)/ready ## decode the golden archives with the oldest and the newest wasmtime that are allowed
	@$(BIN)/python tests/golden/compat.py

oldest: ## the tests with the oldest libraries that are allowed: PYTHON=python3.10
	@$(PYTHON) tests/oldest.py

flows: $(VENV)/ready ## the calls from module to module of encode, decode and fit-basis
	@$(BIN)/python tests/trace_flows.py

browser: $(VENV)/ready ## the HTML report in a real browser (needs chromium and chromedriver)
	@command -v chromium >/dev/null || { echo "make browser needs chromium: install it with your package manager"; exit 1; }
	@command -v chromedriver >/dev/null || { echo "make browser needs chromedriver: install it with your package manager"; exit 1; }
	@$(BIN)/python -m pytest -o addopts= -q --import-mode=importlib tests/browser

bench-stage: $(VENV)/ready-bench ## staging speed: DATA=folder [RESIZE=HxW]
	@$(BIN)/python tests/benchmarks/stage.py $(DATA) $(if $(RESIZE),--size $(RESIZE))

bench-fit: $(VENV)/ready-bench ## fitting speed and memory beside other tools, twelve minutes: DATA=folder
	@$(BIN)/python tests/benchmarks/fit.py $(DATA) --all-pairs

bench-rd: $(VENV)/ready-bench ## bytes at equal PSNR, SSIM and SSIMULACRA 2 beside image codecs: DATA=folder SIZE=64x64 LIMIT=600
	@$(BIN)/python tests/benchmarks/curves.py $(DATA) --size $(SIZE) --limit $(LIMIT)

look: $(VENV)/ready-bench ## a page with crops at equal bytes beside AVIF, JPEG XL, WebP: DATA=folder QUALITY=60 LIMIT=6
	@$(BIN)/python tests/benchmarks/look.py $(DATA) --quality $(QUALITY) --limit $(if $(filter 600,$(LIMIT)),6,$(LIMIT)) -o build/look.html

bench-psnr: $(VENV)/ready-bench ## bytes and times at given PSNR beside image codecs: DATA=folder SIZE=64x64 LIMIT=600
	@$(BIN)/python tests/benchmarks/rd.py $(DATA) --size $(SIZE) --limit $(LIMIT)

bench-targets: $(VENV)/ready ## are --psnr and --max-bytes kept: DATA=folder
	@$(BIN)/python tests/benchmarks/targets.py $(DATA)

bench-encode: $(VENV)/ready-bench ## what the whole command costs, beside WebP and AVIF: DATA=folder LIMIT=600 [MEMORY=512M] [ROWS=psnr]
	@$(BIN)/python tests/benchmarks/encode.py $(DATA) --limit $(LIMIT) $(if $(MEMORY),--memory $(MEMORY)) $(if $(ROWS),--only $(ROWS))

bench-read: $(VENV)/ready-bench ## images a second from an archive and from files: DATA=folder LIMIT=600
	@$(BIN)/python tests/benchmarks/read.py $(DATA) --limit $(LIMIT)

paper: $(VENV)/ready-bench ## the paper's experiments into docs/EXPERIMENTS.md: DATA=folder
	@$(BIN)/python tests/benchmarks/paper.py $(DATA) --work $(WORK)

rivals: $(VENV)/ready-bench ## Tucker, tensor train, MPCA and PCA beside tensor PCA, into docs/EXPERIMENTS.md: DATA=folder
	@$(BIN)/python tests/benchmarks/rivals.py $(DATA)

pictures: $(VENV)/ready ## draw the README's pictures from sample_data/
	@sh docs/pictures/make.sh

bench-scores: $(VENV)/ready ## encode --plain beside decoding and one product of BLAS: DATA=folder SIZE=64x64
	@$(BIN)/python tests/benchmarks/scores.py $(DATA) --size $(SIZE)

bench-cluster: $(VENV)/ready ## two workers beside one: DATA=folder LARGE=folder of larger images
	@$(BIN)/python tests/benchmarks/cluster.py $(DATA) $(LARGE)

kernel: $(VENV)/ready-kernel ## build the compiled kernels anew, with the pinned compiler
	@$(BIN)/python tools/build_kernels.py

kernel-check: $(VENV)/ready-kernel ## are the compiled kernels what their sources give
	@$(BIN)/python tools/build_kernels.py --check

sample-data: $(VENV)/ready ## make sample_data/ anew
	@$(BIN)/python sample_data/generate.py

priors: $(VENV)/ready ## fit the constants of the codec anew into priors.json, four minutes: DATA="folder folder"
	@$(BIN)/python tools/fit_priors.py $(DATA) -o priors.json

priors-exact: $(VENV)/ready ## train the models of exact coding: DATA="folder folder"
	@$(BIN)/python tools/fit_exact_priors.py $(DATA)

bench-exact: $(VENV)/ready-bench ## bytes, speed and identity of exact archives beside lossless codecs: DATA=folder (of sets) LIMIT=200 [RESIZE=HxW]
	@$(BIN)/python tests/benchmarks/exact.py $(DATA) --limit $(if $(filter 600,$(LIMIT)),200,$(LIMIT)) $(if $(RESIZE),--size $(RESIZE))

clean: ## remove what the targets made
	rm -rf demo_out .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz build dist *.egg-info
