"""explain → --write-manifest → run --manifest: what was refused works, and nothing else does."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from explain.explaining import Ctl

pytestmark = pytest.mark.requires("bubblewrap")

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
PROGRAMS = {
    "cp": "cp note.txt {place}/out/copied.txt",
    "sed -i": "sed -i s/old/new/ {place}/out/old.txt",
    "mkdir -p": "mkdir -p {place}/out/a/b",
    "mv": "mv {place}/out/old.txt {place}/out/older.txt",
    "chmod": "chmod 600 {place}/out/old.txt",
    "make": "make",
    "python": "python3 sum.py",
    "a script elsewhere": "{place}/data/tool.sh",
    "sqlite": "python3 -c \"import sqlite3; sqlite3.connect('{place}/out/db').execute("
    "'create table t(a)')\"",
}


@pytest.fixture
def filled(ctl: Ctl) -> Ctl:
    place, work = ctl.place, ctl.workspace
    (work / "note.txt").write_text("note\n")
    (work / "Makefile").write_text(f"all:\n\tcp note.txt {place}/out/made.txt\n")
    (work / "sum.py").write_text(
        f"import os\nd = '{place}/data'\n"
        "print(sum(int(open(os.path.join(d, str(n))).read()) for n in range(5)))\n"
    )
    (place / "out" / "old.txt").write_text("old\n")
    for number in range(5):
        (place / "data" / str(number)).write_text(f"{number}\n")
    (place / "data" / "tool.sh").write_text("#!/bin/sh\necho tool ran\n")
    (place / "data" / "tool.sh").chmod(0o755)
    subprocess.run([*GIT, "init", "-q", str(place / "repo")], check=True)
    return ctl


def until_it_works(ctl: Ctl, command: str, file: Path) -> list[str]:
    """Explain until nothing is missing: who stops at the first refusal hides the next one."""
    refused: list[str] = []
    flags: list[str] = []
    for _ in range(6):
        told = ctl("explain", "--json", *flags, "--write-manifest", str(file), "--",
                   "sh", "-c", command)  # fmt: skip
        result = json.loads(told.stdout)
        missing = result["explanation"]["missing"]
        if not missing:
            assert result["exit_code"] == 0, result
            return refused
        refused += [n["target"] for n in result["explanation"]["needs"] if n["status"] == "needed"]
        flags = ["--manifest", str(file)]
    raise AssertionError(result)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_written_manifest_lets_it_run(filled: Ctl, name: str) -> None:
    command = PROGRAMS[name].format(place=filled.place)
    before = filled("run", "--", "sh", "-c", command)
    assert before.returncode != 0, before
    file = filled.place / "tool.toml"
    if name == "mv":
        # It works only once.
        (filled.place / "out" / "older.txt").unlink(missing_ok=True)
    refused = until_it_works(filled, command, file)
    assert refused
    assert all(path.startswith(str(filled.place)) for path in refused)
    if name == "mv":
        (filled.place / "out" / "older.txt").rename(filled.place / "out" / "old.txt")
    elif name == "sqlite":
        (filled.place / "out" / "db").unlink()
    after = filled("run", "--manifest", str(file), "--", "sh", "-c", command)
    assert after.returncode == 0, (after, file.read_text())


def test_a_git_dir_elsewhere_is_never_proposed(filled: Ctl) -> None:
    """Its hooks would run at the user's next git command: it has to be the workspace."""
    commit = f"{' '.join(GIT)} -C {filled.place}/repo commit -q --allow-empty -m two"
    told = filled("explain", "--json", "--read", f"{filled.place}/repo", "--", "sh", "-c", commit)
    explanation = json.loads(told.stdout)["explanation"]
    refused = [n["target"] for n in explanation["needs"] if n["status"] == "refused"]
    assert any(path.startswith(f"{filled.place}/repo/.git") for path in refused), explanation
    assert "fs_write_allow" not in explanation["missing"], explanation


def test_it_allows_no_more_than_the_command_needs(filled: Ctl) -> None:
    place = filled.place
    file = place / "tool.toml"
    until_it_works(filled, f"cp note.txt {place}/out/copied.txt", file)
    manifest = tomllib.loads(file.read_text())["sandbox"]
    assert manifest["fs_write_allow"] == [str(filled.workspace), str(place / "out")]
    assert "fs_read_allow" not in manifest
    assert manifest["network"] == {"kind": "deny"}
    for command in (f"cat {place}/data/1", f"touch {place}/data/new", f"touch {place}/new"):
        assert filled("run", "--manifest", str(file), "--", "sh", "-c", command).returncode != 0


def test_neighbours_become_their_folder_and_a_single_file_stays_one(filled: Ctl) -> None:
    told = filled("explain", "--json", "--", "python3", "sum.py")
    # It stops at the first: with all of them refused together they are one folder.
    one = json.loads(told.stdout)["explanation"]["missing"]
    assert one == {"fs_read_allow": [str(filled.place / "data" / "0")]}
    names = " ".join(str(filled.place / "data" / str(n)) for n in range(5))
    told = filled("explain", "--json", "--", "sh", "-c", f"cat {names}")
    together = json.loads(told.stdout)["explanation"]["missing"]
    assert together == {"fs_read_allow": [str(filled.place / "data")]}


def test_the_presets_protection_stays_under_a_written_manifest(filled: Ctl) -> None:
    subprocess.run([*GIT, "init", "-q", str(filled.workspace)], check=True)
    file = filled.place / "tool.toml"
    until_it_works(filled, f"cp note.txt {filled.place}/out/copied.txt", file)
    hook = "echo x > .git/hooks/pre-commit"
    assert filled("run", "--manifest", str(file), "--", "sh", "-c", hook).returncode != 0
    assert not (filled.workspace / ".git" / "hooks" / "pre-commit").exists()


def test_a_granted_file_that_is_replaced_gives_way_to_its_folder(filled: Ctl) -> None:
    """A file that is bound alone can be written, but not renamed over."""
    old, file = filled.place / "out" / "old.txt", filled.place / "tool.toml"
    words = ("--write", str(old), "--write-manifest", str(file), "--json", "--")
    told = filled("explain", *words, "sh", "-c", f"echo new > note2; mv note2 {old}")
    explanation = json.loads(told.stdout)["explanation"]
    assert explanation["missing"] == {"fs_write_allow": [str(old.parent)]}
    assert str(old) not in explanation["manifest"]["fs_write_allow"]


def test_a_service_of_the_host_is_reached_after_it_was_explained(filled: Ctl) -> None:
    with http_server() as port:
        command = f"curl -sf http://127.0.0.1:{port}/"
        assert filled("run", "--", "sh", "-c", command).returncode != 0
        file = filled.place / "tool.toml"
        until_it_works(filled, command, file)
        network = tomllib.loads(file.read_text())["sandbox"]["network"]
        assert network == {"kind": "allow_hosts", "hosts": [f"localhost:{port}"]}
        done = filled("run", "--manifest", str(file), "--", "sh", "-c", command)
        assert (done.returncode, done.stdout) == (0, "hello\n")


@contextmanager
def http_server() -> Iterator[int]:
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"hello\n")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
