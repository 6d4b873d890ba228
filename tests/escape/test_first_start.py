"""A daemon that starts where none ran before: what it makes for itself is hidden all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import environment
from support.daemon import running_daemon
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

READ = python("worked() if args[1] in open(args[0]).read() else blocked('other content')")
EMPTY = python("os.truncate(args[0], 0); worked()")
# What starts the daemon: moves the folder $0 of its home elsewhere and leaves a link.
LINKED = """
cd "$HOME" && mkdir -p dotfiles "$(dirname "$0")" &&
{ mv "$0" dotfiles/kept || mkdir dotfiles/kept; } &&
ln -s "$HOME/dotfiles/kept" "$0" && cd "$OLDPWD" && exec "$@"
"""


@contextmanager
def first_start(backend: str, *, socket: str = "", **options: Any) -> Iterator[Box]:
    """`linux_backend` has shown that the backend works here."""
    named = ["--socket", socket] if socket else []
    with running_daemon(env=environment(backend), args=named, **options) as daemon:
        daemon.socket = socket or daemon.socket
        box = Box(backend, daemon)
        yield box
        box.close()


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_the_trail_is_hidden(linux_backend: Box, field: str) -> None:
    """Allow the home folder, and read or empty the trail."""
    with first_start(linux_backend.backend) as box:
        (trail,) = box.daemon.home.glob(".local/state/sandboxd/*/audit-1.jsonl")
        before = trail.read_text()
        manifest = weakest() | {field: [str(box.daemon.home)]}
        assert box.attack(READ, trail, "daemon.started", manifest=manifest).blocked
        assert box.attack(EMPTY, trail, manifest=manifest).blocked
        assert trail.read_text().startswith(before)
        assert freely(READ, trail, "daemon.started").worked
        for folder in (trail.parent, trail.parent.parent):
            assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_a_trail_elsewhere_is_hidden(linux_backend: Box, tmp_path: Path, field: str) -> None:
    shared = tmp_path.resolve() / "shared"
    shared.mkdir()
    config = f'[audit]\nfolder = "{shared}/a/trail"\n'
    with first_start(linux_backend.backend, config=config) as box:
        trail = shared / "a/trail/audit-1.jsonl"
        manifest = weakest() | {field: [str(shared)]}
        assert box.attack(READ, trail, "daemon.started", manifest=manifest).blocked
        assert box.attack(EMPTY, trail, manifest=manifest).blocked
        assert freely(READ, trail, "daemon.started").worked


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_the_approvers_token_in_a_shared_folder_is_hidden(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory, field: str
) -> None:
    """The socket's folder is not the daemon's own: only its files are hidden."""
    shared = tmp_path_factory.mktemp("s").resolve()
    path = shared / "d.sock"
    with first_start(linux_backend.backend, socket=str(path)) as box:
        token = Path(f"{path}.approver")
        assert token.exists()
        manifest = weakest() | {field: [str(shared)]}
        assert box.attack(READ, token, token.read_text(), manifest=manifest).blocked
        assert freely(READ, token, token.read_text()).worked


def test_what_cannot_be_made_is_made_by_no_command(linux_backend: Box, tmp_path: Path) -> None:
    """A command that may write above it could make it: the folder of the daemon's next trail."""
    shared = tmp_path.resolve() / "shared"
    project = shared / "project"
    project.mkdir(parents=True)
    trail = shared / "file" / "trail"
    trail.parent.write_text("a file of the user's\n")
    with first_start(linux_backend.backend, config=f'[audit]\nfolder = "{trail}"\n') as box:
        assert f"{trail} does not exist" in box.daemon.log
        for folder in (shared, trail.parent):
            assert str(trail) in refused(box, manifest=weakest(folder))
        assert str(trail) in refused(box, preset="workspace-write", workspace=str(shared))
        assert box.shell("echo > x", preset="workspace-write", workspace=str(project)).exited(0)
        reading = weakest() | {"fs_read_allow": [str(shared)]}
        assert box.run("ls", str(project), manifest=reading).exited(0)
        trail.parent.unlink()  # from now on it can be hidden, without a new start
        trail.mkdir(parents=True)
        (trail / "secret").write_text("the daemon's\n")
        manifest = weakest(shared)
        assert box.attack(READ, trail / "secret", "the daemon's", manifest=manifest).blocked
        assert freely(READ, trail / "secret", "the daemon's").worked


@pytest.mark.parametrize("name", [".config", ".local/state/sandboxd"])
def test_a_link_to_the_daemons_files_is_exchanged_by_no_command(
    linux_backend: Box, name: str
) -> None:
    """As dotfiles are kept: what is behind the link is masked, but the link decides at the next
    start what the daemon reads."""
    prefix = ["sh", "-c", LINKED, name]
    with first_start(linux_backend.backend, prefix=prefix) as box:
        home = box.daemon.home
        assert (home / name).is_symlink()
        assert str(home / name) in refused(box, manifest=weakest(home))
        assert str(home / name) in refused(box, manifest=weakest((home / name).parent))
        project = home / "project"
        project.mkdir()
        assert box.shell("echo > x", preset="workspace-write", workspace=str(project)).exited(0)
        kept = home / "dotfiles" / "kept"
        hidden = kept if name.endswith("sandboxd") else kept / "sandboxd"
        (hidden / "secret").write_text("the daemon's\n")
        manifest = weakest(home / "dotfiles")
        assert box.attack(READ, hidden / "secret", "the daemon's", manifest=manifest).blocked
        assert freely(READ, hidden / "secret", "the daemon's").worked


def refused(box: Box, **params: object) -> str:
    with pytest.raises(RpcError) as refusal:
        box.run("true", **params)
    assert refusal.value.kind == "PathDenied"
    return refusal.value.message
