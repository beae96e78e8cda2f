# On a bare machine with Python 3.11 two commands do everything: `make demo` and `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv test quick nightly lint format types contract pytest demo bench docs clean

# The first interpreter from 3.11 on that can make a virtual environment; or `make PYTHON=...`.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
STAMP := .venv/installed
# torch 2.13.0 by its exact version, so that a CPU build that pip knows of wins over a newer release.
TORCH := torch==2.13.0
EXTRAS := cli,dask,search,testing,torch,tlm,onnx,peers,nvrtc,docs,dev
WORKERS ?= 2
PROFILE ?= ci
# What others are measured against comes first.
BENCHES := peak matmul conv streams vecmath call_overhead parallel levels compile_time resnet50 workloads networks emulator

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 12

venv: $(STAMP)  ## .venv with an editable install of all that runs without a GPU

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv and pip was found" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) --editable '.[$(EXTRAS)]'
	touch $(STAMP)

test: lint types contract pytest  ## lint, types, import contract and all tests

quick: PYTEST_ARGS := -m 'not slow and not bench'
quick: PROFILE := dev
quick: lint types contract pytest  ## the same without the slow tests

nightly: PROFILE := nightly
nightly: pytest  ## all tests with 10,000 examples a property

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## rewrite the sources as `lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy --strict on the package
	$(BIN)/mypy

contract: $(STAMP)  ## the layers of the package
	$(BIN)/lint-imports

pytest: $(STAMP)  ## the tests alone; PYTEST_ARGS adds arguments
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --hypothesis-profile $(PROFILE) $(PYTEST_ARGS)

demo: $(STAMP)  ## ResNet-50 by the rules and by the language model, beside ONNX Runtime and torch
	$(BIN)/tensorc demo

bench: $(STAMP)  ## every script in bench/ that measures, about half an hour on a quiet machine
	failed=; for script in $(BENCHES); do echo; echo "== $$script"; \
	$(BIN)/python -m bench.$$script || failed="$$failed $$script"; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

docs: $(STAMP)  ## docs/_build/html
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

clean:  ## remove the virtual environment and everything generated
	rm -rf .venv docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
