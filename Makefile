# Everything happens in .venv and build/. `make help` lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/stamps
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -q

PACKAGING := pyproject.toml setup.cfg setup.py mypy.ini
COMPILED  := $(wildcard core/*.py routing/*.py store/*.py frontends/amqp/*.py)
SOURCES   := $(COMPILED) $(shell find cli client cluster frontends spark -name '*.py' 2>/dev/null)

# What a test group is made of. `make test` times each; `make test-fast` runs the first ones only.
UNIT    := tests --ignore=tests/store --ignore=tests/faults
STORE   := $(if $(wildcard tests/store/test_*.py),"store=tests/store")
FAULTS  := $(if $(wildcard tests/faults/test_*.py),"faults=tests/faults")
INTEROP := $(if $(wildcard interop_tests/test_*.py),"interop=interop_tests")

# How long the crash tests go on; `make crash CYCLES=200 POINTS=2000` is the full length.
CYCLES ?= 200
POINTS ?= 2000

.PHONY: help serve build test test-fast lint bench demo crash clean

help:
	@echo "make serve        install into .venv, compile, and start a broker on 127.0.0.1 (ARGS='--data-dir DIR' are passed on)"
	@echo "make test         every test against the compiled build, most of them against the plain one too"
	@echo "make test-fast    the unit tests, against the compiled build"
	@echo "make lint         ruff and mypy"
	@echo "make bench        measure, and print the figures"
	@echo "make demo         start a broker on free ports, look at it from outside, stop it"
	@echo "make crash        the crash tests at full length (CYCLES=$(CYCLES) POINTS=$(POINTS))"
	@echo "make clean        remove everything that was built, the environment included"

serve: $(STAMP)/built
	@exec $(BIN)/trilogue serve $(ARGS)

build: $(STAMP)/built

test: $(STAMP)/needs $(STAMP)/npm $(STAMP)/test $(STAMP)/built $(STAMP)/pure
	@TRILOGUE_FLAVOUR=compiled .ci/groups "$(PYTEST)" "unit=$(UNIT)" $(STORE) $(FAULTS) $(INTEROP) "plain:build/pure=tests --ignore=tests/faults"

test-fast: $(STAMP)/test $(STAMP)/built
	@.ci/groups "$(PYTEST)" "unit=$(UNIT)" $(STORE)

lint: $(STAMP)/dev $(STAMP)/test
	$(BIN)/ruff check .
	TRILOGUE_PURE=1 $(BIN)/python setup.py --quiet --version >/dev/null
	$(BIN)/mypy -p trilogue

bench: $(STAMP)/test $(STAMP)/built
	@for file in $$(grep -l __main__ bench/*.py); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

demo: $(STAMP)/built
	@$(BIN)/python .ci/demo

crash: $(STAMP)/test $(STAMP)/built
	CYCLES=$(CYCLES) POINTS=$(POINTS) TRILOGUE_CRASH_POINTS=$(POINTS) $(PYTEST) tests/faults tests/core/test_power_cuts.py --timeout=0

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

# The environment, with what a build needs. Builds then need no isolation, so they do not download anything again.
$(STAMP)/venv: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Trilogue needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(STAMP)/requires.txt
	@$(PIP) install --requirement $(STAMP)/requires.txt
	@touch $@

# Compiled modules go beside their sources. Old ones are removed first: one whose source is gone would still be imported.
# pip hides what setup.py says, so where nothing could be compiled it is asked once more for the reason.
$(STAMP)/built: $(STAMP)/run $(PACKAGING) $(COMPILED)
	@echo "compiling (this takes a minute or two)"
	@rm -f *.so && find core routing store frontends -name '*.so' -delete
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@ls *.so >/dev/null 2>&1 || $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# The plain build, installed for real, so that a package missing from setup.cfg shows.
$(STAMP)/pure: $(STAMP)/run $(PACKAGING) $(SOURCES)
	@echo "installing the plain build into build/pure"
	@rm -rf build/pure build/lib build/bdist.*
	@TRILOGUE_PURE=1 $(PIP) install --no-build-isolation --no-deps --target build/pure .
	@touch $@

# What the broker needs to run, and what tests and checks need besides, as setup.cfg lists it.
$(STAMP)/run $(STAMP)/test $(STAMP)/dev: $(STAMP)/venv setup.cfg .ci/requirements
	@echo "installing what is needed to $(@F)"
	@$(BIN)/python .ci/requirements $(@F) > $@.txt
	@$(PIP) install --requirement $@.txt
	@touch $@

$(STAMP)/needs: $(STAMP)/venv .ci/debian .ci/needs
	@.ci/needs .ci/debian
	@touch $@

# The clients for Node.js, exactly as the lock file names them.
$(STAMP)/npm: $(STAMP)/needs interop_tests/package.json interop_tests/package-lock.json
	@echo "installing the clients for Node.js into build/npm"
	@mkdir -p build/npm
	@cp interop_tests/package.json interop_tests/package-lock.json build/npm
	@npm ci --prefix build/npm --loglevel=error --no-audit --no-fund
	@touch $@
