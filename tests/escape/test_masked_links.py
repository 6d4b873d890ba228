"""A mask lies on what a symlink leads to. A command removes the link, or lets it lead elsewhere:
the next command does not see what it led to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, Verdict, freely, python, weakest
from support.backends import running_backend
from support.rpc import RpcError

pytestmark = pytest.mark.isolation
REMOVE = python("""
    os.rename(args[0], args[0] + ".away")
    worked()
""")
EXCHANGE = python("""
    os.unlink(args[0])
    os.symlink("decoy", args[0])
    worked()
""")
READ = python("worked() if open(args[0]).read() == 'token' else blocked('it is masked')")
LIST = python("worked() if os.listdir(args[0]) else blocked('it is masked')")


@pytest.fixture(scope="module")
def masked(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, Path]]:
    """A daemon whose config hides `N/secret` in a folder, and that folder."""
    folder = tmp_path_factory.mktemp("masked").resolve()
    names = ", ".join(f'"{folder}/{name}/secret"' for name in ("remove", "exchange"))
    with running_backend(linux_backend.backend, config=f"[masks]\nadd = [{names}]\n") as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box, folder
        box.close()


def _linked(folder: Path, name: str = "secret") -> tuple[Path, Path]:
    """A link, and what it leads to."""
    target = folder / "conf" / "prod"
    target.parent.mkdir(parents=True)
    target.write_text("token")
    (folder / "decoy").write_text("nothing")
    link = folder / name
    link.symlink_to("conf/prod")
    return link, target


def _done(box: Box, verdict: Verdict) -> None:
    # Without mounts a folder with a masked path in it is not writable itself.
    assert verdict.worked or not box.firm


def _exchange(box: Box, link: Path, **params: Any) -> None:
    """A link that leads elsewhere when its command ends takes the command's output along: the host
    may have exchanged it."""
    ran = box.run(*EXCHANGE, str(link), **params)
    if link.readlink() == Path("decoy"):
        assert (ran.outcome, ran.stdout) == ("isolation_lost", "")
    else:
        assert not box.firm


@pytest.mark.parametrize("way", ["remove", "exchange"])
def test_what_the_config_hides(masked: tuple[Box, Path], way: str) -> None:
    box, folder = masked
    link, target = _linked(folder / way)
    manifest = weakest(folder / way)
    assert freely(READ, target).worked
    assert not box.attack(READ, target, manifest=manifest).worked
    if way == "remove":
        _done(box, box.attack(REMOVE, link, manifest=manifest))
    else:
        _exchange(box, link, manifest=manifest)
    assert not box.attack(READ, target, manifest=manifest).worked


def test_what_the_manifest_denies(box: Box, workspace: Path) -> None:
    link, target = _linked(workspace / "a")
    manifest = weakest(workspace, fs_deny=[str(link)])
    assert freely(READ, target).worked
    assert not box.attack(READ, target, manifest=manifest).worked
    _exchange(box, link, manifest=manifest)
    assert not box.attack(READ, target, manifest=manifest).worked
    # Others do not deny it.
    assert box.attack(READ, target, manifest=weakest(workspace)).worked
    link.unlink()
    with pytest.raises(RpcError, match="does not exist"):
        box.attack(READ, target, manifest=manifest)


def test_a_secret_of_a_home(masked: tuple[Box, Path]) -> None:
    box, _ = masked
    home = box.daemon.home
    link, target = _linked(home, ".netrc")
    manifest = weakest(home)
    assert freely(READ, target).worked
    assert not box.attack(READ, target, manifest=manifest).worked
    _done(box, box.attack(REMOVE, link, manifest=manifest))
    assert not box.attack(READ, target, manifest=manifest).worked
    # By its own name a caller may allow it, as any default secret.
    assert box.attack(READ, target, manifest=weakest(home, target)).worked


def test_a_link_that_a_command_made_hides_no_workspace(box: Box, workspace: Path) -> None:
    link, target = _linked(workspace / "a")
    manifest = weakest(workspace, fs_deny=[str(link)])
    for wide in (workspace, workspace / "a"):
        link.unlink()
        link.symlink_to(wide)
        with suppress(RpcError):
            box.attack(LIST, wide, manifest=manifest)
    link.unlink()
    link.symlink_to("conf/prod")
    assert box.attack(LIST, workspace / "a", manifest=manifest).worked
    assert not box.attack(READ, target, manifest=manifest).worked
