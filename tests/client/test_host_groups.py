"""`--net group:…`: hosts from the tools' own configuration, and never from the workspace's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd_client.cli.flags import RUN
from sandboxd_client.cli.group_settings import settings
from sandboxd_client.cli.hints.advice import advise
from sandboxd_client.cli.host_groups import expand
from sandboxd_client.cli.network import network
from sandboxd_client.cli.parse import UsageError, parse

TOOLS = {
    "python3": """case "$*" in
        "-m pip config list") echo "global.index-url='https://index.example:8443/simple'"
            echo "global.extra-index-url='https://more.example/a https://third.example/'" ;;
        *) exit 1 ;; esac""",
    "npm": """mkdir -p "${npm_config_cache:-$HOME/.npm}/_logs"  # as npm itself does
        echo '{"registry": "https://npm.example/", "@x:registry": "https://x.example"}'""",
    "go": """printf 'https://proxy.example,direct\\nsum.example+abc https://mirror.example\\n'""",
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """PATH and HOME of a machine with these tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f'#!/bin/sh\n[ "$PWD" = / ] || exit 1\n{script}\n')
        (tools / name).chmod(0o755)
    home = tmp_path / "home"
    (home / ".cargo" / "registry" / "index" / "crates.example-1a2b").mkdir(parents=True)
    (home / ".cargo" / "registry" / "index" / "crates.example-1a2b" / "config.json").write_text(
        '{"dl": "https://files.example/crates", "api": "https://api.example"}'
    )
    (home / ".cargo" / "config.toml").write_text(
        '[source.mirror]\nregistry = "sparse+https://mirror.example/index/"\n'
    )
    return {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(home)}


@pytest.mark.parametrize(
    ("group", "hosts"),
    [
        ("python", ["index.example:8443", "more.example", "third.example"]),
        ("node", ["npm.example", "x.example"]),
        ("go", ["proxy.example", "sum.example", "mirror.example"]),
        ("rust", ["mirror.example", "crates.example", "files.example", "api.example"]),
    ],
)
def test_a_group_is_what_the_tools_are_configured_for(machine, group, hosts):
    assert expand(f"group:{group}", machine) == hosts
    assert os.listdir(machine["HOME"]) == [".cargo"], "asking leaves nothing behind"


def test_a_tool_in_the_workspace_is_not_asked(machine, tmp_path, monkeypatch):
    (tmp_path / "npm").write_text('#!/bin/sh\necho \'{"registry": "https://evil.example/"}\'\n')
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    relative = {**machine, "PATH": f".:{machine['PATH']}"}
    assert "evil.example" not in expand("group:node", relative)


def test_a_group_of_the_config_is_left_to_the_daemon(machine):
    config = Path(machine["HOME"], ".config", "sandboxd")
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[egress.groups]\npython = ["a.example"]\n')
    assert expand("group:python", machine) == ["group:python"]
    assert expand("group:mine", machine) == ["group:mine"]


def test_a_tool_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="not known on this machine"):
        expand("group:go", {"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_cargo_without_settings_is_used_once_outside(tmp_path):
    with pytest.raises(UsageError, match="--net group:rust: the hosts") as refused:
        expand("group:rust", {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert "`cargo fetch` once outside" in refused.value.hint


def test_none_and_all_are_understood():
    assert network(["none"]) == {"kind": "deny"}
    assert network(["all"]) == {"kind": "inherit"}
    pasted = network(["https://user@a.example:8443/path?x=1", "http://b.example"])
    assert pasted == {"kind": "allow_hosts", "hosts": ["a.example:8443", "b.example"]}
    assert parse(RUN, ["--net", "none", "true"]).one("--net") == "none"


def test_without_a_network_package_managers_do_not_retry(inside):
    shown = inside("run", "--", "env").stdout.decode()
    for line in ("npm_config_fetch_retries=0", "CARGO_NET_RETRY=0", "PIP_RETRIES=0"):
        assert f"{line}\n" in shown
    assert "MAVEN_OPTS=-Dmaven.repo.local=" in shown
    own = inside("run", "--env", "PIP_RETRIES=7", "--", "env").stdout.decode()
    assert "PIP_RETRIES=7\n" in own
    named = inside("run", "--net", "a.example", "--", "env").stdout.decode()
    assert "npm_config_fetch_retry_maxtimeout=1000\n" in named
    assert "PIP_RETRIES=2\n" in named
    assert "RETR" not in inside("run", "--net", "all", "--", "env").stdout.decode().upper()


NPMRC = """registry = https://npm.example/team/
//npm.example/team/:_authToken = npm_0123456789abcdefghij
@x:registry=https://x.example
@y:registry=https://y.example/0123456789abcdefghij/
"""
PIP_CONF = """[global]
index-url = https://me:secret@index.example/simple
extra-index-url =
    https://more.example/a
    https://third.example/b
find-links = https://files.example/?token=secret
"""


@pytest.fixture
def configured(tmp_path: Path) -> dict[str, str]:
    """The real tools, with settings in a home folder."""
    (tmp_path / ".npmrc").write_text(NPMRC)
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(PIP_CONF)
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}


@pytest.mark.requires("npm")
def test_the_tools_of_a_group_have_their_addresses_without_secrets(configured, tmp_path):
    groups = ["group:node", "group:python"]
    found = settings(groups, configured, [])
    assert found.get("npm_config_registry") == "https://npm.example/team/"
    assert found.get("npm_config_@x:registry") == "https://x.example"
    assert found.get("PIP_INDEX_URL") == "https://index.example/simple"
    assert found.get("PIP_EXTRA_INDEX_URL") == "https://more.example/a https://third.example/b"
    text = str(found)
    assert "secret" not in text
    assert "0123456789" not in text
    project = tmp_path / "project"
    project.mkdir()
    (project / ".npmrc").write_text("registry=https://project.example/\n")
    assert "npm_config_registry" not in settings(groups, configured, [str(project)])
    assert settings([], configured, []) == {}
    (tmp_path / ".npmrc").unlink()
    bare = {**configured, "LANG": "C"}
    assert not [name for name in settings(groups, bare, []) if name.startswith("npm")]


@pytest.mark.requires("npm")
def test_a_tool_in_a_sandbox_asks_what_it_is_configured_for(inside, configured):
    ask = ("npm", "config", "get", "registry")
    done = inside("run", "--net", "group:node", "--", *ask, HOME=configured["HOME"])
    assert done.stdout == b"https://npm.example/team/\n", done.stderr
    mine = ("--env", "npm_config_registry=https://mine.example/")
    done = inside("run", "--net", "group:node", *mine, "--", *ask, HOME=configured["HOME"])
    assert done.stdout == b"https://mine.example/\n", done.stderr


@pytest.mark.parametrize(
    ("line", "target", "group"),
    [
        ("v/bin/pip install x", "more.example", "group:python"),
        ("python3 -m pip install x", "index.example:8443", "group:python"),
        ("npm install", "npm.example:443", "group:node"),
        ("cargo build", "files.example", "group:rust"),
        ("pip install git+https://other.example/x", "other.example", None),
        ("curl https://more.example", "more.example", None),
    ],
)
def test_a_package_manager_that_lacks_one_host_is_told_its_group(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, line: str, target: str, group: str
) -> None:
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    remedy = {"network": {"kind": "allow_hosts", "hosts": [target]}}
    denials = [{"kind": "network", "target": target, "remedy": remedy}]
    result = {"outcome": "exited", "exit_code": 1, "denials": denials}
    found = advise(parse(RUN, ["--", *line.split()]), result)
    assert [hint for hint in found if "--net group:" in hint] == (found if group else [])
    assert group is None or f"in place of --net {target.removesuffix(':443')} give" in found[0]
    allowed = parse(RUN, ["--", *line.split()])
    allowed.hosts = expand(group, machine) if group else []
    assert advise(allowed, result) == []
    denials[0]["remedy"] = None  # nothing is proposed that could be replaced
    asked = advise(parse(RUN, ["--", *line.split()]), result)
    assert [hint for hint in asked if "in place of" in hint] == []
