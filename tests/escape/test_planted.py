"""One command plants a symlink, the next request names it: what is asked for must not widen."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")
PLANT = python("os.symlink(args[0], args[1]); worked()")


def planted(box: Box, target: object, link: Path) -> Path:
    """Made by a sandboxed command, which may write the folder."""
    assert box.attack(PLANT, target, link, manifest=weakest(link.parent)).worked
    return link


def refusal(box: Box, **params: object) -> RpcError:
    with pytest.raises(RpcError) as caught:
        box.run("true", **params)
    assert caught.value.kind == "PathDenied", caught.value
    return caught.value


HOME = Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
MASKED = HOME / ".irssi"  # one that nobody has


@pytest.fixture
def secret() -> Iterator[Victim]:
    """A default mask: it lies in the home folder of the daemon's user."""
    _remove_own_leftover()
    MASKED.mkdir()
    yield Victim(MASKED / "config")
    shutil.rmtree(MASKED)


def _remove_own_leftover() -> None:
    """Of a run that was killed, or the empty mount point of a warm sandbox."""
    config = MASKED / "config"
    if config.is_file() and config.read_text() == Victim.ORIGINAL:
        config.unlink()
    if MASKED.exists():
        MASKED.rmdir()


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_planted_link_does_not_lift_a_mask(
    box: Box, workspace: Path, secret: Victim, field: str
) -> None:
    link = planted(box, secret.path.parent, workspace / "data")
    assert freely(READ, link / "config", Victim.ORIGINAL).worked
    denied = refusal(box, manifest=weakest() | {field: [str(link)]})
    assert str(secret.path.parent) in denied.message
    assert str(secret.path.parent) not in str(denied.remedy)  # an agent might follow it
    # The caller's own spelling does.
    manifest = weakest(fs_read_allow=[str(secret.path.parent)])
    assert box.attack(READ, secret, Victim.ORIGINAL, manifest=manifest).worked


def test_planted_link_in_an_allowed_home_does_not_lift_a_mask(box: Box, secret: Victim) -> None:
    """It stays in the folder that it lies in, and the mask stays too."""
    link = HOME / f"sandboxd-test-{os.getpid()}"
    try:
        if box.firm:
            planted(box, MASKED.name, link)
        else:  # in a folder with a mask Landlock lets nothing new be made
            link.symlink_to(MASKED.name)
        refusal(box, manifest=weakest(fs_read_allow=[str(HOME), str(link)]))
        refusal(box, manifest=weakest(fs_read_allow=[str(HOME), str(link / "config")]))
        manifest = weakest(fs_read_allow=[str(HOME)])
        for path in (secret.path, link / "config"):
            assert freely(READ, path, Victim.ORIGINAL).worked
            assert box.attack(READ, path, Victim.ORIGINAL, manifest=manifest).blocked
    finally:
        link.unlink(missing_ok=True)


@pytest.mark.parametrize("preset", ["workspace-write", "read-only"])
def test_planted_link_does_not_become_the_workspace(
    box: Box, workspace: Path, outside: Path, preset: str
) -> None:
    link = planted(box, outside, workspace / "pkg")
    denied = refusal(box, preset=preset, workspace=str(link))
    assert str(outside) in str(denied.remedy)


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
@pytest.mark.parametrize("target", ["/", "/etc", ".."])
def test_planted_link_does_not_show_the_machine(
    box: Box, workspace: Path, target: str, field: str
) -> None:
    link = planted(box, target, workspace / "x")
    refusal(box, manifest={field: [str(link)]})


def test_planted_link_does_not_create_a_wider_persistent_sandbox(
    box: Box, workspace: Path, outside: Path
) -> None:
    link = planted(box, outside, workspace / "pkg")
    params = {"preset": "workspace-write", "workspace": str(link)}
    with pytest.raises(RpcError) as caught:
        box.connection.call("sandbox/create", params)
    assert caught.value.kind == "PathDenied"


PLANT_IN_VENV = python("""
    venv, file, folder = args
    os.symlink(file, venv + "/bin/program")
    with open(venv + "/pyvenv.cfg", "w") as config:
        config.write("home = " + folder)
    worked()
""")


def test_what_a_virtual_environment_names_does_not_become_readable(box: Box) -> None:
    """PATH leads to programs of the workspace, and those to files of the home folder."""
    place = HOME / f"sandboxd-test-venv-{os.getpid()}"
    venv, other = place / "project" / ".venv", place / "other"
    try:
        (venv / "bin").mkdir(parents=True)
        (venv / "lib").mkdir()
        other.mkdir()
        victims = [Victim(other / "file"), Victim(place / "single")]
        params = {
            "preset": "workspace-write", "workspace": str(venv.parent),
            "manifest": {"env": {"PATH": f"{venv}/bin:/usr/bin:/bin"}},
        }  # fmt: skip
        assert box.attack(PLANT_IN_VENV, venv, victims[1], other, **params).worked
        for victim in victims:
            assert freely(READ, victim, Victim.ORIGINAL).worked
            assert box.attack(READ, victim, Victim.ORIGINAL, **params).blocked
    finally:
        shutil.rmtree(place)


# A busy machine runs nothing but the checks for a while, so that all of them see the same.
FEWEST_TRIES, MOST_TRIES = 40, 4000
SWAP = python("""
    print("up", flush=True)
    while True:
        libc.renameat2(-100, args[0].encode(), -100, args[1].encode(), 2)  # RENAME_EXCHANGE
""")


def test_link_that_is_swapped_in_and_out_is_never_taken_for_a_folder(
    box: Box, workspace: Path, outside: Path
) -> None:
    """A command exchanges a folder and a link all the time, while another request names it."""
    folder, link = workspace / "folder", workspace / "link"
    folder.mkdir()
    link.symlink_to(outside)
    params = {
        "argv": [*SWAP, str(folder), str(link)], "manifest": weakest(workspace),
        "execution_id": "swap", "stream": True,
    }  # fmt: skip
    allowed, refused = [], []
    with box.daemon.connect() as other:
        other.start("execute", params)
        other.wait_until(lambda: "up" in other.output("swap"))
        for tried in range(MOST_TRIES):
            if tried >= FEWEST_TRIES and allowed and refused:
                break
            try:
                found = box.check(manifest={"fs_write_allow": [str(folder)]})
            except RpcError as error:
                refused.append(error.kind)
            else:
                allowed.append(found["plan"]["fs_write_allow"])
        other.call("execution/cancel", {"execution_id": "swap"})
    assert set(refused) == {"PathDenied"}
    assert allowed.count([str(folder)]) == len(allowed) > 0
