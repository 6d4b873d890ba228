# What people and CI use. Every target does its own set-up and is quick when nothing is missing.
#
#   make run      a sandboxed command on this machine, and what is enforced
#   make test     the whole suite (as root: as an unprivileged user, and the isolation tests as root)
#                 and lint, side by side; TESTS=tests/unit/policy: only these tests; PARTS=lint: only this part
#   make test-vm  limits by cgroup v2, and the escape and conformance suites on another kernel, with
#                 and without user namespaces, in a virtual machine with systemd (as root; slow)
#   make fuzz     mutated inputs for every parser of hostile data, SECONDS (20) for each
#   make test-opensandbox  the opensandbox backend, on the real server too (as root; from PyPI)
#   make test-wine  the parts that run on Windows, on a Windows Python under Wine
#   make test-macos  the macOS backend over a stand-in for sandbox-exec (isolates nothing; 2 minutes)
#   make lint     ruff (rules and format), mypy for linux, darwin and win32, import-linter
#   make docs     docs/config.md and proto/openrpc.json, generated from code
#   make release-check  builds sdist and wheel, installs and tries them, compares version and changelog
#   make bench    side-by-side measurements, printed as ratios (BENCH=--quick: about a minute;
#                 BENCH=--targets: what has a target, ten minutes)
#   make bench-peers  the same command in other sandboxes, installed into a temporary folder
#   make soak     clients at work for SECONDS (300); fails when the daemon grows
#   make install  .venv with .venv/bin/sandboxd, .venv/bin/sandboxctl and the development tools

SHELL := /bin/bash
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
INIT := sandboxd/linux/init
NETNS := sandboxd/linux/netns
LAUNCHER := sandboxd/macos/launcher

.PHONY: install packages run test test-vm test-opensandbox test-macos launcher test-wine fuzz lint docs release-check bench bench-peers \
	soak clean init bytecode
# The order of prerequisites matters (a virtual environment before what uses it), also with -j.
.NOTPARALLEL:

install: $(VENV)/.installed-dev init bytecode
	@echo "install: the programs are $(VENV)/bin/sandboxd and $(VENV)/bin/sandboxctl"

# Checked every time (it takes a moment): a package can be removed after .venv was made.
packages:
	@scripts/require scripts/packages.txt

$(VENV)/.installed: pyproject.toml hatch_build.py scripts/install | packages
	@scripts/install $(VENV) docker,opensandbox

# The tools of developers besides; `make run` does without them.
$(VENV)/.installed-dev: pyproject.toml hatch_build.py scripts/install | packages
	@scripts/install $(VENV) docker,opensandbox,dev

# The init's own Makefile knows what it depends on; pip only compiles it while it installs.
# World-readable whatever the umask is: other users run it too.
init: | packages
	@umask 022 && $(MAKE) -s -C $(INIT) && $(MAKE) -s -C $(NETNS)

# Users who cannot write here would compile every module at every start.
bytecode: | $(VENV)/.installed
	@umask 022 && $(PYTHON_IN) -m compileall -q sandboxd client/sandboxd_client proto/sandboxd_proto

run: $(VENV)/.installed init bytecode
	@scripts/demo

# With TESTS the suite alone; without, every part of scripts/parts, side by side.
test: install
	@scripts/require scripts/packages-test.txt
	@if [ -n "$(TESTS)" ]; then scripts/test $(TESTS); else scripts/parts $(PARTS); fi

# Its own target: it builds a Debian system once (apt), and emulates a machine.
test-vm: install
	@scripts/require tests/vm/packages.txt
	@tests/vm/run

# A short round of it is in `make test`. FUZZ="--target dns --seed 7" repeats what it printed.
fuzz: install
	@PYTHONPATH=tests $(PYTHON_IN) -m fuzz.run --seconds $(or $(SECONDS),20) $(FUZZ)

test-opensandbox: install
	@scripts/require scripts/packages-test.txt
	@scripts/test-opensandbox $(TESTS)

# A Windows Python is made once (.wine); the checkout's own packages are on its path.
test-wine: install
	@scripts/require scripts/packages-wine.txt
	@$(PYTHON_IN) scripts/wine/build .wine
	@scripts/wine/test .wine

# On Linux: everything of the macOS backend but macOS itself. See tests/macos.
test-macos: install launcher
	@scripts/require scripts/packages-macos.txt
	@scripts/test-macos $(TESTS)

launcher:
	@umask 022 && $(MAKE) -s -C $(LAUNCHER)

lint: install
	@scripts/lint

# The documents and the schema that are generated from code; tests fail when they have drifted.
docs: install
	@$(PYTHON_IN) -m sandboxd_proto.openrpc
	@$(PYTHON_IN) scripts/config_docs.py

# What a release needs: sdist and wheel are built, installed and tried; version and changelog agree.
release-check: install
	@scripts/release-check

bench: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.run $(BENCH)

bench-peers: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.run_peers $(BENCH)

soak: install
	@PYTHONPATH=tests $(PYTHON_IN) -m bench.soak --seconds $(or $(SECONDS),300)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .wine .opensandbox dist build
	-[ ! -e $(INIT)/Makefile ] || $(MAKE) -s -C $(INIT) clean
	-[ ! -e $(NETNS)/Makefile ] || $(MAKE) -s -C $(NETNS) clean
	-[ ! -e $(LAUNCHER)/Makefile ] || $(MAKE) -s -C $(LAUNCHER) clean
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
