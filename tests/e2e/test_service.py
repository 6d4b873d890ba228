"""`sandboxctl service` with a real systemd: a user manager in namespaces of the test's own.

It needs root, for a /run in which systemd believes that it has booted the machine. Everything ends
with the pid namespace.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SYSTEMD = "/lib/systemd/systemd"
CTL = Path(sys.executable).parent / "sandboxctl"
pytestmark = [
    pytest.mark.requires("root", "unshare", "systemctl", SYSTEMD, "bubblewrap"),
]

SCRIPT = r"""
set -eu
ctl=$1
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
export XDG_RUNTIME_DIR=/run/user HOME=$2 XDG_CONFIG_HOME=$2/.config
unset SANDBOXD_SOCKET
/lib/systemd/systemd --user --log-target=console > "$HOME/log" 2>&1 &
for _ in $(seq 200); do
    [ "$(systemctl --user is-system-running 2>/dev/null)" != running ] || break
    sleep 0.1
done
say() { echo "== $1"; shift; "$@" || echo "exit code $?"; }
say before "$ctl" service status --json
say dry "$ctl" service install --dry-run --json
say install "$ctl" service install --json
say again "$ctl" service install --json
say after "$ctl" service status --json
mkdir "$HOME/project"
say run "$ctl" run --no-autostart --net deny --workspace "$HOME/project" -- echo sandboxed
say unit systemctl --user is-active sandboxd.service
say uninstall "$ctl" service uninstall --json
say gone "$ctl" service status --json
say unit-gone systemctl --user is-active sandboxd.service
"""


def test_the_units_are_installed_started_and_removed(tmp_path: Path) -> None:
    namespaces = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child",
                  "--mount-proc"]  # fmt: skip
    probe = subprocess.run([*namespaces, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("no namespaces can be made here")
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [*namespaces, "bash", "-c", SCRIPT, "service", str(CTL), str(home)],
        capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    log = (home / "log").read_text() if (home / "log").exists() else ""
    assert "unit-gone" in said, done.stdout + done.stderr + log
    before = json.loads(said["before"].partition("\nexit")[0])
    assert (before["installed"], before["active"]) == (False, False)
    assert json.loads(said["dry"])["steps"] == json.loads(said["install"])["steps"] != []
    assert json.loads(said["again"])["steps"] == []
    after = json.loads(said["after"])
    assert (after["installed"], after["up_to_date"], after["active"]) == (True, True, True), log
    # systemd holds the socket: the first connection starts the daemon, which runs the command.
    assert said["run"].splitlines()[0] == "sandboxed", said["run"] + done.stderr + log
    assert said["unit"].strip() == "active"
    assert said["unit-gone"].splitlines()[0] == "inactive"
    gone = json.loads(said["gone"].partition("\nexit")[0])
    assert (gone["installed"], gone["active"]) == (False, False)
    assert not list((home / ".config").rglob("sandboxd.*"))
    shutil.rmtree(home, ignore_errors=True)
