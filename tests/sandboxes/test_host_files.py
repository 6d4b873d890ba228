"""Files of the base that the host replaces while sandboxes wait, and what is copied of its /etc.

A template and a warm sandbox keep what bwrap bound by name: another file of that name is not in
them. The daemon has a root folder of its own here, with folders of the system that can be replaced.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.daemon import ROOT, Daemon, running_daemon, stdout_of
from support.rpc import Connection

pytestmark = [pytest.mark.requires("bubblewrap", "root"), pytest.mark.isolation]
OWN_ROOT = f"""
set -e
PATH=$PATH:/usr/sbin:/sbin
mount --make-rprivate /
root=$(mktemp -d)
mount -t tmpfs root "$root"
for path in /*; do
    if [ -L "$path" ]; then cp -a "$path" "$root"
    elif [ -d "$path" ]; then mkdir "$root$path"; fi
    case "$path" in
        /etc) cp -a /etc "$root" ;;
        /opt|/run) ;;
        *) if [ -d "$path" ] && ! [ -L "$path" ]; then mount --rbind "$path" "$root$path"; fi ;;
    esac
done
mkdir -p "$root/opt" "$root/run/names" "$root/before"
echo first > "$root/opt/file"
echo first > "$root/run/names/resolv.conf"
echo first > "$root/etc/gitconfig"
chmod 644 "$root/etc/gitconfig"
ln -sfn /run/names/resolv.conf "$root/etc/resolv.conf"
cd "$root"
pivot_root . before
cd {ROOT}
umount -l /before
exec "$@"
"""
DENY: dict[str, Any] = {"network": "deny"}
INHERIT: dict[str, Any] = {"network": "inherit"}


@dataclass(frozen=True)
class Host:
    daemon: Daemon
    connection: Connection

    def change(self, script: str) -> None:
        line = ["nsenter", "--target", str(self.daemon.pid), "--mount", "--uts"]
        subprocess.run([*line, "sh", "-c", script], check=True)

    def shell(self, script: str, manifest: dict[str, Any]) -> str:
        params = {"argv": ["/bin/sh", "-c", script], "manifest": manifest}
        return stdout_of(self.connection.call("execute", params))

    def replace(self, look: str, change: str, manifest: dict[str, Any]) -> str:
        """What a command sees after `change`, when sandboxes of its plan wait."""
        for _ in range(3):
            assert self.shell(look, manifest) == "first\n"
        self.change(change)
        return self.shell(look, manifest)


@pytest.fixture(params=[("false", "true"), ("true", "true"), ("true", "false")],
                ids=["template", "clone", "bwrap"])  # fmt: skip
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    pool, template = request.param
    config = f"[pool]\nenabled = {pool}\n\n[peers]\nallow_other_namespaces = true\n"
    env = {"SANDBOXD_POOL_TEMPLATE": template, "SANDBOXD_BACKEND": "bubblewrap"}
    prefix = ["unshare", "--mount", "--uts", "sh", "-c", f"hostname first; {OWN_ROOT}", "sh"]
    with (
        running_daemon(config=config, env=env, prefix=prefix) as daemon,
        daemon.connect() as connection,
    ):
        yield Host(daemon, connection)


def test_a_folder_of_the_base_is_replaced(host: Host) -> None:
    change = "mv /opt /opt-before; mkdir /opt; echo second > /opt/file"
    assert host.replace("cat /opt/file", change, DENY) == "second\n"


@pytest.mark.parametrize("base", ["host", "minimal"])
def test_resolv_conf_is_replaced(host: Host, base: str) -> None:
    """As systemd-resolved does it when the network changes."""
    change = "cd /run/names; echo second > new; mv new resolv.conf"
    seen = host.replace("cat /etc/resolv.conf", change, {**INHERIT, "base": base})
    assert seen == "second\n"


@pytest.mark.parametrize("look", ["uname -n", "cat /etc/hostname"])
def test_the_machine_gets_another_name(host: Host, look: str) -> None:
    assert host.replace(look, "hostname second", DENY) == "second\n"


def test_an_edit_that_keeps_the_time(host: Host) -> None:
    change = "cd /run/names; touch -r . t; F=resolv.conf; touch -r $F t; echo 2 > $F; touch -r t $F"
    assert host.replace("cat /etc/resolv.conf", change, INHERIT) == "2\n"


def test_a_file_of_etc_that_is_not_for_everybody_any_more(host: Host) -> None:
    """Files of /etc are looked at by a thread, so this takes a moment."""
    change = "chmod 600 /etc/gitconfig"
    look = "cat /etc/gitconfig 2>/dev/null; true"
    seen = host.replace(look, change, DENY)
    deadline = time.monotonic() + 60
    while seen == "first\n":
        assert time.monotonic() < deadline
        seen = host.shell(look, DENY)
    assert seen == ""
    control = Path(f"/proc/{host.daemon.pid}/root/etc/gitconfig")
    assert os.stat(control).st_size == len("first\n")
