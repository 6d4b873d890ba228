"""What a command does not see, or loses, although it succeeds: said in one line."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ctl import Ctl
from support.requirements import require

GONE = "is gone: the sandbox had a "


@pytest.mark.parametrize("command", [["ls", "lib"], ["ls", "./lib/"], ["sh", "-c", "ls lib"]])
def test_a_denied_folder_that_is_listed_is_named(inside: Ctl, command: list[str]) -> None:
    lib = inside.workspace / "lib"
    lib.mkdir()
    (lib / "a").write_text("")
    done = inside("run", "--deny", "lib", "--", *command)
    assert (done.returncode, done.stdout) == (0, b"")
    assert f"{lib} is masked" in done.stderr.decode()
    other = inside("run", "--deny", "lib", "--", "ls", "-d", ".")
    assert other.stderr == b""


def test_a_home_folder_that_is_listed_and_looks_empty_is_named(inside: Ctl) -> None:
    done = inside("run", "--", "ls", "/root")
    assert (done.returncode, done.stdout) == (0, b"")
    said = done.stderr.decode()
    assert "/root, whose content on the host is not visible in the sandbox" in said
    assert "--read /root" not in said
    assert inside("run", "--", "ls", "/tmp").stderr == b""


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("echo x > /tmp/out.txt", "/tmp/out.txt"),
        ("echo x | tee /tmp/out.txt", "/tmp/out.txt"),
        ("echo x > f; cp f /tmp/copy", "/tmp/copy"),
        ("sort -o /tmp/sorted /etc/passwd", "/tmp/sorted"),
        ("git init -q p; git clone -q p /tmp/clone 2>/dev/null", "/tmp/clone"),
        ("cd /tmp && git init -q p", "/tmp/p"),
        ("git -C /tmp init -q p", "/tmp/p"),
        ("python3 -c 'import sys, os; os.mkdir(sys.argv[1])' /tmp/made", "/tmp/made"),
        ("tool() { mkdir ${1#*=}; }; tool --prefix=/tmp/root", "/tmp/root"),
        ("tool() { mkdir ${1#-o}; }; tool -o/tmp/root", "/tmp/root"),
        ("D=/tmp/kept; mkdir $D", "/tmp/kept"),
        ("cd /tmp; echo x > out", "/tmp/out"),
        ("echo x > f; cp f /tmp", "/tmp/f"),
        ("echo x > f; cp f /tmp; cat /tmp/f", None),
        ("echo x > f; tar cf a.tar f; mkdir /tmp/d; tar xf a.tar -C /tmp/d", "/tmp/d"),
        ("mkdir -p /tmp/d && echo x > /tmp/d/out", "/tmp/d/out"),
        ("echo x > /var/tmp/out", "/var/tmp/out"),
        ("echo x > /dev/shm/out", "/dev/shm/out"),
        ("D=/tmp/part; mkdir $D; ls $D", None),
        ("mkdir -p /tmp/h; HOME=/tmp/h ls", None),
        ("tool() { mkdir $2; }; tool --cache-dir /tmp/h", None),
        ("export TMPDIR=/tmp/own; mkdir $TMPDIR", None),
        ("cp /bin/true /tmp/tool; /tmp/tool", None),
        ("cd /tmp; cp /bin/echo tool; ./tool", None),
        ("mkfifo /tmp/pipe", None),
        ("ls /tmp > f", None),
        ("echo x > /tmp/part; cat /tmp/part > f", None),
        ("echo x > /tmp/part && rm /tmp/part", None),
        ("rm -f /tmp/none", None),
        ("cat /tmp/none > f; true", None),
        ("python3 -c 'import tempfile; tempfile.mkstemp()'", None),
        ("echo x > /tmp/out.txt; false", None),
    ],
)
def test_a_file_in_tmp_that_the_caller_asked_for_is_named(
    inside: Ctl, script: str, lost: str | None
) -> None:
    said = inside("run", "--", "sh", "-c", script).stderr.decode()
    if lost is None:
        assert GONE not in said
    else:
        assert f"warning: {lost} {GONE}" in said


def test_an_operand_in_tmp_is_named_only_if_it_is_there(inside: Ctl) -> None:
    said = inside("run", "--", "python3", "-m", "venv", "--without-pip", "/tmp/the env").stderr
    assert f'warning: "/tmp/the env" {GONE}'.encode() in said
    other = inside("run", "--", "test", "!", "-e", "/tmp/env")
    assert (other.returncode, other.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        (["cp", "f", "../z"], "z"),
        (["cp", "f", ".."], "f"),
        (["tar", "czf", "../f.tgz", "f"], "f.tgz"),
        (["git", "init", "-q", "../new"], "new"),
        (["sh", "-c", "echo 1 > ../x"], "x"),
        (["python3", "-c", "open('../y', 'w')"], "y"),
        (["sh", "-c", "mkdir d; cp f d; cd d; cp f ../g"], None),
        (["sh", "-c", "cp f ../part; rm ../part"], None),
        (["sh", "-c", "ls .. > f"], None),
    ],
)
def test_a_file_beside_a_workspace_below_tmp_is_named(
    inside: Ctl, command: list[str], lost: str | None
) -> None:
    with TemporaryDirectory(dir="/tmp") as parent:
        workspace = Path(parent, "a")
        workspace.mkdir()
        (workspace / "f").write_text("")
        ctl = Ctl(inside.socket_path, workspace)
        done = ctl("run", "--", *command)
        said = done.stderr.decode()
        assert done.returncode == 0, said
        assert os.listdir(parent) == ["a"]
        if lost is None:
            assert GONE not in said
        else:
            assert f"warning: {parent}/{lost} {GONE}" in said


def test_every_lost_file_is_named_in_one_line(inside: Ctl) -> None:
    with TemporaryDirectory(dir="/tmp") as parent:
        ctl = Ctl(inside.socket_path, Path(parent, "a"))
        ctl.workspace.mkdir()
        one, other = f"{parent}/s1", f"{parent}/s2"
        said = ctl("run", "--", "sh", "-c", "echo x > ../s1; echo y > ../s2").stderr.decode()
        assert f"warning: {one}, {other} are gone: the sandbox had a /tmp of its own" in said
        script = "touch /var/tmp/x; for i in 1 2 3 4 5; do :; done; touch ../1 ../2 ../3 ../4 ../5"
        said = ctl("run", "--", "sh", "-c", script).stderr.decode()
        assert f"{parent}/4 and 1 more are gone" in said
        assert f"/var/tmp/x {GONE}/var/tmp" in said


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        (["sh", "-c", "echo x > report; ls"], "report"),
        (["touch", "new"], "new"),
        (["python3", "-c", "open('re' + 'port', 'w')"], "report"),
        (["sh", "-c", "mkdir -p out/deep; touch out/deep/x"], "out/deep/x"),
        (["sh", "-c", "touch x; rm x; touch a/mine; ls"], None),
        (["true"], None),
        (["sh", "-c", "touch x; false"], None),
    ],
)
def test_what_is_made_in_a_start_folder_that_is_not_granted_is_named(
    inside: Ctl, command: list[str], lost: str | None
) -> None:
    with TemporaryDirectory(dir="/tmp") as parent:
        manifest = Path(parent, "m.toml")
        manifest.write_text('[sandbox]\nfs_write_allow = ["a"]\n')
        Path(parent, "a").mkdir()
        ctl = Ctl(inside.socket_path, Path(parent))
        for words in (["--workspace", "a", "--cwd", "."], ["--manifest", "m.toml"]):
            said = ctl("run", *words, "--", *command).stderr.decode()
            assert sorted(os.listdir(parent)) == ["a", "m.toml"]
            if lost is None:
                assert "gone" not in said
            else:
                assert f"warning: {parent}/{lost} {GONE}/tmp" in said


def test_without_a_tmp_of_its_own_nothing_is_lost_there(inside: Ctl) -> None:
    require("landlock")
    script = "touch /tmp/sandboxd-x1; echo done"
    done = inside("run", "--backend", "landlock", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    said = done.stderr.decode()
    assert GONE not in said
    assert "$TMPDIR names a private folder" in said
    assert "--write" not in said


def test_a_sandbox_that_stays_loses_nothing(inside: Ctl) -> None:
    inside("sandbox create", "--name", "stays")
    try:
        line = "echo x > /tmp/out.txt"
        done = inside("sandbox run", "stays", "--", "sh", "-c", line)
        assert (done.returncode, done.stderr) == (0, b"")
        kept = inside("sandbox run", "stays", "--", "cat", "/tmp/out.txt")
        assert kept.stdout == b"x\n"
    finally:
        inside("sandbox destroy", "stays")
