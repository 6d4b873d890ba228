"""Hints of sandboxctl for well-known commands that fail in a sandbox."""

from __future__ import annotations

import os

import pytest

from sandboxd_client.cli.flags import RUN
from sandboxd_client.cli.hints.advice import advise
from sandboxd_client.cli.hints.left_processes import left_processes
from sandboxd_client.cli.hints.tools import tool_hint
from sandboxd_client.cli.outcome import crash_lines
from sandboxd_client.cli.parse import parse


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sudo", "ls"], "nothing in"),
        (["sandboxctl", "status"], "no sandbox can be made inside"),
        (["chown", "1", "f"], "change owners outside"),
        (["install", "-o", "nobody", "a", "b"], "change owners outside"),
        (["install", "a", "b"], None),
        (["sh", "-c", "cd x && A=1 mount -t tmpfs x y"], "mount it outside"),
        (["useradd", "x"], "accounts"),
        (["hostname", "x"], "outside"),
        (["dmesg"], "rights over the machine" if os.geteuid() == 0 else "shows or changes"),
        (["apt-get", "install", "x"], "outside of the sandbox"),
        (["mvn", "-o", "package"], "each workspace has"),
        (["mvn", "package"], None),
        (["mvn", "-o", "-Dmaven.repo.local=/x", "package"], None),
        (["npm", "install", "-g", "x"], "npx NAME"),
        (["npm", "install", "-g", "--prefix", "t", "x"], None),
        (["npm", "install", "x"], None),
        (["go", "env", "-w", "GOFLAGS=-mod=mod"], "-e GOFLAGS=-mod=mod"),
        (["go", "env"], None),
        (["docker", "ps"], "engine's socket"),
        (["sh", "-c", "docker ps"], "engine's socket"),
        (["/usr/bin/chromium", "--headless"], "--no-sandbox"),
        (["chromium", "--no-sandbox"], "--user-data-dir=/tmp/profile"),
        (["chromium", "--no-sandbox", "--user-data-dir=/tmp/x"], None),
        (["git", "commit"], None),
        (["make"], None),
    ],
)
def test_well_known_commands_that_fail_get_the_right_hint(argv, said):
    found = tool_hint(argv)
    assert (found is None) == (said is None)
    assert said is None or said in found
    assert "--prefix" not in (found or ""), "npm loses the system's settings with it and -g"


def test_chromium_that_cannot_make_its_profile_has_the_hint():
    said = b"Failed to create headless user data directory container.\n"
    assert "--user-data-dir" in (tool_hint(["chromium", "--headless"], said) or "")
    assert tool_hint(["chromium", "--headless"], b"no such page\n") is None


def test_maven_is_told_of_a_repository_that_exists_only(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    alone = tool_hint(["mvn", "-o", "package"])
    assert "run this once without -o, with --net" in alone
    assert "~/.m2" not in alone
    (tmp_path / ".m2/repository").mkdir(parents=True)
    assert "--read ~/.m2/repository" in tool_hint(["mvn", "-o", "package"])


def test_root_is_told_what_a_sandboxed_root_is(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "can become another" in tool_hint(["su", "nobody"])
    assert "--no-same-owner" in tool_hint(["tar", "xf", "a.tar"])
    assert tool_hint(["tar", "--no-same-owner", "--no-same-permissions", "-xf", "a.tar"]) is None
    assert "cp -r" in tool_hint(["cp", "-a", "/srv/x", "y"])
    assert tool_hint(["cp", "-r", "/srv/x", "y"]) is None
    for words in (
        ["chmod", "u+s", "s"],
        ["chmod", "2755", "s"],
        ["install", "-m", "4755", "a", "b"],
    ):
        assert "set-user-ID" in tool_hint(words)
    assert tool_hint(["chmod", "0755", "s"]) is tool_hint(["chmod", "+x", "s"]) is None
    assert tool_hint(["tar", "cf", "a.tar", "."]) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "can become root" in tool_hint(["su", "nobody"])
    assert tool_hint(["tar", "xf", "a.tar"]) is None


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("tar: t/a: Cannot change ownership to uid 1234, gid 1234: Invalid argument", "tar --no-s"),
        ("cp: failed to preserve ownership for 't2': Invalid argument", "cp -r"),
        ('rsync: [generator] chown "/w/r" failed: Invalid argument (22)', "rsync -a --no-o"),
        ("/bin/chown: changing ownership of 'f': Invalid argument", "owners outside"),
        ("chgrp: changing group of 'f': Operation not permitted", "owners outside"),
        ("install: cannot change ownership of 'g': Invalid argument", "owners outside"),
        ("useradd: cannot lock /etc/passwd; try again later.", "accounts are those"),
        ("umount: /proc: must be superuser to unmount.", "nothing can be mounted"),
        ("tar: t/a: Cannot open: No such file or directory", None),
        ("cp: cannot create regular file 'x': Permission denied", None),
        ("chown: invalid user: 'x'", None),
        ("passwd: user 'x' does not exist", None),
    ],
)
def test_the_hint_about_owners_and_accounts_follows_their_message(monkeypatch, line, hint):
    """Whatever ran them."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    failed = {"outcome": "exited", "exit_code": 2, "denials": []}
    options = parse(RUN, ["make"])
    options.errors = f"{line}\nmake: *** [Makefile:2: all] Error 2\n".encode()
    said = advise(options, failed)
    assert hint in said[0] if hint else said == []


def test_a_program_of_accounts_that_cannot_lock_their_files_is_explained():
    for program in ("useradd", "groupadd", "passwd"):
        said = f"{program}: cannot lock /etc/passwd; try again later.\n".encode()
        assert "accounts are those" in (tool_hint([program, "x"], said) or "")


@pytest.mark.parametrize(
    ("words", "errors", "flag"),
    [
        ("npm view x --net all", 'npm warn Unknown cli config "--net". This will stop', "--net"),
        ("curl http://x/ --net all", "curl: option --net: is ambiguous", "--net"),
        ("dd if=/dev/zero --tmp-size=1M", "dd: unrecognized option '--tmp-size=1M'", "--tmp-size"),
        ("x --net all", None, "--net"),
        ("x --write a", None, None),
        ("x --write a", "x: a cannot be written", None),
        ("x --timeout 5", "x: unrecognized option '--timeout-all'", None),
        ("--net all x -v", "x: unrecognized option '--net'", None),
    ],
)
def test_a_flag_behind_the_command_that_it_does_not_know_is_told(words, errors, flag):
    """Without its stderr: one that a denial proposes."""
    denial = {"kind": "network", "remedy": {"network": "inherit"}, "message": "x"}
    failed = {"outcome": "exited", "exit_code": 2, "denials": [denial]}
    options = parse(RUN, words.split())
    options.errors = errors if errors is None else f"first\n{errors}\n".encode()
    said = "".join(advise(options, failed))
    assert f"{flag} stands behind {words.split()[0]} " in said if flag else "stands" not in said


def test_ask_without_a_mode_says_what_would_ask():
    failed = {"outcome": "exited", "exit_code": 1, "denials": []}
    assert "--mode auto_edit" in advise(parse(RUN, ["--ask", "false"]), failed)[0]
    assert advise(parse(RUN, ["--ask", "--mode", "default", "false"]), failed) == []
    assert advise(parse(RUN, ["--ask", "false"]), {**failed, "approval": {"state": "x"}}) == []


def test_the_pip_of_pyenv_is_told_apart(tmp_path, monkeypatch):
    """From that of a virtual environment, and from Python's module."""
    (tmp_path / "shims").mkdir()
    for name in ("pip3", "pipx", "python3"):
        (tmp_path / "shims" / name).write_text("#!/bin/sh\n")
        (tmp_path / "shims" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    assert "virtual environment" in (tool_hint(["pip3", "install", "x"]) or "")
    assert "pyenv's pip3" in (tool_hint([f"{tmp_path}/shims/pip3", "install", "x"]) or "")
    assert tool_hint(["pip3", "list"]) is None
    for words in (
        ["v/bin/pip3"],
        ["python3", "-m", "pip"],
        ["v/bin/python", "-m", "pip"],
        ["pipx"],
    ):
        assert tool_hint([*words, "install", "x"]) is None, words
    assert tool_hint(["sh", "-c", "v/bin/pip3 install x"]) is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert tool_hint(["pip3", "install", "x"]) is None


def test_ssh_is_told_its_port_and_the_agent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = {"outcome": "exited", "exit_code": 128,
              "denials": [{"kind": "network", "target": "example.org"}]}  # fmt: skip

    def said(*argv: str) -> list[str]:
        return advise(parse(RUN, ["--", *argv]), result)

    assert "--net example.org:22 --ssh-agent" in said("git", "clone", "git@example.org:x/y")[0]
    assert "--net example.org:22 --ssh-agent" in said("ssh", "example.org")[0]
    assert said("git", "clone", "https://example.org/x") == []
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "o"]\nurl = ssh://git@example.org/x\n')
    assert "example.org:22" in said("git", "push")[0]
    (tmp_path / ".git" / "config").write_text('[remote "o"]\nurl = ssh://g@example.org:9/x\n')
    assert "--net example.org:9 --ssh-agent" in said("git", "push")[0]
    remedy = {"network": {"kind": "allow_hosts", "hosts": ["example.org:22"]}}
    result["denials"] = [{"kind": "network", "target": "example.org", "remedy": remedy}]
    lend = "hint: for the keys of your ssh agent, and your known hosts, add --ssh-agent"
    assert said("ssh", "example.org") == [lend]
    address = "2606:4700::1111"
    result["denials"] = [{"kind": "network", "target": address}]
    for argv in (["ssh", f"nora@{address}"], ["scp", f"nora@[{address}]:x", "."]):
        assert f"--net '[{address}]:22' --ssh-agent" in said(*argv)[0]
    remedy["network"]["hosts"] = [f"[{address}]:22"]
    result["denials"] = [{"kind": "network", "target": address, "remedy": remedy}]
    assert said("ssh", f"nora@{address}") == [lend]
    result["denials"] = []
    assert advise(parse(RUN, ["--net", "example.org:9", "git", "push"]), result) == [lend]
    assert advise(parse(RUN, ["--net", "other.example:9", "git", "push"]), result) == []


def test_a_setting_of_go_that_was_lost_in_a_private_home_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    done = {"outcome": "exited", "exit_code": 0, "denials": []}

    def said(*argv: str, flags: tuple[str, ...] = ()) -> list[str]:
        return advise(parse(RUN, [*flags, "--", *argv]), done)

    (tmp_path / "home").mkdir()
    (tmp_path / "w").mkdir()
    elsewhere = ("--workspace", str(tmp_path / "w"))
    told = said("go", "env", "-w", "GOFLAGS=-v", flags=elsewhere)
    assert "they are gone" in told[0]
    assert "sandboxctl run -e GOFLAGS=-v -- go" in told[0]
    assert said("go", "env", "GOFLAGS", flags=elsewhere) == []
    kept = (*elsewhere, "--write", str(tmp_path / "home/.config/go"))
    assert said("go", "env", "-w", "GOFLAGS=-v", flags=kept) == []


def test_a_repository_is_removed_outside(tmp_path):
    git_dir = tmp_path / ".git"
    (git_dir / "objects" / "ab").mkdir(parents=True)
    denials = [{"kind": "protected_path", "target": f"{git_dir}/config"}]
    failed = {"outcome": "exited", "exit_code": 1, "denials": denials}

    def said(*argv: str) -> list[str]:
        return advise(parse(RUN, ["--", *argv]), failed)

    assert said("rm", "-rf", ".git") == [
        f"hint: a repository is removed outside of the sandbox, with rm -rf {git_dir}"
    ]
    (git_dir / "objects" / "ab").rmdir()
    assert said("sh", "-c", "rm -rf .git/")[0].endswith("in it is left of this one")
    assert said("rm", ".git/config") == []


def test_pip_in_a_virtual_environment_elsewhere_is_told_both_ways(tmp_path, monkeypatch):
    outside, inside = tmp_path / "venv", tmp_path / "w" / ".venv"
    for folder in (outside, inside):
        folder.mkdir(parents=True)
        (folder / "pyvenv.cfg").touch()
    monkeypatch.chdir(tmp_path / "w")

    def said(target: str, *argv: str) -> list[str]:
        denial = {"kind": "filesystem_write", "target": target, "message": "x"}
        failed = {"outcome": "exited", "exit_code": 1, "denials": [denial]}
        return advise(parse(RUN, ["--workspace", ".", "--", *argv]), failed)

    package = f"{outside}/lib/python3/site-packages/x.py"
    for argv in (["../venv/bin/pip", "install", "x"], ["sh", "-c", "python -m pip uninstall x"]):
        (line,) = said(package, *argv)
        assert "make one inside, python3 -m venv .venv" in line
        assert line.endswith(f"add --write {outside}")
    assert said(package, "make") == []
    assert said(f"{inside}/lib/x.py", ".venv/bin/pip", "install", "x") == []
    assert said("/usr/lib/x.py", ".venv/bin/pip", "install", "x") == []


SERVER_ENDED = {"outcome": "signaled", "signal": 2, "denials": []}


@pytest.mark.parametrize(
    ("words", "ended", "port"),
    [
        (["python3", "-m", "http.server", "8123"], SERVER_ENDED, "8123"),
        (["python3", "-m", "http.server"], {"outcome": "exited", "exit_code": 0}, "PORT"),
        (["sh", "-c", "cd x && exec uvicorn a:b --port=9000"], {"outcome": "timeout"}, "9000"),
        (["npm", "run", "dev"], {"outcome": "exited", "exit_code": 130}, "PORT"),
        (["php", "-S", "127.0.0.1:8000"], SERVER_ENDED, "8000"),
        (["npm", "start"], {"outcome": "exited", "exit_code": 0}, None),
        (["python3", "-m", "http.server"], {"outcome": "exited", "exit_code": 1}, None),
        (["make", "serve"], SERVER_ENDED, None),
        (["grep", "-r", "http.server"], SERVER_ENDED, None),
    ],
)
def test_after_a_server_it_is_said_how_it_is_reached_from_outside(words, ended, port):
    told = "\n".join(advise(parse(RUN, ["--", *words]), ended))
    assert ("sandbox forward --tcp web" in told) == (port is not None)
    assert port is None or f"sandbox forward --tcp web {port}" in told
    shared = "\n".join(advise(parse(RUN, ["--net", "all", "--", *words]), ended))
    assert "sandbox forward" not in shared


@pytest.mark.parametrize(
    ("argv", "errors"),
    [
        (["chown", "root", "nofile"], b"chown: cannot access 'nofile': No such file or directory"),
        (["docker", "--nosuch"], b"unknown flag: --nosuch\nSee 'docker --help'."),
        (["su", "--nosuch"], b"su: unrecognized option '--nosuch'\nTry 'su --help'"),
        (
            ["npm", "install", "-g"],
            b"npm error enoent Could not read /srv/rootuser/package.json",
        ),
    ],
)
def test_a_program_that_failed_for_another_reason_gets_no_hint(argv, errors):
    assert tool_hint(argv) is not None
    assert tool_hint(argv, errors) is None
    assert tool_hint(argv, b"x: Operation not permitted") == tool_hint(argv)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({"count": 1, "names": ["node"]}, "a process that the command left running (node) was"),
        ({"count": 3, "names": ["sh", "vite"]}, "3 processes that the command left running (sh"),
        ({"count": 1, "names": []}, "a process that the command left running was"),
        ({"count": 2, "names": ["git", "server"]}, "2 processes"),
        ({"count": 2, "names": ["git", "git-remote-http"]}, None),
        (None, None),
    ],
)
def test_the_hint_about_what_was_left_is_the_daemons_report(left, said):
    hint = left_processes({"outcome": "exited", "left_processes": left})
    assert (hint is None) == (said is None)
    assert said is None or said in hint
    assert left_processes({"outcome": "signaled", "left_processes": left}) is None
    interrupted = {"outcome": "exited", "exit_code": 130, "left_processes": left}
    assert left_processes(interrupted) is None


def test_a_job_that_was_left_is_told_of_once(inside):
    line = ("--", "sh", "-c", "sleep 600 & echo started; exit 3")
    said = inside("run", *line)
    assert (said.stdout, said.returncode) == (b"started\n", 3)
    assert said.stderr.count(b"was ended with it") == 1
    assert b"sandboxctl sandbox create" in said.stderr
    assert inside("run", "--quiet", *line).stderr == b""


@pytest.mark.parametrize(
    "line", ["sleep 0 & echo 'a & b'; wait", "server() { :; }; server &", "yes & kill -9 $!"]
)
def test_a_line_with_jobs_that_leaves_none_gets_no_hint(inside, line):
    assert b"ended with it" not in inside("run", "--", "sh", "-c", f"({line}) >&-").stderr


def test_a_bus_error_names_the_sizes_unless_a_denial_does():
    result = {"outcome": "signaled", "signal": 7, "denials": []}
    assert "--shm-size" in crash_lines(result)[0]
    assert "size" not in crash_lines({**result, "signal": 11})[0]
    assert "size" not in crash_lines({**result, "denials": [{"kind": "file_size"}]})[0]


def test_variables_for_certificates_are_proposed_where_one_was_not_accepted(inside, folder):
    authority = folder / "ca.pem"
    says = "echo 'curl: (60) SSL certificate problem: unable to get local issuer' >&2; exit 60"
    env = {"SSL_CERT_FILE": str(authority)}
    proposed = f"add -e SSL_CERT_FILE --read {authority}\n".encode()
    assert inside("run", "-c", says, **env).stderr.endswith(proposed)
    assert b"hint" not in inside("run", "-c", says).stderr, "there is nothing to pass"
    given = inside("run", "-e", "SSL_CERT_FILE", "-c", says, **env)
    assert b"hint" not in given.stderr
    other = inside("run", "-c", "echo its own >&2; exit 60", **env)
    assert b"hint" not in other.stderr
