# What people and CI use. Every target does its own set-up and is quick when nothing is missing.
#
#   make run      a sandboxed command on this machine, and what is enforced
#   make test     the whole suite (as root: as an unprivileged user, and the isolation tests as root)
#   make test-vm  limits by cgroup v2, in a virtual machine with systemd (as root; slow)
#   make lint     ruff, mypy for linux, darwin and win32, import-linter
#   make bench    side-by-side measurements, printed as ratios (BENCH=--quick: about a minute)
#   make bench-peers  the same command in other sandboxes, installed into a temporary folder
#   make soak     clients at work for SECONDS (300); fails when the daemon grows
#   make install  .venv with .venv/bin/sandboxd and .venv/bin/sandboxctl

SHELL := /bin/bash
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
INIT := sandboxd/linux/init
NETNS := sandboxd/linux/netns
PORTABLE := darwin win32

.PHONY: install packages run test test-vm lint bench bench-peers soak clean init bytecode

install: $(VENV)/.installed init bytecode

# Checked every time (it takes a moment): a package can be removed after .venv was made.
packages:
	@scripts/require scripts/packages.txt

$(VENV)/.installed: pyproject.toml hatch_build.py scripts/install | packages
	@scripts/install $(VENV)

# The init's own Makefile knows what it depends on; pip only compiles it while it installs.
# World-readable whatever the umask is: other users run it too.
init: | $(VENV)/.installed
	@umask 022 && $(MAKE) -s -C $(INIT) && $(MAKE) -s -C $(NETNS)

# Users who cannot write here would compile every module at every start.
bytecode: | $(VENV)/.installed
	@umask 022 && $(PYTHON_IN) -m compileall -q sandboxd client/sandboxd_client proto/sandboxd_proto

run: install
	@scripts/demo

test: install
	@scripts/require scripts/packages-test.txt
	@scripts/test $(TESTS)

# Its own target: it builds a Debian system once (apt), and emulates a machine.
test-vm: install
	@scripts/require tests/vm/packages.txt
	@tests/vm/run

lint: install
	$(PYTHON_IN) -m ruff check .
	$(PYTHON_IN) -m mypy --platform linux --cache-dir .mypy_cache/linux
	for platform in $(PORTABLE); do \
	  $(PYTHON_IN) -m mypy --platform $$platform --cache-dir .mypy_cache/$$platform \
	    --config-file scripts/mypy-portable.toml || exit 1; \
	done
	MYPYPATH=tests $(PYTHON_IN) -m mypy --cache-dir .mypy_cache/tests -p support -p bench
	$(VENV)/bin/lint-imports

bench: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.run $(BENCH)

bench-peers: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.run_peers $(BENCH)

soak: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.soak --seconds $(or $(SECONDS),300)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	-[ ! -e $(INIT)/Makefile ] || $(MAKE) -s -C $(INIT) clean
	-[ ! -e $(NETNS)/Makefile ] || $(MAKE) -s -C $(NETNS) clean
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
