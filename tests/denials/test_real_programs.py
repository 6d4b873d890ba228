"""Real programs in a real sandbox: their messages, in their own words and other languages."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.requirements import require

from sandboxd.denials import RunEvidence, Setting, StreamScanner, load_translations
from sandboxd.denials.host import host_view
from sandboxd.denials.text.translations import CATALOGS, languages_of
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd_proto.denial import Denial

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """ws is writable, out read-only, hid hidden. Not in /tmp: that is private in the sandbox."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        top = Path(folder).resolve()
        for name in ("ws", "out/dir", "hid/dir"):
            (top / name).mkdir(parents=True)
        for name in ("ws/a.txt", "out/old.txt", "hid/h.txt", "out/a b.txt"):
            (top / name).write_text("x\n")
        (top / "hid" / "tool").write_text("#!/bin/sh\n")
        (top / "hid" / "tool").chmod(0o755)
        (top / "ws" / "locked").write_text("x")
        (top / "ws" / "noexec.sh").write_text("#!/bin/sh\n")
        (top / "ws" / "noexec.sh").chmod(0o644)
        yield top


def run(root: Path, script: str, **env: str) -> tuple[int, list[Denial]]:
    variables = {"PATH": f"/usr/local/bin:/usr/bin:/bin:{root}/hid", **env}
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"]
    command += ["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--cap-drop", "ALL"]
    command += ["--bind", f"{root}/ws", f"{root}/ws", "--tmpfs", f"{root}/hid"]
    command += ["--remount-ro", f"{root}/hid", "--chdir", f"{root}/ws", "--clearenv"]
    for name, value in variables.items():
        command += ["--setenv", name, value]
    argv = ("bash", "-c", script)
    done = subprocess.run(
        [*command, *argv], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=60
    )
    pairs = tuple(variables.items())
    scanner = StreamScanner(setting(root, argv, pairs), load_translations(languages_of(pairs)))
    scanner.feed("stdout", done.stdout)
    scanner.feed("stderr", done.stderr)
    return done.returncode, scanner.finish(RunEvidence(exit_code=done.returncode))


def setting(root: Path, argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Setting:
    places = [
        Mount("/", MountKind.SYSTEM),
        Mount("/tmp", MountKind.PRIVATE),
        Mount(f"{root}/ws", MountKind.WRITE),
        Mount(f"{root}/hid", MountKind.HIDDEN),
        Mount("/proc", MountKind.PROC),
        Mount("/dev", MountKind.DEV),
    ]
    plan = Plan(
        sandbox=SandboxSpec(base="host", network=NetworkRule("deny")),
        syscall_policy="inherit",
        timeout_s=30,
        limits=Limits(),
        env=env,
        cwd=f"{root}/ws",
    )
    return Setting(plan=plan, layout=MountPlan(places), host=host_view(), argv=argv)


WRITES = {
    "dash": "dash -c 'echo x > {out}/n'",
    "relative": "touch ../out/n",
    "cd": "cd {out} && touch n",
    "blank": 'echo x >> "{out}/a b.txt"',
    "rm": "rm {out}/old.txt",
    "tee": "echo x | tee {out}/n",
    "dd": "dd if=a.txt of={out}/n",
    "tar": "tar cf - a.txt | tar xf - -C {out}",
    "awk": "awk 'BEGIN{{print 1 > \"{out}/n\"}}'",
    "perl": "perl -i -pe s/x/y/ {out}/old.txt",
    "git": "git init -q {out}/repo",
    "gcc": "echo 'int main(){{}}' > m.c; gcc -c m.c -o {out}/m.o",
    "ar": "ar rc {out}/l.a a.txt",
    "python3": "python3 -c \"import os; os.rename('{out}/old.txt', '{out}/new')\"",
    "sqlite": "python3 -c \"import sqlite3; sqlite3.connect('{out}/db').execute('vacuum')\"",
    "node": "node -e \"require('fs').mkdirSync('{out}/d')\"",
    "curl": "curl -sS -o {out}/n file:///etc/hostname",
    "hidden": "touch {hid}/dir/n",
}
READS = {
    "cat": "cat {hid}/h.txt",
    "exec": "{hid}/tool",
    "command": "tool",
    "dash": "dash -c tool",
    "source": "source {hid}/tool",
    "cd": "cd {hid}/dir",
    "gcc": "echo '#include \"{hid}/h.txt\"' > i.c; gcc -c i.c",
    "python3": "python3 {hid}/h.txt",
    "node": "node {hid}/h.txt",
    "git": "git clone -q {hid}/dir copy",
    "make": "make -f {hid}/h.txt",
}
NETWORK = {
    "python3": "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 80), 3)\"",
    "curl": "curl -sS https://example.org/",
    "git": "git ls-remote https://example.org/x.git",
    "wget": "wget -T 3 -t 1 -q https://example.org/",
    "getent": "getent hosts example.org",
    "ssh": "ssh -o BatchMode=yes example.org",
}
BENIGN = {
    "missing": "cat nope; ls nope; cd nope",
    "noexec": "./noexec.sh",
    "unknown": "nosuchcommand",
    "gcc": "gcc nofile.c",
    "python3": "python3 -c 'import nosuchmodule'",
    "node": "node -e \"require('./nope')\"",
    "git": "git log",
    "curl": "curl -sS http://127.0.0.1:1/",
    "hidden": "cat {hid}/not-on-the-host-either",
}


@pytest.mark.parametrize(
    ("name", "script", "kind"),
    [
        *((n, s, "filesystem_write") for n, s in WRITES.items()),
        *((n, s, "filesystem_read") for n, s in READS.items()),
        *((n, s, "network") for n, s in NETWORK.items()),
        *((n, s, None) for n, s in BENIGN.items()),
    ],
)
def test_real_messages_are_classified(root: Path, name: str, script: str, kind: str | None) -> None:
    if name in {"gcc", "node", "git", "curl", "wget", "ssh", "perl", "make"}:
        require(name)
    status, found = run(root, script.format(out=root / "out", hid=root / "hid"))
    assert status != 0 or name == "perl"  # it goes on after a file that it cannot edit
    assert {d.kind for d in found} == ({kind} if kind else set()), found
    assert all(d.target is None or str(root) in d.target or kind == "network" for d in found)


def test_a_file_that_the_command_made_in_its_own_tmp_is_no_denial(root: Path) -> None:
    """One of that name on the host has nothing to do with it."""
    with tempfile.NamedTemporaryFile(dir="/tmp") as host:
        code, denials = run(root, f"echo a > {host.name}; grep b {host.name}")
        assert (code, denials) == (1, [])
        _, control = run(root, f"grep -q b {host.name}")
        assert [one.target for one in control] == [host.name]


def _languages() -> list[str]:
    if not os.path.isdir(CATALOGS):
        return []
    return sorted(
        name
        for name in os.listdir(CATALOGS)
        if os.path.exists(f"{CATALOGS}/{name}/LC_MESSAGES/libc.mo")
        and "@" not in name
        and not name.startswith("en")
    )


@pytest.mark.requires("catalogs")
def test_every_installed_language_is_understood(root: Path) -> None:
    """libc's catalogs translate strerror; a locale need not be generated for LANGUAGE to work."""
    languages = _languages()
    missed = []
    for language in languages[:: max(1, len(languages) // 12)]:
        where = {"LC_ALL": "C.UTF-8", "LANGUAGE": language}
        _, found = run(root, f"touch {root}/out/n; cat {root}/hid/h.txt", **where)
        if {d.kind for d in found} != {"filesystem_write", "filesystem_read"}:
            missed.append((language, found))
    assert missed == []
