# Every target does its own set-up: a machine with Python 3.11, pip and make needs nothing else.
# `make test` on a fresh checkout creates .venv, installs backtrail and the tools under constraints.txt, and runs the tests.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCH  := .venv-bench
BENCH_READY := $(BENCH)/.ready
FRAMES := .venv-adapters
FRAMES_READY := $(FRAMES)/.ready
NEWEST := .venv-adapters-newest
SUITES := .venv-suites
SUITES_READY := $(SUITES)/.ready
DOCS   := .venv-docs
DOCS_READY := $(DOCS)/.ready
PIP    := -m pip install --quiet --disable-pip-version-check

# Test files are spread over the processor's cores, each file in one process; JOBS=0 runs all of them in one. They keep
# their order, in which the longest (tests/faults) begin early and the shortest (docs) come last.
JOBS   ?= logical
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help test test-fast test-nightly test-adapters test-adapters-newest test-suites test-agents browser axe shells docs diagrams pictures demo bench bench-quick bench-adapters bench-growth fuzz simulate several-processes run-kills lint format types layers check clean
.DELETE_ON_ERROR:

help:
	@echo "make test           all tests: real servers, faults, the adapters, the inspector in a browser"
	@echo "make test-fast      those that need no server, browser or framework and no patience: under two minutes"
	@echo "make test-nightly   those that take minutes each: faults at every place, not at some"
	@echo "make test-adapters  those of the frameworks' adapters only, in an environment of their own"
	@echo "make test-adapters-newest  the same with the newest releases of the frameworks, and which those are"
	@echo "make test-suites    the frameworks' own tests on backtrail's stores; downloads their sources"
	@echo "make test-agents    going back with the real coding agents, offline; fetches them from npm into PROGRAMS (Linux)"
	@echo "make demo           a short tour that prints what backtrail does"
	@echo "make bench          the figures, next to the peers', in one run of 20 minutes"
	@echo "make bench-quick    a part of them at a quarter of the size, in two minutes; nothing is written"
	@echo "make bench-adapters the figures of the adapters, next to the frameworks' own stores"
	@echo "make bench-growth   the chart: from 10 to 300,000 steps, and from 1 to 1,000,000 threads"
	@echo "make fuzz           hostile stores, files and requests for MINUTES=5; what goes wrong is kept in fuzz/found"
	@echo "make simulate       a mirror in a simulated world, for SEEDS=1000 seeds from START=0; SEED=14 shrinks and tells one"
	@echo "make several-processes  rounds of processes that see different parts of a mirror: ROUNDS=100"
	@echo "make run-kills      durable runs whose processes are killed at random instants: KILLS=2000 over all engines"
	@echo "make docs           the site, in build/site: strictly, offline, every link checked"
	@echo "make diagrams       the drawings of the docs' diagrams, after one was changed; fetches Mermaid from npm"
	@echo "make pictures       the pictures of the docs, from a demo store"
	@echo "make lint           ruff check and ruff format --check"
	@echo "make format         ruff format, and the fixes ruff is sure of"
	@echo "make types          mypy --strict, and pyright on the public classes and tests/types"
	@echo "make layers         who may import whom"
	@echo "make check          all of the above that can fail"
	@echo "make clean          removes the environments and caches"
	@echo
	@echo "make test ARGS='tests/history -k fork' hands arguments to pytest; JOBS=0 runs one test after the other."

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --constraint constraints.txt --editable ".[all,dev]"
	touch $@

$(BENCH_READY): pyproject.toml $(wildcard bench/requirements.txt)
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python $(PIP) --editable ".[all]" --requirement bench/requirements.txt
	touch $@

# The frameworks that backtrail has adapters for: their dependencies agree with each other, but not with our own tools'.
$(FRAMES_READY): pyproject.toml tests/adapters/requirements.txt tests/adapters/constraints.txt
	test -x $(FRAMES)/bin/python || $(PYTHON) -m venv $(FRAMES)
	$(FRAMES)/bin/python $(PIP) --constraint tests/adapters/constraints.txt \
		--editable ".[all,dev]" --requirement tests/adapters/requirements.txt
	touch $@

# The frameworks' own tests need tools that ours do without.
$(SUITES_READY): pyproject.toml tests/adapters/requirements.txt tests/adapters/constraints.txt tests/adapters/suites/requirements.txt
	test -x $(SUITES)/bin/python || $(PYTHON) -m venv $(SUITES)
	$(SUITES)/bin/python $(PIP) --constraint tests/adapters/constraints.txt --editable ".[all,dev]" \
		--requirement tests/adapters/requirements.txt --requirement tests/adapters/suites/requirements.txt
	touch $@

# The site is made of the pages, the docstrings and the commands: the package is there, without its extras.
$(DOCS_READY): pyproject.toml scripts/site/requirements.txt scripts/site/constraints.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(PIP) --constraint scripts/site/constraints.txt --editable . --requirement scripts/site/requirements.txt
	touch $@

# The inspector is tested in a real Chromium: Debian's, where this machine lets us install it.
browser:
	@test -n "$$BACKTRAIL_CHROMIUM" || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			{ apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } >/dev/null 2>&1 \
				|| echo "no Chromium: apt-get could not install it, tests/ui will be left out"; \
		else \
			echo "no Chromium, and not root to install it: tests/ui will be left out"; \
		fi; }

# axe checks the accessibility tree of the inspector. It comes from npm, once; without npm its tests are left out.
AXE := build/axe/axe.min.js
axe:
	@test -f $(AXE) || { command -v npm >/dev/null && mkdir -p build/axe \
		&& (cd build/axe && timeout 60 npm pack --silent axe-core@4.14.0 >/dev/null 2>&1 \
			&& tar xzf axe-core-4.14.0.tgz --strip-components 1 package/axe.min.js package/LICENSE); } \
		|| echo "no axe: npm could not fetch it, tests/ui/test_accessibility.py will be left out"

# Completion is tested in the shells that people use.
shells:
	@command -v zsh >/dev/null && command -v fish >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			{ apt-get install -y -qq zsh fish || { apt-get update -qq && apt-get install -y -qq zsh fish; }; } >/dev/null 2>&1 \
				|| echo "apt-get could not install zsh and fish, their tests of completion will fail"; \
		else \
			echo "no zsh or fish, and not root to install them: their tests of completion will fail"; \
		fi; }

# A warning is an error: a link or an anchor that leads nowhere, a page that is in no menu, a load from elsewhere.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
	@echo "the site is in build/site: open build/site/index.html"

MERMAID := build/mermaid/mermaid.min.js
$(MERMAID):
	mkdir -p build/mermaid
	cd build/mermaid && npm pack --silent mermaid@12.3.0 && tar xzf mermaid-12.3.0.tgz --strip-components 2 package/dist/mermaid.min.js

diagrams: $(READY) browser $(MERMAID)
	$(BIN)/python -m scripts.site.diagrams

# The pictures of the docs, from a demo store.
pictures: $(READY) browser
	$(BIN)/python scripts/pictures.py

# Whoever names tests in ARGS wants those, and not the adapters' first.
test: $(READY) browser axe shells $(if $(ARGS),,test-adapters)
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

# Whatever is tried in samples by `make test` is tried completely.
test-nightly: $(READY)
	$(BIN)/python -m pytest $(SPREAD) -m nightly --timeout 3600 $(ARGS)

test-fast: $(READY)
	$(BIN)/python -m pytest $(SPREAD) -m "not server and not browser and not slow and not nightly and not agents" $(ARGS)

test-adapters: $(FRAMES_READY)
	$(FRAMES)/bin/python -m pytest $(SPREAD) tests/adapters $(ADAPTER_ARGS)

# Asked for the newest each time: nothing here says that the environment is up to date.
test-adapters-newest:
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	sed 's/==.*//' tests/adapters/requirements.txt > $(NEWEST)/requirements.txt
	$(NEWEST)/bin/python $(PIP) --upgrade --editable ".[all,dev]" --requirement $(NEWEST)/requirements.txt
	$(NEWEST)/bin/python -m pytest $(SPREAD) tests/adapters $(ADAPTER_ARGS)
	@echo "passed with:" && $(NEWEST)/bin/python -m pip freeze --disable-pip-version-check --requirement $(NEWEST)/requirements.txt \
		| sed '/pip freeze/,$$d; /^#/d'

test-suites: $(SUITES_READY)
	$(SUITES)/bin/python tests/adapters/suites/run.py $(ARGS)

# In a network of its own, in which only loopback is reachable: the agents ask a model server of the tests. With mounts
# of its own too: some tests fill a small disk. Every test takes long and needs no other, so they are spread one by one.
PROGRAMS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/backtrail-tests/agents
test-agents: $(READY)
	PYTHONPATH=tests $(BIN)/python -m agents_real.programs "$(PROGRAMS)"
	BACKTRAIL_TEST_PROGRAMS="$(PROGRAMS)" unshare --net --mount --map-root-user sh -c 'ip link set lo up && exec "$$@"' sh \
		$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m agents --timeout 3600 tests/agents_real $(ARGS)

demo: $(READY)
	$(BIN)/python examples/demo.py $(ARGS)

bench: $(BENCH_READY) bench-adapters
	$(BENCH)/bin/python -m bench $(ARGS)

bench-quick: $(BENCH_READY)
	$(BENCH)/bin/python -m bench --quick $(ARGS)

bench-growth: $(BENCH_READY)
	$(BENCH)/bin/python -m bench.growth $(ARGS)

bench-adapters: $(FRAMES_READY)
	$(FRAMES)/bin/python -m bench.adapters $(ADAPTER_ARGS)

MINUTES ?= 5
fuzz: $(READY)
	$(BIN)/python -m fuzz --minutes $(MINUTES) $(ARGS)

# PYTHONPATH=/elsewhere/src plays the backtrail of another tree.
SEEDS ?= 1000
START ?= 0
simulate: $(READY)
	PYTHONHASHSEED=0 PYTHONPATH="$${PYTHONPATH:+$$PYTHONPATH:}tests" $(BIN)/python -m simulate --jobs $(if $(filter logical,$(JOBS)),0,$(JOBS)) \
		$(if $(SEED),--seed $(SEED) $(if $(KEEP),--keep $(KEEP)),--seeds $(SEEDS) --start $(START)) $(ARGS)

ROUNDS ?= 100
several-processes: $(READY)
	PYTHONPATH=tests $(BIN)/python -m several_processes --rounds $(ROUNDS) $(ARGS)

KILLS ?= 2000
run-kills: $(READY)
	PYTHONPATH=tests nice -n 15 $(BIN)/python -m run_kills --kills $(KILLS) $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY) $(FRAMES_READY)
	$(BIN)/mypy --strict src tests/types
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(FRAMES)/bin/mypy --strict src/backtrail/adapters/*.py src/backtrail/adapters/*/*.py

layers: $(READY)
	$(BIN)/lint-imports

check: test lint types layers docs

clean:
	rm -rf $(VENV) $(BENCH) $(FRAMES) $(NEWEST) $(SUITES) $(DOCS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
