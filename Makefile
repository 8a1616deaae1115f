# The one door for commands. Needs: make, Python 3.9 or newer, a C compiler; Rust for the first set-up; npm for tests.
PYTHON ?= python3
PORT ?= 8000
MODEL ?= smollm2
ARGS ?=

.PHONY: help setup serve test lint type unit ext tokenizers fuzz soak soak-engine bench interop bench-peers clean distclean

help:
	@echo "make serve       set up what is missing, then serve $(MODEL) on port $(PORT) (more options: ARGS=...)"
	@echo "make test        set up what is missing, then lint, types and all tests (pytest options: ARGS=...)"
	@echo "make setup       interpreter, environments, extensions and model"
	@echo "make unit        tests without set-up, lint and types"
	@echo "make lint, type  ruff; mypy"
	@echo "make ext         rebuild changed extension modules"
	@echo "make tokenizers  fetch the tokenizers that tests use"
	@echo "make fuzz        fuzz the native modules and the HTTP server for a minute each"
	@echo "make soak        200,000 short requests from 64 connections; prints memory and descriptors"
	@echo "make soak-engine mixed load on the native engine for 10 minutes: blocks, memory and processes (ARGS='--minutes 2')"
	@echo "make bench       the token path alone: CPU per token, and two lanes against one"
	@echo "make interop     fastfront's and vLLM's frontends in front of our engines and vLLM's, as far as installed"
	@echo "make bench-peers vLLM's frontends, to be measured beside ours (5 GB)"
	@echo "make clean       remove build products; distclean: the environments too (the cache stays)"

setup:
	@$(PYTHON) -m tools.setup setup

serve: setup
	exec .venv/bin/fastfront serve $(MODEL) --port $(PORT) $(ARGS)

test:
	@$(PYTHON) -m tools.setup test
	@$(PYTHON) -m tools.checks -- $(ARGS)

unit:
	@$(PYTHON) -m tools.checks tests -- $(ARGS)

lint:
	@$(PYTHON) -m tools.checks lint

type:
	@$(PYTHON) -m tools.checks types

ext:
	@$(PYTHON) -m tools.setup ext

tokenizers:
	@$(PYTHON) -m tools.setup tokenizers

fuzz: ext tokenizers
	.venv/bin/python tests/fuzz/native.py all --seconds 60 $(ARGS)
	.venv/bin/python -m tests.fuzz.connections --seconds 60

soak: setup
	.venv/bin/python -m tests.soak $(ARGS)

soak-engine: setup
	.venv/bin/python -m tests.soak.engine $(ARGS)

bench: ext tokenizers
	.venv/bin/python -m bench.step $(ARGS)

interop: setup
	.venv-engine/bin/python -m bench.interop $(ARGS)

bench-peers:
	@$(PYTHON) -m tools.setup peers

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f fastfront/_speedups/*.so fastfront/_speedups/*.c fastfront/_speedups/*.html
	find fastfront engine tools tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf .venv .venv-engine .fastfront
