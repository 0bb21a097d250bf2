# Every target is one call of a command line; `make help` lists them.
PYTHON ?= python3
TARGET ?= zcu104
MODEL ?= resnet18
BIN := .venv/bin

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.venv/core.done: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/%.done: .venv/core.done
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

run: .venv/core.done ## classify a picture with ResNet-18 on the simulated accelerator, every layer checked
	$(BIN)/sim run $(MODEL) --target $(TARGET)

test: .venv/test.done ## the tests, under 15 minutes on two cores
	$(BIN)/pytest -m "not slow" -n 2 --dist loadgroup

test-all: .venv/test.done ## all tests, the long ones too
	$(BIN)/pytest -n 2 --dist loadgroup

lint: .venv/lint.done .venv/test.done ## style, types, import direction
	$(BIN)/python -m espalier.cli.lint

bench: .venv/report.done ## measure everything on docs/performance.md (long)
	$(BIN)/sim bench

bitstream: .venv/core.done ## bitstream for TARGET; without Vivado all that comes before it
	$(BIN)/espalier build --target $(TARGET)

clean: ## remove what the other targets made
	rm -rf .venv build dist sim_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help run test test-all lint bench bitstream clean
