"""Every example of the README works when it is pasted: run here as it stands, on a real daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.daemon import ROOT, Daemon, stdout_of
from support.markdown import Block, blocks
from support.requirements import require

from sandboxd_proto.manifest import manifest_from_toml

pytestmark = pytest.mark.requires("bubblewrap")
README = blocks(ROOT / "README.md")
PROGRAMS = Path(sys.executable).parent
# Run by `make release-check`, in folders of its own: it would change the user's own programs.
INSTALLS = ("uv tool install .",)


def of(language: str) -> list[Block]:
    found = [block for block in README if block.language == language]
    assert found, f"the README has no {language} example"
    return found


def named(block: Block) -> str:
    return f"line-{block.line}"


@pytest.fixture
def env(daemon: Daemon) -> dict[str, str]:
    """A user's shell: the programs in PATH, and a daemon at the default place."""
    return {
        "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(daemon.home),
        "XDG_RUNTIME_DIR": str(daemon.folder),
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def folder(daemon: Daemon) -> Path:
    """Where the reader stands: a checkout's files that the examples name, and nothing else."""
    place = daemon.home / "project"
    place.mkdir()
    shutil.copytree(ROOT / "systemd", place / "systemd")
    return place


def run(command: list[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "block", [b for b in of("sh") if b.text.strip() not in INSTALLS], ids=named
)
def test_shell_examples_succeed(block: Block, folder: Path, env: dict[str, str]) -> None:
    if "socat" in block.text:
        require("socat")
    said = run(["bash", "-euo", "pipefail", "-c", block.text], folder, env)
    if "socat" in block.text:
        assert json.loads(said)["result"]["outcome"] == "exited"


def test_the_installation_is_what_the_release_check_tries() -> None:
    script = (ROOT / "scripts" / "release-check").read_text()
    assert [b.text.strip() for b in of("sh") if b.text.strip() in INSTALLS] == list(INSTALLS)
    assert "uv tool install" in script
    assert "pipx install" in script


def test_the_denial_that_is_quoted_is_what_is_printed(folder: Path, env: dict[str, str]) -> None:
    quoted = of("text")[0].text
    if os.geteuid() == 0:  # root could
        outside = ". No change is proposed: all of /usr would have to be writable; do that outside"
        outside += " of the sandbox"
        quoted = quoted.replace("; this user could not write it outside either", outside)
    command = ["sandboxctl", "run", "--", "touch", "/usr/note.txt"]
    done = subprocess.run(
        [str(PROGRAMS / command[0]), *command[1:]], cwd=folder, env=env, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stderr == quoted


@pytest.mark.parametrize("block", of("python"), ids=named)
def test_python_examples_succeed(block: Block, folder: Path, env: dict[str, str]) -> None:
    said = run([sys.executable, "-W", "error", "-c", block.text], folder, env)
    assert "hello" in said
    assert "/usr/x" in said or "client.stream" in block.text, "the denial is printed"


@pytest.mark.parametrize("block", of("json"), ids=named)
def test_json_examples_are_requests_that_are_answered(block: Block, daemon: Daemon) -> None:
    request = json.loads(block.text)
    with daemon.connect() as connection:
        assert stdout_of(connection.call(request["method"], request["params"])) == "5\n"


EDITORS = [block for block in of("js") if "vscode-jsonrpc" in block.text]
OWN_CLIENT = [block for block in of("js") if block not in EDITORS]


@pytest.mark.parametrize("block", OWN_CLIENT, ids=named)
def test_examples_of_the_node_client_succeed(
    block: Block, folder: Path, env: dict[str, str]
) -> None:
    """`make release-check` installs the packed package instead."""
    require("node")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "sandboxd").symlink_to(ROOT / "client" / "node")
    said = run(["node", "--input-type=module", "-e", block.text], folder, env)
    assert said == "hello\n\nand again\n"


@pytest.mark.parametrize("block", EDITORS, ids=named)
def test_node_examples_succeed(block: Block, folder: Path, env: dict[str, str]) -> None:
    require("node")
    require("npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "tests" / "e2e" / "vscode" / name, folder)
    run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder, {**os.environ})
    assert run(["node", "-e", block.text], folder, env) == "hello\nexited 0\n"


def test_the_manifest_is_accepted_and_enforced(folder: Path, env: dict[str, str]) -> None:
    (text,) = [block.text for block in of("toml") if "[sandbox]" in block.text]
    manifest_from_toml(text)
    for name in ("data/private", "out"):
        (folder / name).mkdir(parents=True)
    (folder / "data" / "private" / "key").write_text("secret")
    (folder / "manifest.toml").write_text(text)
    script = "cp data/private/key out/ 2>/dev/null; echo seen > out/file"
    command = ["sandboxctl", "run", "--preset", "read-only", "--manifest", "manifest.toml"]
    run([str(PROGRAMS / command[0]), *command[1:], "--", "sh", "-c", script], folder, env)
    assert (folder / "out" / "file").read_text() == "seen\n"
    assert not (folder / "out" / "key").exists()


def test_the_config_is_accepted(folder: Path, env: dict[str, str]) -> None:
    (text,) = [block.text for block in of("toml") if "[sandbox]" not in block.text]
    tomllib.loads(text)
    (folder / "config.toml").write_text(text)
    run([sys.executable, "-c", LOAD, "config.toml"], folder, env)


LOAD = (
    "import sys; from sandboxd.config.loading import load; load(sys.argv[1], {}, {}, required=True)"
)


def test_the_files_that_are_linked_exist() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name} links to {target}"
