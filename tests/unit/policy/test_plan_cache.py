"""A kept plan is the plan that would be made now, whatever has happened to the host's files."""

from __future__ import annotations

import ast
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.users import unprivileged_user

import sandboxd.policy
from sandboxd.policy import plan_cache
from sandboxd.policy.paths import recording_fs, revalidation
from sandboxd.policy.paths.recording import is_past
from sandboxd.policy.plan import Plan, RunAs
from sandboxd.policy.plan_cache import MAX_PLANS, PlanCache
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.errors import PathDenied, SandboxdError
from sandboxd_proto.manifest import Manifest

NAMES = [
    ".ssh", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".gitconfig", ".config",
    ".local/share/keyrings", ".envrc", ".vscode/settings.json", ".git/hooks/pre-commit",
    ".git/config", ".git/info/attributes", ".git/modules/a/config", ".gitmodules", ".mcp.json",
    ".git/worktrees/x/gitdir", ".git", "sub/.git", ".husky", "Makefile",
]  # fmt: skip
CONTENTS = [
    "", "[core]\n\thooksPath = hooks\n", "[core]\n\thooksPath = .git\n", "gitdir: .git/modules/a\n",
    "[include]\n\tpath = ../other\n", '[submodule "a"]\n\tpath = sub\n\turl = x\n',
]  # fmt: skip


def remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def change(rng: random.Random, root: Path) -> None:
    path = root / rng.choice(NAMES)
    kind = rng.choice(["write", "folder", "remove", "link", "rename", "mode", "append", "touch"])
    try:
        if kind == "remove":
            remove(path)
        elif kind == "rename" and path.exists():
            path.rename(path.with_name(path.name + ".aside"))
        elif kind == "mode" and path.exists():
            path.chmod(rng.choice([0o700, 0o755, 0o000]) | (0o700 if path.is_dir() else 0))
        elif kind == "append" and path.is_file():
            with path.open("a") as file:
                file.write(rng.choice(CONTENTS))
        elif kind == "touch" and path.exists():
            os.utime(path.parent, (1, 1))  # a timestamp that a command may set proves nothing
        elif not path.exists() and not path.is_symlink():
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "link":
                path.symlink_to(rng.choice([str(root), "nowhere", str(root / rng.choice(NAMES))]))
            elif kind == "folder":
                path.mkdir()
            else:
                path.write_text(rng.choice(CONTENTS))
    except OSError:
        pass  # a file in the place of a folder: nothing happened


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except SandboxdError as error:
        return error.message


def wishes(home: Path, workspace: Path) -> list[PolicyRequest]:
    place = {"preset": "workspace-write", "workspace": str(workspace), "manifest_given": True}
    return [
        PolicyRequest(manifest=Manifest(), **place),
        PolicyRequest(manifest=Manifest(fs_read_allow=[str(home)]), **place),
        PolicyRequest(manifest=Manifest(base="host", fs_deny=[str(home / "src")]), **place),
        PolicyRequest(manifest=Manifest(fs_write_allow=[str(home / "src")]), manifest_given=True),
    ]


def plan_on_loop(cache: PlanCache, wish: PolicyRequest) -> Plan:
    """As a request is planned."""
    if cache.takes_long(wish):
        return cache.keep(wish, cache.attempt(wish))
    return cache.plan_for(wish)


def test_a_change_in_a_system_folder_is_noticed_once_and_for_all(
    machine: Machine, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are not compared for each request: one that found a change must not count as good."""
    system = base / "system"
    monkeypatch.setattr(revalidation, "SLOW", (str(system),))
    for folder in ("one", "two"):
        (system / folder).mkdir(parents=True)
    (system / "current").symlink_to("hop")
    link = system / "hop"
    link.symlink_to("one")
    given = str(system / "current")
    wish = PolicyRequest(manifest=Manifest(fs_read_allow=[given]), manifest_given=True)
    cache = PlanCache(machine)
    time.sleep(0.1)  # what just changed is not trusted
    plan_on_loop(cache, wish)
    assert cache._kept
    link.unlink()
    link.symlink_to("two")
    for kept in cache._kept.values():
        kept.basis._slow_from = -math.inf  # its time has come
    assert plan_on_loop(cache, wish) == plan_for(wish, machine)


def test_names_on_the_way_to_what_the_request_names_are_always_compared(
    machine: Machine, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a system folder: a user may have folders in /var/www."""
    system = base / "system"
    monkeypatch.setattr(revalidation, "SLOW", (str(system),))
    for folder in ("one", "two"):
        (system / folder / "secret").mkdir(parents=True)
    link = system / "current"
    link.symlink_to("one")
    grants = [str(system / "one"), str(system / "two")]
    manifest = Manifest(fs_read_allow=grants, fs_deny=[str(link / "secret")])
    wish = PolicyRequest(manifest=manifest, manifest_given=True)
    cache = PlanCache(machine)
    time.sleep(0.1)  # what just changed is not trusted
    plan_on_loop(cache, wish)
    assert cache._kept
    link.unlink()
    link.symlink_to("two")
    assert plan_on_loop(cache, wish) == plan_for(wish, machine)


@pytest.mark.parametrize("seed", range(14))
def test_a_kept_plan_is_the_plan_of_now(
    machine: Machine, home: Path, repository: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without notices of changed folders."""
    monkeypatch.setattr(revalidation, "SYSTEM_S", 0.0)
    rng = random.Random(seed)
    notices = None
    if seed % 2 and sys.platform == "linux":
        from sandboxd.linux.folder_notices import InotifyNotices

        notices = InotifyNotices()
    cache = PlanCache(machine, notices)
    asked = wishes(home, repository)
    for step in range(40):
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            change(rng, rng.choice([home, repository]))
        if step % 10 == 0:
            time.sleep(0.06)  # what just changed is not trusted; later it is
        wish = rng.choice(asked)
        assert outcome(lambda w=wish: plan_on_loop(cache, w)) == outcome(
            lambda w=wish: plan_for(w, machine)
        ), step


def settled(machine: Machine, wish: PolicyRequest) -> tuple[PlanCache, Any]:
    """A cache that has the plan: files that changed a moment ago are not relied on."""
    cache = PlanCache(machine)
    cache.plan_for(wish)  # makes the folder for caches
    time.sleep(0.1)
    plan = cache.plan_for(wish)
    assert cache.plan_for(wish) is plan
    return cache, plan


def test_the_same_plan_is_given_again(machine: Machine, home: Path, repository: Path) -> None:
    for wish in wishes(home, repository):
        settled(machine, wish)


def test_work_in_the_workspace_keeps_the_plan(
    machine: Machine, home: Path, repository: Path
) -> None:
    """What a build does all the time must not cost a new plan each time."""
    wish = wishes(home, repository)[0]
    cache, plan = settled(machine, wish)
    for number in range(5):
        (repository / f"made-{number}").write_text("x")
        (home / f"note-{number}").write_text("x")
        (repository / "file").write_text("changed")
        kept = cache.plan_for(wish)
        assert kept == plan
    (repository / ".envrc").write_text("x")
    assert cache.plan_for(wish) != plan


@pytest.mark.requires("root")
def test_the_owner_of_the_workspace_matters(
    machine_with: Callable[..., Machine], repository: Path, home: Path
) -> None:
    wish = wishes(home, repository)[0]
    cache, plan = settled(machine_with(uid=0), wish)
    os.chown(repository, unprivileged_user().pw_uid, -1)
    assert plan.sandbox.run_as is None
    assert cache.plan_for(wish).sandbox.run_as is not None


@pytest.mark.requires("root")
@pytest.mark.parametrize("target", ["workspace", "file"])
def test_what_is_mounted_over_a_path_is_another_one(
    machine: Machine, repository: Path, home: Path, target: str
) -> None:
    other = home / "other"
    other.mkdir()
    (other / "file").write_text("other")
    over = repository if target == "workspace" else repository / "file"
    source = other if target == "workspace" else other / "file"
    wish = PolicyRequest(
        manifest=Manifest(fs_read_allow=[str(repository / "file")]), preset="workspace-write",
        workspace=str(repository), manifest_given=True,
    )  # fmt: skip
    cache, plan = settled(machine, wish)
    subprocess.run(["mount", "--bind", source, over], check=True)
    try:
        assert cache.plan_for(wish) == plan_for(wish, machine) != plan
    finally:
        subprocess.run(["umount", over], check=True)


def test_refusals_are_not_kept(machine: Machine, repository: Path) -> None:
    missing = repository / "later"
    wish = PolicyRequest(manifest=Manifest(fs_read_allow=[str(missing)]), manifest_given=True)
    cache = PlanCache(machine)
    with pytest.raises(SandboxdError, match="does not exist"):
        cache.plan_for(wish)
    missing.mkdir()
    assert cache.plan_for(wish).sandbox.paths("read") == [str(missing)]


def test_equal_plans_share_one_spec(machine: Machine, home: Path, repository: Path) -> None:
    """It is a key: two objects would be compared grant by grant for every command."""
    wish = wishes(home, repository)[0]
    cache, plan = settled(machine, wish)
    (repository / ".envrc").write_text("x")
    other = cache.plan_for(wish)
    (repository / ".envrc").unlink()
    again = cache.plan_for(wish)
    assert again.sandbox != other.sandbox
    assert again.sandbox is plan.sandbox


def test_plans_are_bounded(machine: Machine) -> None:
    cache = PlanCache(machine)
    for number in range(MAX_PLANS + 20):
        cache.plan_for(
            PolicyRequest(manifest=Manifest(env={"A": str(number)}), manifest_given=True)
        )
    assert len(cache._kept) == MAX_PLANS


def test_plans_share_what_all_of_them_see(machine: Machine, home: Path) -> None:
    """Each looks for the same names in people's home folders."""
    folders = [home / "one", home / "other"]
    for folder in folders:
        folder.mkdir()
    wishes = [PolicyRequest(preset="workspace-write", workspace=str(one)) for one in folders]
    kept = [cached for wish in wishes for cached in settled(machine, wish)[0]._kept.values()]
    one, other = (cached.basis._quick._folders_seen[str(home)][2] for cached in kept)
    assert one is not None
    assert other is not None
    assert one is not other
    assert one.names
    assert one.names is other.names


LOOKS = {
    "lstat", "stat", "readlink", "access", "listdir", "scandir", "open", "realpath", "exists",
    "lexists", "isdir", "isfile", "islink", "samefile", "getsize", "getmtime", "walk", "glob",
}  # fmt: skip


def test_the_policy_looks_at_files_in_one_place_only() -> None:
    """A look that is not noted would make a kept plan outlive what it rests on."""
    folder = Path(sandboxd.policy.__file__).parent
    found = []
    for path in folder.rglob("*.py"):
        if path.name in ("recording_fs.py", "plan_cache.py", "cache_notes.py"):
            continue
        if path.name == "hanging_mounts.py":  # asked at every request, before there is a plan
            continue
        assert "hanging_mounts" not in path.read_text()  # no plan rests on it
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in LOOKS:
                if ast.unparse(node.value) in ("os", "os.path", "glob", "Path", "pathlib"):
                    found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.Name) and node.id in ("open", "Path"):
                found.append(f"{path.name}:{node.lineno} {node.id}")
    assert found == []


def test_whole_seconds_are_trusted_later() -> None:
    """On a file system that counts in seconds a second change in the same second shows nowhere."""
    now = 1_700_000_000_500_000_000
    whole, fine = 1_700_000_000_000_000_000, 1_700_000_000_000_000_123 + 1_234_567
    assert not is_past((1, 2, whole), now)
    assert is_past((1, 2, fine), now)
    assert is_past((1, 2, whole), now + 3_000_000_000)


@pytest.mark.requires("root")
def test_the_owner_of_a_file_matters(
    machine_with: Callable[..., Machine], repository: Path
) -> None:
    file = repository / "file"
    os.chown(file, unprivileged_user().pw_uid, -1)
    wish = PolicyRequest(manifest=Manifest(fs_write_allow=[str(file)]), manifest_given=True)
    cache, plan = settled(machine_with(uid=0), wish)
    os.chown(file, 4242, -1)
    assert plan.sandbox.run_as is not None
    assert cache.plan_for(wish).sandbox.run_as == RunAs(4242, 65534)


def test_names_that_come_and_go_are_no_error(machine: Machine, repository: Path) -> None:
    link = repository / ".vscode"
    stop = threading.Event()

    def blink() -> None:
        while not stop.is_set():
            link.symlink_to("elsewhere")
            link.unlink()

    thread = threading.Thread(target=blink)
    thread.start()
    try:
        for _ in range(3000):
            with recording_fs.recording():
                recording_fs.exists(str(link / "settings.json"))
                recording_fs.isdir(str(link))
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("changes", [1, 100])
def test_a_plan_during_which_something_changed_is_not_used(
    machine: Machine, repository: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    made: list[Plan] = []

    def plan_while_changing(request: PolicyRequest, on: Machine) -> Plan:
        made.append(plan_for(request, on))
        if len(made) <= changes:
            (repository / ".git" / "hooks").rename(repository / f"hooks{len(made)}")
            (repository / ".git" / "hooks").mkdir()
        return made[-1]

    monkeypatch.setattr(plan_cache, "plan_for", plan_while_changing)
    wish = PolicyRequest(preset="workspace-write", workspace=str(repository))
    result = outcome(lambda: PlanCache(machine).plan_for(wish))
    if changes == 1:
        assert result is made[1] or result == made[1]
        assert result != made[0]
        return
    with pytest.raises(PathDenied) as refused:
        PlanCache(machine).plan_for(wish)
    assert refused.value.facts["again"] is True
