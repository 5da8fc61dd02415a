# make demo | test | check | coverage | slow | deploy-test | deploy-faults | fuzz | docs | extras; PIP_ARGS passes options to pip, as an index of CPU builds.
# With FLWR=1.39.0, or FLWR=newest, any of them under another Flower, in an environment of its own.
PYTHON ?= python3
PIP_ARGS ?=
FUZZ ?=
# Processes that test at once: as many as there are cores.
TESTERS ?= auto
FLWR ?=
VENV := .venv$(FLWR:%=-flwr-%)
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest

.PHONY: demo set-up test slow deploy-test deploy-faults fuzz check coverage format docs extras clean

demo: $(VENV)/.installed
	$(BIN)/zerosum run

# Everything that a developer needs, and nothing run.
set-up: $(VENV)/.installed-dev

test: $(VENV)/.installed-test
	$(PYTEST) -n $(TESTERS)

slow: $(VENV)/.installed-test
	$(PYTEST) -x -m "slow or statistical or network"

# Three SuperNodes on loopback, over TLS, with identity keys, against a server that may lie.
deploy-test: $(VENV)/.installed-test
	$(PYTEST) -m network tests/deploy

# The same with nodes that are killed at each stage, cut off and given wrong files: half an hour.
deploy-faults: $(VENV)/.installed-test
	$(PYTEST) -m deployment tests/deploy

# FUZZ="--runs 1000000 --seed 7" says how much.
fuzz: $(VENV)/.installed-test
	$(BIN)/python tests/fuzz/mutate.py $(FUZZ)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_docstrings.py
	$(BIN)/python .ci/check_docs.py

# Lines and branches that the quick suite reaches, of the parts that carry the claims.
coverage: $(VENV)/.installed-test
	$(PYTEST) -n $(TESTERS) --cov=secagg --cov=client/zerosum/client/privacy \
		--cov=server/zerosum/server/privacy --cov-branch --cov-report=term-missing:skip-covered \
		--cov-fail-under=95

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages that code writes, then the site in docs/_build/html. It is built from nothing each time: its
# tutorials run, and a warning, an error in one, or a public name without an entry fails.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m zerosum.simulations.commands.configuration_page > docs/configuration.md
	$(BIN)/python docs/wire_example.py > docs/secagg-wire-example.md
	$(BIN)/python -m zerosum.simulations.commands.readme_figures
	rm -rf docs/_build
	@echo "Building the site and running its tutorials: minutes."
	$(BIN)/python -m sphinx -b html -q -n -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python .ci/check_site.py docs/_build/html

# Whether each extra installs with constraints.txt, from versions that are all pinned there.
extras: $(VENV)/.installed
	$(BIN)/python .ci/check_extras.py

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "zerosum needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# The exact versions that were tested: constraints.txt. Another Flower is installed without the pins
# of what Flower itself holds to a few versions. An install is redone when either file changes.
CONSTRAINTS := $(if $(FLWR),$(VENV)/constraints.txt,constraints.txt)
FLOWER := $(if $(FLWR),flwr$(patsubst ==newest,,==$(FLWR)))
FLOWER_HOLDS := flwr|alembic|certifi|click|cryptography|fastapi|packaging|protobuf|rich|starlette|typer|uv|uvicorn
INSTALL = $(BIN)/python -m pip install $(PIP_ARGS) -c $(CONSTRAINTS) $(FLOWER)

$(VENV)/.constraints: constraints.txt | $(BIN)/python
	grep -vE '^($(FLOWER_HOLDS))==' constraints.txt > $(VENV)/constraints.txt
	touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.constraints
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) -e ".[test]"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) -e ".[docs]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e ".[dev]"
	touch $@
