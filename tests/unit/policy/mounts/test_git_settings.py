"""Which files that the user's git settings name are shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine

MakePlan = Callable[..., Plan]


@pytest.fixture
def shown(
    home: Path, workspace: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> Callable[..., set[str]]:
    def names(**manifest: object) -> set[str]:
        on = machine_with(uid=os.getuid(), masks=["~/masked"])
        made = plan(preset="workspace-write", workspace=workspace, machine=on, **manifest)
        under = f"{home}/"
        return {p.removeprefix(under) for p in made.sandbox.paths("read") if p.startswith(under)}

    return names


def test_includes_and_lists_are_shown(home: Path, shown: Callable[..., set[str]]) -> None:
    (home / ".gitconfig").write_text(
        '[include]\n\tpath = ~/git/more\n[includeIf "gitdir:~/src/"]\n\tpath = git/work\n'
        f"[core]\n\texcludesFile = {home}/ignore\n\tattributesFile = ~/attributes\n"
        "\teditor = ~/editor\n"
    )
    (home / "git").mkdir()
    for name in ("ignore", "attributes", "editor", "git/work", "git/deep", "git/unnamed"):
        (home / name).write_text("")
    (home / "git" / "more").write_text("[include]\n\tpath = deep\n\tpath = more\n")
    named = {"git/more", "git/work", "git/deep", "ignore", "attributes"}
    assert shown() == {".gitconfig", *named}


def test_the_settings_in_the_home_of_the_environment_are_shown_too(
    home: Path, base: Path, workspace: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    other = base / "data" / "me"
    other.mkdir(parents=True)
    (other / ".gitconfig").write_text("[include]\n\tpath = ~/more\n")
    (other / "more").write_text("")
    (home / ".gitconfig").write_text("")
    machine = machine_with(uid=os.getuid(), variable_home=str(other))
    made = plan(preset="workspace-write", workspace=workspace, machine=machine)
    read = set(made.sandbox.paths("read"))
    assert {f"{other}/.gitconfig", f"{other}/more", f"{home}/.gitconfig"} <= read

    for home_there, unread in ((other, home), (home, other)):
        env = [("HOME", str(home_there))]
        made = plan(preset="workspace-write", workspace=workspace, machine=machine, env=env)
        assert f"{home_there}/.gitconfig" in made.sandbox.paths("read")
        assert f"{unread}/.gitconfig" not in made.sandbox.paths("read"), "git does not read it"


def test_a_file_in_git_s_own_folder_names_others(
    home: Path, shown: Callable[..., set[str]]
) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[core]\n\texcludesfile = ~/ignore\n")
    (home / "ignore").write_text("")
    assert shown() == {".config/git", "ignore"}


def test_what_is_not_to_be_seen_is_not_shown(
    home: Path, base: Path, workspace: Path, shown: Callable[..., set[str]]
) -> None:
    chosen = "[include]\n\tpath = ~/diary\n"
    for name in ("diary", "masked", "denied", ".netrc", "a-link's end"):
        (home / name).write_text(chosen if name != "diary" else "")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(chosen)
    (workspace / "settings").write_text(chosen)
    (home / "link").symlink_to("a-link's end")
    os.mkfifo(home / "pipe")
    (base / "elsewhere").write_text("")
    paths = ["~/masked", "~/denied", "~/.netrc", "~/.ssh/config", f"{workspace}/settings",
             "~/link", "~/pipe", "~/.ssh", f"{base}/elsewhere", "~/missing"]  # fmt: skip
    (home / ".gitconfig").write_text("".join(f"[include]\n\tpath = {path}\n" for path in paths))
    assert shown(fs_deny=[str(home / "denied")]) == {".gitconfig"}


def test_no_more_than_a_few_files(home: Path, shown: Callable[..., set[str]]) -> None:
    for number in range(40):
        (home / f"more{number}").write_text("")
    lines = "".join(f"\tpath = more{number}\n" for number in range(40))
    (home / ".gitconfig").write_text(f"[include]\n{lines}")
    assert len(shown()) == 1 + 16
