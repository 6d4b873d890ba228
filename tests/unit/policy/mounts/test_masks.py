"""What reads as empty: secrets that a grant would show, what is denied, the daemon's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandboxd.policy.data import secrets
from sandboxd.policy.mounts import masks, secret_paths
from sandboxd.policy.mounts.mount_plan import MountKind, mount_plan
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths import closed_folders
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine
from sandboxd_proto.errors import CeilingExceeded, PathDenied

MakePlan = Callable[..., Plan]


def masked(plan: Plan) -> set[str]:
    return {mask.path for mask in plan.sandbox.masks}


def kind(plan: Plan, machine: Machine, path: Path) -> MountKind:
    return mount_plan(plan.sandbox, machine.host).at(str(path)).kind


def test_a_secret_in_an_allowed_home_is_masked(home: Path, plan: MakePlan) -> None:
    (home / ".ssh").mkdir()
    (home / ".npmrc").write_text("token")
    masks = {m.path: m.is_dir for m in plan(fs_read_allow=[str(home)]).sandbox.masks}
    assert masks[f"{home}/.ssh"] is True
    assert masks[f"{home}/.npmrc"] is False


def test_a_home_that_is_hidden_needs_no_masks(home: Path, workspace: Path, plan: MakePlan) -> None:
    (home / ".ssh").mkdir()
    assert f"{home}/.ssh" not in masked(plan(fs_read_allow=[str(workspace)]))
    assert f"{home}/.ssh" not in masked(plan(base="host"))


def test_a_missing_secret_is_not_masked_since_that_would_create_it(
    home: Path, plan: MakePlan
) -> None:
    assert not any(p.startswith(str(home)) for p in masked(plan(fs_read_allow=[str(home)])))


@pytest.mark.parametrize("group", secrets.HOME, ids=lambda group: group.why[:30])
def test_every_secret_of_a_home_is_hidden_when_the_home_is_allowed(
    group: secrets.SecretGroup, home: Path, plan: MakePlan, machine: Machine
) -> None:
    for name in group.paths:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    made = plan(fs_write_allow=[str(home)])
    assert {n for n in group.paths if kind(made, machine, home / n) is not MountKind.MASK} == set()


def test_secrets_of_other_people_are_masked_too(
    home: Path, base: Path, machine_with: Callable[..., Machine], plan: MakePlan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    other = base / "home" / "other"
    (other / ".aws").mkdir(parents=True)
    monkeypatch.setattr("sandboxd.policy.mounts.masks.homes", lambda *own: (*own, str(other)))
    assert f"{other}/.aws" in masked(plan(fs_read_allow=[str(base / "home")]))


def test_a_secret_behind_a_symlink_is_masked_where_it_really_is(home: Path, plan: MakePlan) -> None:
    kept = home / "dotfiles" / "ssh"
    kept.mkdir(parents=True)
    (home / ".ssh").symlink_to(kept)
    (home / ".config").mkdir()
    (home / "dotfiles" / "gh").mkdir()
    (home / ".config" / "gh").symlink_to(home / "dotfiles" / "gh")
    whole = masked(plan(fs_read_allow=[str(home)]))
    part = masked(plan(fs_read_allow=[str(home / "dotfiles")]))
    assert {str(kept), f"{home}/dotfiles/gh"} <= whole & part


def test_a_secret_kept_outside_the_hidden_home_is_masked_there(
    home: Path, base: Path, plan: MakePlan
) -> None:
    (base / "data" / "ssh").mkdir(parents=True)
    (home / ".ssh").symlink_to(base / "data" / "ssh")
    assert f"{base}/data/ssh" in masked(plan(fs_read_allow=[str(base / "data")]))


LINKED = [
    ".aws/credentials", ".config/gh/hosts.yml", ".docker/config.json", ".kube/config",
    ".gnupg/private-keys-v1.d/a.key", ".claude/settings.json",
]  # fmt: skip


def test_what_links_in_secret_folders_lead_to_is_masked(home: Path, plan: MakePlan) -> None:
    """As programs that keep dotfiles make them: the folder is there, the file in it is a link."""
    kept = home / "dotfiles"
    for name in (*LINKED, ".claude/skills/mine", "plain"):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text("secret")
    for name in (*LINKED, ".claude/skills/mine"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(kept / name)
    expected = {f"{kept}/{name}" for name in LINKED}
    by_link = masked(plan(preset="workspace-write", workspace=kept))
    assert {path for path in by_link if path.startswith(f"{kept}/")} == expected
    assert expected <= masked(plan(fs_read_allow=[str(home)]))
    named = masked(plan(fs_read_allow=[str(kept), f"{kept}/.aws/credentials"]))
    assert f"{kept}/.aws/credentials" not in named


def test_links_to_programs_and_homes_mask_nothing(home: Path, plan: MakePlan) -> None:
    (home / ".docker").mkdir()
    (home / ".docker" / "plugin").symlink_to("/usr/bin/env")
    for name, target in (("home", home), ("above", home.parent), ("all", "/"), ("gone", "x")):
        (home / ".docker" / name).symlink_to(target)
    assert masked(plan(fs_read_allow=[str(home)], base="host")) & {
        "/usr/bin/env", str(home), str(home.parent), "/"
    } == set()  # fmt: skip


def test_many_links_in_one_secret_folder_take_nothing_from_another(
    home: Path, plan: MakePlan
) -> None:
    secret = home / "dotfiles" / "credentials"
    secret.parent.mkdir()
    secret.write_text("secret")
    for folder in (".aws", ".ssh"):
        (home / folder).mkdir()
    (home / ".aws" / "credentials").symlink_to(secret)
    for number in range(200):
        (home / ".ssh" / str(number)).symlink_to("gone")
    made = plan(preset="workspace-write", workspace=secret.parent)
    assert str(secret) in masked(made)
    assert [one for one in made.nested.warnings if f"{home}/.ssh has too many symlinks" in one]
    (home / ".ssh" / "0").rename(home / "0")
    for number in range(1, 150):
        (home / ".ssh" / str(number)).unlink()
    assert not plan(preset="workspace-write", workspace=secret.parent).nested.warnings


def test_the_home_of_the_environment_is_one_too(
    base: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    """Programs keep secrets where HOME says, which need not be the user database's folder."""
    other = base / "data" / "me"
    (other / ".ssh").mkdir(parents=True)
    secret = f"{other}/.ssh"
    assert secret not in masked(plan(fs_read_allow=[str(other)]))
    machine = machine_with(variable_home=str(other))
    assert secret in masked(plan(fs_read_allow=[str(other)], machine=machine))
    assert secret in masked(plan(fs_read_allow=[str(other)], env={"HOME": str(other)}))
    assert secret in masked(plan(fs_write_allow=[str(other)], machine=machine))
    for wrong in ("", "data", "/", "/nonexistent", str(other / ".netrc")):
        assert masked(plan(fs_read_allow=[str(base)], env={"HOME": wrong})) == masked(
            plan(fs_read_allow=[str(base)])
        )


def test_a_home_in_a_mask_of_the_config_is_each_home_of_the_daemon_s_user(
    base: Path, home: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    other = base / "data" / "me"
    for folder in (home, other):
        (folder / "secrets").mkdir(parents=True)
    machine = machine_with(variable_home=str(other), masks=["~/secrets"])
    made = plan(fs_read_allow=[str(base)], machine=machine)
    assert {f"{home}/secrets", f"{other}/secrets"} <= masked(made)
    for folder in (home, other):
        with pytest.raises(CeilingExceeded, match="is hidden by this daemon's config"):
            plan(fs_read_allow=[str(folder / "secrets")], machine=machine)
    machine = machine_with(variable_home="/", masks=["~"])
    assert f"{home}" in masked(plan(fs_read_allow=[str(base)], machine=machine))


def test_a_home_that_commands_write_is_their_own(base: Path, plan: MakePlan) -> None:
    """A caller may give a command a home in its workspace; the next one finds its settings."""
    inner = base / "work" / "home"
    inner.mkdir(parents=True)
    (inner / ".npmrc").write_text("registry=…")
    made = plan(preset="workspace-write", workspace=base / "work", env={"HOME": str(inner)})
    assert f"{inner}/.npmrc" not in masked(made)


def test_a_home_that_cannot_be_listed_has_its_secrets_masked(
    home: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ssh").mkdir()
    monkeypatch.setattr("sandboxd.policy.mounts.masks._entries", lambda folder: None)
    assert f"{home}/.ssh" in masked(plan(fs_read_allow=[str(home)]))


def test_a_dangling_symlink_in_the_place_of_a_secret_is_left_alone(
    home: Path, plan: MakePlan
) -> None:
    (home / ".ssh").symlink_to(home / "gone")
    assert masked(plan(fs_read_allow=[str(home)])).isdisjoint({f"{home}/.ssh", f"{home}/gone"})


def test_allowing_a_secret_by_name_lifts_its_mask(
    home: Path, plan: MakePlan, machine: Machine
) -> None:
    (home / ".aws").mkdir()
    both = plan(fs_read_allow=[str(home), str(home / ".aws")])
    assert kind(both, machine, home / ".aws" / "config") is MountKind.READ


def test_allowing_something_below_a_secret_shows_only_that(
    home: Path, plan: MakePlan, machine: Machine
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "known_hosts").write_text("")
    both = plan(fs_read_allow=[str(home), str(home / ".ssh" / "known_hosts")])
    assert kind(both, machine, home / ".ssh" / "known_hosts") is MountKind.READ
    assert kind(both, machine, home / ".ssh" / "id_ed25519") is MountKind.MASK


def test_a_denied_path_holds_against_an_allow_of_the_same_path(
    home: Path, workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    both = plan(fs_write_allow=[str(workspace)], fs_deny=[str(workspace)])
    assert kind(both, machine, workspace) is MountKind.MASK


def test_a_configured_mask_is_expanded_and_holds(
    home: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    (home / "secrets" / "deep").mkdir(parents=True)
    machine = machine_with(masks=["~/secrets"])
    assert f"{home}/secrets" in masked(plan(fs_read_allow=[str(home)], machine=machine))
    for path in (home / "secrets", home / "secrets" / "deep"):
        with pytest.raises(CeilingExceeded) as refused:
            plan(fs_read_allow=[str(path)], machine=machine)
        assert '[masks] add = ["~/secrets"]' in str(refused.value.remedy)


def test_the_daemons_own_folder_is_never_lifted(
    home: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    own = home / ".local" / "state" / "sandboxd"
    own.mkdir(parents=True)
    machine = machine_with(own=OwnPaths(hidden=(str(own),)))
    assert str(own) in masked(plan(fs_write_allow=[str(home)], machine=machine))
    with pytest.raises(PathDenied):
        plan(fs_read_allow=[str(own)], machine=machine)


def test_a_folder_of_root_around_the_daemons_own_is_masked_for_other_users_commands(
    base: Path, workspace: Path, plan: MakePlan, machine_with: Callable[..., Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The user of the command cannot enter the folder, so nothing can be mounted in it."""
    shown, closed = base / "shown", base / "shown" / "closed"
    own, inner = closed / "run" / "sandboxd", workspace / "run" / "sandboxd"
    for folder in (own, inner):
        folder.mkdir(parents=True)
    closed.chmod(0o700)
    # The folders are the test's own; for this plan they are root's, and the command another's.
    monkeypatch.setattr(
        masks, "closed_to",
        lambda path, uid, gid, below="/": closed_folders.closed_to(path, -1, -1, below),
    )  # fmt: skip
    machine = machine_with(uid=0, own=OwnPaths(hidden=(str(own), str(inner))))
    found = masked(plan(fs_read_allow=[str(shown), str(workspace)], machine=machine))
    assert str(closed) in found
    assert str(inner) in found, "a folder above the one that shows it hides nothing"
    assert str(own) not in found


def test_the_daemons_own_folder_that_does_not_exist_is_made_by_no_command(
    home: Path, workspace: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    """It cannot be masked: no folder above it is writable, until it exists."""
    own = home / ".local" / "state" / "sandboxd"
    (home / ".local").mkdir()
    found = OwnPaths.current([str(own)])
    assert found.hidden == (str(own),)
    machine = machine_with(own=found)
    for folder in (home, home / ".local"):
        with pytest.raises(PathDenied) as refused:
            plan(fs_write_allow=[str(folder)], machine=machine)
        assert str(own) in str(refused.value)
        assert plan(fs_read_allow=[str(folder)], machine=machine)
    assert plan(fs_write_allow=[str(workspace)], machine=machine)
    own.mkdir(parents=True)
    assert str(own) in masked(plan(fs_write_allow=[str(home)], machine=machine))


def test_a_link_to_the_daemons_own_folder_is_kept(
    home: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    (home / "dotfiles" / "config" / "sandboxd").mkdir(parents=True)
    (home / "first").symlink_to("dotfiles/config")
    (home / ".config").symlink_to(home / "first")
    machine = machine_with(own=OwnPaths.current([str(home / ".config" / "sandboxd")]))
    assert machine.own.hidden == (str(home / "dotfiles" / "config" / "sandboxd"),)
    assert machine.own.links == (str(home / ".config"), str(home / "first"))
    with pytest.raises(PathDenied) as refused:
        plan(fs_write_allow=[str(home)], machine=machine)
    assert str(home / ".config") in str(refused.value)
    made = plan(fs_write_allow=[str(home / "dotfiles")], machine=machine)
    assert machine.own.hidden[0] in masked(made)
    assert plan(fs_read_allow=[str(home)], machine=machine)


def test_other_workspaces_caches_are_masked(
    base: Path, workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    made = plan(preset="workspace-write", workspace=workspace, fs_write_allow=[str(base)])
    own = next(g.path for g in made.sandbox.grants if g.origin == "cache")
    assert kind(made, machine, base / "caches" / "another") is MountKind.MASK
    assert kind(made, machine, Path(own) / "pip") is MountKind.WRITE


def test_root_hides_the_password_hashes_of_the_host(
    plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    made = plan(base="host", machine=machine_with(uid=0))
    assert "/etc/shadow" in masked(made)
    assert not any(path.startswith("/run/") for path in masked(made))  # /run is hidden whole


def test_folders_of_services_sockets_outside_of_run_are_masked(
    plan: MakePlan, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Nix daemon's: who may connect has the machine build and store what they like."""
    assert "/nix/var/nix/daemon-socket" in secret_paths.SYSTEM
    root = tmp_path.resolve()
    (root / "nix/var/nix/daemon-socket").mkdir(parents=True)
    paths = tuple(f"{root}{path}" for path in secret_paths.SYSTEM)
    monkeypatch.setattr(secret_paths, "SYSTEM", paths)
    made = plan(fs_read_allow=[str(root)])
    socket_file = root / "nix/var/nix/daemon-socket/socket"
    assert kind(made, machine, socket_file) is MountKind.MASK
    assert kind(made, machine, root / "nix/var") is MountKind.READ


@pytest.mark.requires("unprivileged")  # the kernel keeps nothing from root
def test_what_the_kernel_keeps_from_the_user_needs_no_mount(plan: MakePlan) -> None:
    assert "/etc/shadow" not in masked(plan(base="host"))


@pytest.mark.parametrize("preset", ["read-only", "workspace-write"])
def test_gits_settings_are_readable_and_its_stored_passwords_are_not(
    preset: str, home: Path, workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    (home / ".gitconfig").write_text("[user]\n")
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "credentials").write_text("https://me:token@example.org")
    made = plan(preset=preset, workspace=workspace)
    assert kind(made, machine, home / ".gitconfig") is MountKind.READ
    assert kind(made, machine, home / ".config" / "git" / "ignore") is MountKind.READ
    assert kind(made, machine, home / ".config" / "git" / "credentials") is MountKind.MASK
    assert kind(made, machine, home / ".config" / "other") is MountKind.HIDDEN


def test_a_denied_folder_hides_what_a_preset_would_add(
    home: Path, workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    made = plan(preset="read-only", workspace=workspace, fs_deny=[str(home / ".config")])
    assert kind(made, machine, home / ".config" / "git") is MountKind.MASK


def test_an_agents_socket_can_be_allowed_by_name(
    base: Path, home: Path, plan: MakePlan, machine: Machine
) -> None:
    """What `sandboxctl --ssh-agent` asks for, in /tmp and in the runtime directory."""
    path = base / "ssh-abc" / "agent.1"
    path.parent.mkdir()
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)  # a socket's name is limited to 108 bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)
        made = plan(preset="read-only", fs_read_allow=[str(path)])
    place = mount_plan(made.sandbox, machine.host).at(str(path))
    assert (place.kind, place.is_dir) == (MountKind.READ, False)
    hidden = replace(machine.host, homes=(str(base),))
    assert mount_plan(made.sandbox, hidden).at(str(path)).kind is MountKind.READ
