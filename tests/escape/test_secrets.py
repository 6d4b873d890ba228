"""Secrets: masked in the config or denied in the manifest, and the home folders of people."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.backends import running_backend
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")


@pytest.fixture(scope="module")
def masked(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, Path]]:
    """A daemon whose config hides `vault` in a folder, and that folder."""
    folder = tmp_path_factory.mktemp("masked").resolve()
    (folder / "vault").mkdir()
    Victim(folder / "vault" / "key")
    config = f'[masks]\nadd = ["{folder / "vault"}"]\n'
    with running_backend(linux_backend.backend, config=config) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box, folder
        box.close()


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_masked_folder_is_hidden_in_an_allowed_one(masked: tuple[Box, Path], field: str) -> None:
    """Read a secret through an allowed folder that contains it."""
    box, folder = masked
    key = folder / "vault" / "key"
    assert freely(READ, key, Victim.ORIGINAL).worked
    manifest = weakest() | {field: [str(folder)]}
    assert box.attack(READ, key, Victim.ORIGINAL, manifest=manifest).blocked


def test_masked_folder_cannot_be_allowed(masked: tuple[Box, Path]) -> None:
    """Ask for the secret by its own name, or for what lies in it."""
    box, folder = masked
    for path in (folder / "vault", folder / "vault" / "key"):
        with pytest.raises(RpcError) as refusal:
            box.run("true", manifest=weakest(fs_read_allow=[str(path)]))
        assert refusal.value.kind == "CeilingExceeded"


def test_masked_folder_is_not_reached_by_a_symlink(
    masked: tuple[Box, Path], workspace: Path
) -> None:
    """Ask for a symlink that leads to the secret: the path is judged by where it leads."""
    box, folder = masked
    link = workspace / "innocent"
    link.symlink_to(folder / "vault")
    assert freely(READ, link / "key", Victim.ORIGINAL).worked
    with pytest.raises(RpcError) as refusal:
        box.run("true", manifest=weakest(fs_read_allow=[str(link)]))
    assert refusal.value.kind == "PathDenied"
    manifest = weakest(workspace, fs_read_allow=[str(folder)])
    assert box.attack(READ, link / "key", Victim.ORIGINAL, manifest=manifest).blocked


def test_masked_folder_is_not_moved_away(masked: tuple[Box, Path]) -> None:
    """Rename the secret itself to a name that is not masked, for the next command to read."""
    box, folder = masked
    attack = python("os.rename(args[0], args[1]); worked()")
    inside = box.attack(attack, folder / "vault", folder / "moved", manifest=weakest(folder))
    assert inside.blocked
    assert (folder / "vault" / "key").read_text() == Victim.ORIGINAL


def test_second_name_of_a_denied_file_is_the_callers_own_doing(box: Box, workspace: Path) -> None:
    """A hard link cannot be made to a denied file from inside, so that none appears later."""
    attack = python("os.link(args[0], args[1]); worked()")
    secret = Victim(workspace / "secret")
    assert freely(attack, secret, workspace / "free").worked
    (workspace / "free").unlink()
    secret.reset()
    manifest = weakest(workspace, fs_deny=[str(secret)])
    box.attack(attack, secret, workspace / "inside", manifest=manifest)
    # Linking what is mounted over it, an empty file, is no harm.
    after = workspace / "inside"
    assert not after.exists() or after.read_text() == ""
    assert secret.untouched


def test_home_folders_are_hidden(box: Box) -> None:
    """List the home folder of the user, by the whole-machine base. git's own settings may show."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    attack = python("""
        found = {*os.listdir(args[0])} - {".gitconfig", ".config", ".cache"}
        worked(*found) if found else blocked("empty")
    """)
    planted = Path(tempfile.mkdtemp(prefix=".sandboxd-test-", dir=home))
    try:
        assert freely(attack, home).worked
        assert box.attack(attack, home, preset="read-only").blocked
        assert box.attack(attack, home, manifest=weakest()).blocked
    finally:
        planted.rmdir()


@pytest.mark.parametrize("name", [".netrc", ".aws/credentials", ".gnupg/keys/a"])
def test_secret_that_is_kept_elsewhere_is_hidden_there(box: Box, tmp_path: Path, name: str) -> None:
    """Read a secret in a folder of dotfiles, to which a link in the home folder leads."""
    home, kept = tmp_path.resolve() / "home", tmp_path.resolve() / "dotfiles"
    (kept / name).parent.mkdir(parents=True)
    secret, other = Victim(kept / name), Victim(kept / "other")
    (home / name).parent.mkdir(parents=True)
    (home / name).symlink_to(secret.path)
    assert freely(READ, secret, Victim.ORIGINAL).worked
    for folder in (kept, tmp_path.resolve()):
        manifest = weakest(fs_read_allow=[str(folder)], env={"HOME": str(home)})
        assert box.attack(READ, secret, Victim.ORIGINAL, manifest=manifest).blocked
        assert box.attack(READ, other, Victim.ORIGINAL, manifest=manifest).worked


def test_runtime_folder_is_hidden(box: Box) -> None:
    """/run: sockets of buses, agents and engines, and whatever programs keep there."""
    attack = python("""
        names = os.listdir("/run")
        worked(*names[:5]) if names else blocked("empty")
    """)
    assert freely(attack).worked
    assert box.attack(attack, preset="read-only").blocked


def test_denied_file_is_not_written(box: Box, workspace: Path) -> None:
    """fs_deny also means: not through a writable folder that contains it."""
    attack = python("open(args[0], 'w').write('changed'); worked()")
    secret = Victim(workspace / "secret")
    assert freely(attack, secret).worked
    assert secret.was_hit()
    manifest = weakest(workspace, fs_deny=[str(secret)])
    assert box.attack(attack, secret, manifest=manifest).blocked
    assert secret.untouched


def test_files_of_another_sandbox_are_not_visible(box: Box) -> None:
    """What one command keeps in its /tmp and /dev/shm is not there for the next, nor meanwhile."""
    keep = """
        path=${TMPDIR:-/tmp}/kept; echo secret > $path; echo secret > /dev/shm/kept 2>/dev/null
        echo $path; exec sleep 60
    """
    look = python("""
        found = [p for p in (args[0], "/tmp/kept", "/dev/shm/kept") if os.path.exists(p)
                 and "secret" in open(p).read()]
        worked(*found) if found else blocked("none")
    """)
    with box.daemon.connect() as other:
        params = {"argv": ["sh", "-c", keep], "stream": True, "execution_id": "keeper"}
        other.start("execute", {**params, "manifest": weakest()})
        other.wait_until(lambda: "\n" in other.output("keeper"))
        path = other.output("keeper").strip()
        meanwhile = box.attack(look, path)
        other.call("execution/cancel", {"execution_id": "keeper"})
    assert meanwhile.blocked
    assert box.attack(look, path).blocked


@pytest.mark.parametrize("explain", [False, True], ids=["by words", "by the kernel"])
def test_no_remedy_names_a_hard_link_of_a_secret(
    box: Box, workspace: Path, outside: Path, explain: bool
) -> None:
    """The path of the secret is masked; the file has another name. By the command's words no file
    with another name is proposed at all."""
    secret = outside / "secret"
    secret.write_text("x")
    link, other = outside / "a/notes.txt", outside / "b/notes.txt"
    for path in (link, other):
        path.parent.mkdir()
    os.link(secret, link)
    other.write_text("x")
    if explain:
        os.link(other, outside / "same")
    allowed = [str(path.parent) for path in (link, other)]
    manifest = {"fs_deny": [str(secret)], "fs_read_allow": allowed}
    params = {"preset": "workspace-write", "workspace": str(workspace), "manifest": manifest}
    for path, is_proposed in ((other, True), (link, False)):
        ran = box.shell(f"echo y >> {path}", **params, explain=explain)
        assert ran.exit_code != 0
        found = [one for one in ran.denials if one["target"] == str(path)]
        assert found, ran.story
        assert any(one.get("remedy") for one in found) == is_proposed, found
