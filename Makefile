# Bare `make` prints the list below; every command installs what it needs.

# The distribution's Python, if it is new enough: it is built with profile-guided optimization, and a tenth to a third
# faster than what pyenv compiles unless told otherwise. The Debian package runs on the same one.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
PREFIX ?= /opt/ganeti
BIN := .venv/bin
STAMP := .venv/.ready
# Every program would compile all that it imports at each start: a hundred milliseconds of processor time.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/pytest
PYTHON_FOLDERS := src tests scripts integrations/python $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py guest/*.py))))

# Debian packages beyond git, make and python3.
TEST_PACKAGES := iproute2 qemu-system-x86 qemu-utils ovmf socat strace nftables iptables e2fsprogs etcd-server \
	swtpm chromium xfsprogs openipmi ipmitool fence-agents restic borgbackup

.DEFAULT_GOAL := help
.PHONY: help setup install uninstall console deb packages format generated lint unit check suite test test-host soak bench requirements pins \
	demo demo-down clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
		printf '  make %-14s %s\n' "$$name" "$$what"; done

setup: $(STAMP) ## install what is missing for development: the virtual environment in .venv

$(STAMP): requirements/dev.txt requirements/run.in pyproject.toml scripts/make_venv
	@scripts/make_venv $(PYTHON)
	@touch $@

install: ## install on this host: programs in PREFIX (/opt/ganeti), links, systemd units
	@scripts/install $(if $(IALLOCATOR_SEARCH_PATH),--with-iallocator-search-path=$(IALLOCATOR_SEARCH_PATH)) \
		$(PYTHON) $(PREFIX)

uninstall: ## remove what install has made on this host, which must be in no cluster
	@scripts/uninstall $(PREFIX)

console: $(STAMP) ## build the web console, which ganeti-rapi serves below /ui/; needs npm
	@scripts/build_console $(BIN)/python
	@cd console && npm run --silent test

ansible: $(STAMP) ## put the Ansible collection together in dist/ansible
	@$(BIN)/python scripts/ansible_collection.py dist/ansible

deb: $(STAMP) ## build the Debian package in dist/
	@scripts/build_console $(BIN)/python optional
	@scripts/build_deb $(abspath $(BIN)/python) dist

packages: ## install the system packages that real virtual machines need
	@scripts/system_packages $(TEST_PACKAGES)

format: $(STAMP) ## put all Python files into their form
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

generated: $(STAMP) ## write the files that programs make: the index of commands, the manual pages, the picture of the packages, the REST client
	$(BIN)/python -m ganeti.cli.command_index
	$(BIN)/python -m ganeti.cli.manual docs/man
	$(BIN)/python scripts/draw_packages.py
	$(BIN)/python scripts/rest_client.py

lint: $(STAMP) ## form, rules, types, layers and the table of mutations, without running tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(PYTHON_FOLDERS)
	$(BIN)/lint-imports
	$(BIN)/python scripts/mutations.py --check

unit: $(STAMP) ## the tests that need no daemon and no virtual machine; of many like cases some
	$(PYTEST) -n $$(($$(nproc) * 3 / 2)) --dist worksteal -m 'not soak' --sampled $(PART) tests/unit

check: $(STAMP) ## the inner loop: lint, and side by side the unit tests of what has changed and a quarter of the others
	@$(MAKE) --no-print-directory --jobs=2 --keep-going lint unit PART=--concerned

suite: packages $(STAMP) ## all tests, with real daemons and machines; of slow like cases some; what fails runs once more, alone
	@scripts/build_console $(BIN)/python optional
	@if [ -d console/node_modules ]; then cd console && npm run --silent test; fi
	$(BIN)/python scripts/run_tests.py -n 3 --dist loadgroup -m 'not soak' --rotated --durations=60

test: $(STAMP) ## everything: lint and all tests side by side
	@$(MAKE) --no-print-directory --jobs=2 --keep-going lint suite

test-host: packages $(STAMP) ## only the tests with real virtual machines
	$(PYTEST) -m host

soak: packages $(STAMP) ## the tests that run for a long time, and all slow cases; each rule broken in turn
	$(PYTEST) -m 'soak or rotated or in_turn' --timeout=0
	$(BIN)/python scripts/mutations.py

bench: $(STAMP) ## measure; ONLY=jobs for one subject, QUICK=1 for a short run, AGAINST=COMMIT to compare (ROUNDS=5)
	@$(BIN)/python $(if $(AGAINST),benchmarks/against.py $(AGAINST) $(if $(ROUNDS),--rounds $(ROUNDS)),scripts/bench.py) \
		$(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

requirements: ## each rule of docs/rules.md: tested or open
	@$(PYTHON) scripts/requirements.py

pins: ## choose the newest versions of all dependencies, with hashes
	@scripts/pin_requirements $(PYTHON)

pictures: packages $(STAMP) ## make the pictures of the manual again, with the real console
	@scripts/build_console $(BIN)/python
	PICTURES=$(CURDIR)/docs/pictures $(PYTEST) -m soak tests/host/test_console_pictures.py

demo: packages $(STAMP) ## a three-node cluster on this machine, with a real virtual machine; HA=1 also kills a node
	@scripts/build_console $(BIN)/python optional
	@$(BIN)/python -m ganeti.vcluster.demo up $(if $(HA),--ha)

demo-down: $(STAMP) ## end exactly what the demo started
	@$(BIN)/python -m ganeti.vcluster.demo down

clean: ## remove caches and the virtual environment
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		build dist src/*.egg-info
	find $(PYTHON_FOLDERS) -name __pycache__ -type d -prune -exec rm -rf {} +
