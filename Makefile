# SPDX-License-Identifier: Apache-2.0
# `make test` sets everything up and checks it; the other targets are short for what xdplab and shell/ do.

BIN = $(shell shell/setup.sh --where)/bin
PLAN ?= plans/quick.yaml
RUN ?= $(lastword $(sort $(wildcard results/2*)))

help:
	@echo "make setup | notebook | lab | run [PLAN=…] | figures [RUN=…] | docs | test | test-all | test-fast | test-pythons | lint | tidy | bench | nightly | distros | faults | soak | fuzz | thesis DATA=… RUN=… | clean"

setup:
	shell/setup.sh --dev >/dev/null

notebook: setup  # its root is the project: the links of a run lead to its files
	$(BIN)/jupyter lab --notebook-dir=. --FileContentsManager.preferred_dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root) $(JUPYTER)

lab: setup
	$(BIN)/xdplab lab up

run:
	shell/run_matrix.sh $(PLAN)

figures: setup
	$(BIN)/xdplab figures $(RUN)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

test: setup
	shell/check.sh core

test-all: test
	shell/check.sh thorough

test-fast: setup
	shell/check.sh fast

test-pythons: setup
	shell/check.sh pythons

tidy: setup
	shell/check.sh tidy

lint: setup
	shell/check.sh lint

# With DATA=…, the thesis' logs, bench/thesis.py measures too. ONLY=… names the scripts whose rows are measured again.
bench: setup
	@$(BIN)/python bench/bounded $(ONLY) --page docs/results/performance.md $(if $(DATA),--data $(DATA))

nightly: setup
	shell/check.sh tidy
	shell/check.sh sanitized
	shell/check.sh pythons
	$(BIN)/pytest -m nightly
	$(BIN)/python -m tests.faults.campaign --only replay --only real
	$(BIN)/python -m tests.faults.soak
	$(BIN)/python -m tests.fuzz.fuzzing
	shell/distros.sh

# The tables of docs/results/thesis.md, from the thesis' data and a run of plans/thesis-mini.yaml.
thesis: setup
	$(BIN)/python -m tests.thesis.doc_tables $(DATA) --from $(RUN)

distros:
	shell/distros.sh

faults: setup
	$(BIN)/python -m tests.faults.campaign --page $(FAULTS)

soak: setup
	$(BIN)/python -m tests.faults.soak --page $(SOAK)

fuzz: setup
	$(BIN)/python -m tests.fuzz.fuzzing $(FUZZ)

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	@for tool in $(dir $(wildcard afxdp_user/Makefile native/*/Makefile)); do $(MAKE) -s -C $$tool clean; done

.PHONY: help setup notebook lab run figures docs test test-all test-fast test-pythons lint tidy bench nightly distros faults soak fuzz thesis clean
