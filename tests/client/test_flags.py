"""Flags, paths, environment and amounts: what the daemon is asked for, from what was typed."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from sandboxd_client.caller import usual
from sandboxd_client.cli.amounts import count, seconds, size_bytes
from sandboxd_client.cli.flags import RUN
from sandboxd_client.cli.network import network
from sandboxd_client.cli.parse import UsageError, parse
from sandboxd_client.cli.request import environment, policy
from sandboxd_client.cli.table import COMMANDS
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.messages.execute import ExecuteParams
from sandboxd_proto.messages.server import CheckParams
from sandboxd_proto.wire import convert


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


def asked(*arguments: str, caller: dict[str, str] | None = None):
    params = policy(parse(RUN, [*arguments, "true"]), {} if caller is None else caller)
    # Whatever the flags are, the daemon's own structs take it.
    convert({"argv": ["true"], **params}, ExecuteParams)
    convert(params, CheckParams)
    return params


# parsing


def test_the_command_begins_at_the_first_word_that_is_no_flag():
    options = parse(RUN, ["--read", "/a", "--net=deny", "ls", "--read", "-l"])
    assert options.operands == ["ls", "--read", "-l"]
    assert options.all("--read") == ["/a"]


def test_two_dashes_allow_a_command_with_a_leading_dash():
    assert parse(RUN, ["--quiet", "--", "-x", "--", "y"]).operands == ["-x", "--", "y"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--raed", "/a", "true"], "did you mean --read?"),
        (["--read"], "write --read PATH"),
        (["--quiet=1", "true"], "write --quiet alone"),
        (["--base", "all", "true"], "it is one of minimal, host"),
        (["--memory", "lots", "ls"], "write --memory 256M ls"),
        (["--memory", "ls"], "write --memory 256M ls"),
        (["--timeout", "five", "true", "x"], "write --timeout 5m true x"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(arguments, hint):
    with pytest.raises(UsageError) as caught:
        parse(RUN, arguments)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("command", "flag", "hint"),
    [
        ("check", "--mode", "--mode is an option of run, sandbox run and session open"),
        ("explain", "--mode", "--mode is an option of run, sandbox run and session open"),
        ("status", "-v", "-v is an option of check"),
        ("ps", "--net", "--net is an option of run, explain, shell, sandbox create and others"),
        ("check", "--modus", "see sandboxctl help check"),
        ("check", "--timout", "did you mean --timeout?"),
    ],
)
def test_an_option_of_another_command_is_named_as_such(command, flag, hint):
    with pytest.raises(UsageError) as caught:
        parse(COMMANDS[command], [flag, "plan"])
    assert caught.value.hint == hint


def test_flags_may_follow_the_operand_of_other_commands():
    options = parse(COMMANDS["kill"], ["e-1", "--signal", "INT", "e-2"])
    assert options.operands == ["e-1", "e-2"]
    assert options.one("--signal") == "INT"


# the workspace


def test_the_workspace_is_the_git_root(home, monkeypatch):
    deep = home / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "HEAD").write_text("ref: refs/heads/main\n")
    (home / "project" / ".git").write_text("gitdir: ../elsewhere\n")  # a worktree has a file
    monkeypatch.chdir(deep)
    params = asked()
    assert params["preset"] == "workspace-write"
    assert params["workspace"] == str(home / "project")
    assert params["cwd"] == str(deep)


def test_the_workspace_is_the_current_folder_without_git(home, monkeypatch):
    (home / "plain").mkdir()
    monkeypatch.chdir(home / "plain")
    assert asked()["workspace"] == str(home / "plain")


@pytest.mark.parametrize("what", ["nothing in it", "a file without a git dir", "a dangling link"])
def test_a_git_that_is_no_repository_makes_no_workspace(home, monkeypatch, what):
    deep = home / "project" / "deep"
    deep.mkdir(parents=True)
    pointer = home / "project" / ".git"
    if what == "nothing in it":
        pointer.mkdir()
    elif what == "a file without a git dir":
        pointer.write_text("gitdir: /nonexistent\n")
    else:
        pointer.symlink_to("/nonexistent")
    monkeypatch.chdir(deep)
    assert asked()["workspace"] == str(deep)


@pytest.mark.requires("root")
@pytest.mark.parametrize("whose", ["pointer", "folder"])
def test_a_repository_of_another_user_above_makes_no_workspace(home, monkeypatch, whose):
    """As in a shared /tmp, where every user can put a .git above the folders of others."""
    deep = home / "project" / "deep"
    deep.mkdir(parents=True)
    pointer = home / "project" / ".git"
    for name in ("objects", "refs"):
        (pointer / name).mkdir(parents=True)
    (pointer / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(deep)
    assert asked()["workspace"] == str(home / "project")
    os.chown(pointer if whose == "pointer" else pointer.parent, 12345, 12345)
    assert asked()["workspace"] == str(deep)


def test_a_git_folder_in_the_home_folder_does_not_make_it_the_workspace(home, monkeypatch):
    (home / ".git").mkdir()
    (home / "plain").mkdir()
    monkeypatch.chdir(home / "plain")
    assert asked()["workspace"] == str(home / "plain")


def test_a_user_without_home_and_account_has_workspaces(folder, monkeypatch):
    """In a container, with a number for a user."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(folder)
    assert asked()["workspace"] == str(folder)


@pytest.mark.parametrize("where", ["home", "above", "/", "link"])
def test_home_and_what_contains_it_are_never_the_workspace(home, monkeypatch, where):
    link = home.parent / "link"
    link.symlink_to(home)
    place = {"home": home, "above": home.parent, "/": Path("/"), "link": link}[where]
    monkeypatch.chdir(place)
    with pytest.raises(UsageError, match="cannot be the workspace") as caught:
        asked()
    assert "--preset read-only" in caught.value.hint
    with pytest.raises(UsageError, match="cannot be the workspace"):
        asked("--workspace", str(place))
    params = asked("--preset", "read-only")
    assert "workspace" not in params
    assert "cwd" not in params


def test_read_only_can_read_the_workspace(home, monkeypatch):
    (home / "plain").mkdir()
    monkeypatch.chdir(home / "plain")
    params = asked("--preset", "read-only")
    assert params["manifest"]["fs_read_allow"] == [str(home / "plain")]
    assert params["cwd"] == str(home / "plain")


def test_a_named_workspace_elsewhere_is_where_the_command_starts(home, monkeypatch):
    for name in ("a", "b"):
        (home / name).mkdir()
    monkeypatch.chdir(home / "a")
    params = asked("--workspace", "../b")
    assert params["workspace"] == str(home / "b")
    assert "cwd" not in params
    assert asked("--workspace", "../b", "--cwd", ".")["cwd"] == str(home / "a")


# paths, limits, network


@pytest.fixture
def project(home, monkeypatch):
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    return home / "project"


def test_relative_and_home_paths_are_resolved_here(project, home):
    manifest = asked("--read", "~/a", "--read", "../b", "--write", "c", "--deny", "/d/")["manifest"]
    assert manifest["fs_read_allow"] == [str(home / "a"), str(home / "b")]
    assert manifest["fs_write_allow"] == [str(project / "c")]
    assert manifest["fs_deny"] == ["/d"]


def test_no_timeout_unless_asked(project):
    assert asked()["manifest"]["timeout"] == "longest"
    assert asked("--timeout", "2m")["manifest"]["timeout"] == 120.0


def test_limits(project):
    manifest = asked("--memory", "256M", "--cpu", "1.5s", "--processes", "20", "--base", "minimal",
                     "--syscalls", "strict")["manifest"]  # fmt: skip
    assert manifest["max_memory_bytes"] == 256 * 1024 * 1024
    assert manifest["max_cpu_secs"] == 1.5
    assert manifest["max_processes"] == 20
    assert (manifest["base"], manifest["syscall_policy"]) == ("minimal", "strict")


def test_network_words(project):
    assert "network" not in asked()["manifest"]
    assert network(["deny"]) == {"kind": "deny"}
    hosts = ["a.example", "b.example:8080"]
    assert network([",".join(hosts), hosts[0]]) == {"kind": "allow_hosts", "hosts": hosts}
    for mixed in (["deny", "a.example"], ["deny,inherit"], [""]):
        with pytest.raises(UsageError):
            network(mixed)
    assert network(["all"]) == {"kind": "inherit"}
    assert network(["gitlab", "db:5432"]) == {"kind": "allow_hosts", "hosts": ["gitlab", "db:5432"]}


@pytest.mark.parametrize(
    ("word", "meant"),
    [("al", "all"), ("non", "none"), ("allow", "all"), ("any", "all"), ("node", "group:node")],
)
def test_a_misspelt_word_is_no_host(word, meant):
    with pytest.raises(UsageError) as caught:
        network([word])
    assert f"did you mean --net {meant}?" in caught.value.hint
    assert network([f"{word}:443"]) == {"kind": "allow_hosts", "hosts": [f"{word}:443"]}


def test_a_manifest_that_shows_a_part_of_this_folder_starts_here(home, monkeypatch):
    (home / "project" / "data").mkdir(parents=True)
    monkeypatch.chdir(home / "project")
    for shown, cwd in (
        ("data", str(home / "project")),
        ("..", str(home / "project")),
        ("/usr", None),
    ):
        Path("m.toml").write_text(f'[sandbox]\nfs_read_allow = ["{shown}"]\n')
        assert asked("--manifest", "m.toml").get("cwd") == cwd


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30", 30),
        ("30s", 30),
        ("500ms", 0.5),
        ("5m", 300),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
    ],
)
def test_times(text, value):
    assert seconds(text, "--timeout") == value


@pytest.mark.parametrize(
    ("text", "value"), [("65536", 65536), ("4k", 4096), ("256M", 1 << 28), ("2GiB", 1 << 31)]
)
def test_sizes(text, value):
    assert size_bytes(text, "--memory") == value


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "0", "1e9", "5y", "1h30", "1.2.3", "٣", "nan", "inf"]
)
def test_what_is_no_amount_is_refused(text):
    for reader in (seconds, size_bytes, count):
        with pytest.raises(UsageError):
            reader(text, "--flag")


# the environment


def test_exactly_the_callers_usual_variables_are_sent():
    caller = {"PATH": "/bin", "HOME": "/h", "LC_TIME": "C", "TERM": "xterm", "SECRET": "x",
              "AWS_TOKEN": "y", "LANG": "C",
              "RUSTUP_HOME": "/r"}  # fmt: skip
    assert dict(map(tuple, environment([], caller))) == {
        "PATH": "/bin", "HOME": "/h", "LC_TIME": "C", "TERM": "xterm", "LANG": "C",
        "RUSTUP_HOME": "/r",
    }  # fmt: skip
    assert usual(caller, terminal=False)["TERM"] == "dumb"
    assert ["SECRET", "x"] in environment(["SECRET"], caller)
    assert ["PATH", "/opt"] in environment(["PATH=/opt"], caller)
    assert ["EMPTY", ""] in environment(["EMPTY="], caller)
    for wrong in ("MISSING", "=x"):
        with pytest.raises(UsageError):
            environment([wrong], caller)


# a manifest file


def test_a_manifest_stands_and_flags_add_to_it(project):
    (project / "sub").mkdir()
    (project / "sub" / "tool.toml").write_text(
        '[sandbox]\nfs_read_allow = ["data", "~/x", "/abs"]\ntimeout = 5\nenv = { A = "1" }\n'
        'network = { kind = "allow_hosts", hosts = ["one.example"] }\n'
    )
    params = asked("--manifest", "sub/tool.toml", "--read", "/more", "--env", "B=2",
                   "--net", "two.example", caller={"PATH": "/bin"})  # fmt: skip
    manifest = params["manifest"]
    assert "preset" not in params
    assert "workspace" not in params
    assert manifest["fs_read_allow"] == [
        str(project / "sub" / "data"), os.path.expanduser("~/x"), "/abs", "/more",
    ]  # fmt: skip
    assert manifest["timeout"] == 5.0
    assert manifest["env"] == [["A", "1"], ["B", "2"]]
    assert manifest["network"]["hosts"] == ["one.example", "two.example"]
    options = parse(RUN, ["--manifest", "sub/tool.toml", "true"])
    policy(options, {})
    assert options.hosts == ["one.example"], "which --net need not repeat"
    assert asked("--manifest", "sub/tool.toml", "--timeout", "9")["manifest"]["timeout"] == 9.0


def test_a_manifest_without_env_gets_the_callers_and_without_network_none(project):
    (project / "tool.toml").write_text('[sandbox]\nfs_write_allow = ["."]\n')
    params = asked("--manifest", "tool.toml", caller={"PATH": "/bin"})
    assert params["manifest"]["env"] == [["PATH", "/bin"]]
    assert params["manifest"]["timeout"] == "longest"
    assert params["manifest"]["network"] == "deny"
    net = asked("--manifest", "tool.toml", "--net", "a.example")["manifest"]["network"]
    assert net == {"kind": "allow_hosts", "hosts": ["a.example"]}
    assert "network" not in asked("--manifest", "tool.toml", "--preset", "read-only")["manifest"]
    assert params["cwd"] == str(project)


@pytest.mark.parametrize("text", ["[sandbox]\nfs_raed_allow = []", "x = 1", "not toml ="])
def test_a_wrong_manifest_is_refused_here(project, text):
    (project / "tool.toml").write_text(text)
    with pytest.raises(ManifestInvalid, match=r"^tool\.toml: "):
        asked("--manifest", "tool.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        asked("--manifest", "missing.toml")


def test_a_size_without_a_unit_names_the_one_that_was_meant():
    with pytest.raises(UsageError) as refused:
        size_bytes("50", "--memory")
    assert refused.value.hint == "write --memory 50M"


def test_help_says_which_mode_there_is_without_one(ctl):
    opening = " ".join(ctl("help", "session", "open").stdout.decode().split())
    assert "Without it default, whatever the config says" in opening
    running = " ".join(ctl("help", "run").stdout.decode().split())
    assert "Without it the session's mode, else widest_mode of the config" in running


def test_help_of_run_says_how_a_server_is_reached(ctl):
    assert b"sandboxctl help sandbox forward" in ctl("help", "run").stdout
