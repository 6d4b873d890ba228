"""Repositories of Mercurial, Jujutsu and the like: their settings name programs, as git's do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import HOW, attack, is_reported, wait_for

from sandboxd.policy.data.protected_names import OTHER_EXEC, OTHER_REPOSITORIES

pytestmark = pytest.mark.isolation

PUT = python("""
    for path in args:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a") as file:
            file.write("# changed")
    worked()
""")
NAMES = (".hg/requires", *OTHER_EXEC)  # the first one names no program


def put_all(folder: Path) -> list[Path]:
    return [folder / name for name in NAMES]


def made_in(folder: Path) -> set[str]:
    return {name for name in NAMES if (folder / name).exists()}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", [*OTHER_EXEC, ".envrc"])
def test_an_existing_repository_in_a_subfolder_keeps_what_runs_code(
    box: Box, workspace: Path, name: str, how: str
) -> None:
    project = workspace / "vendor/lib"
    mark = name.partition("/")[0] if name in OTHER_EXEC else ".hg"
    (project / mark / "store").mkdir(parents=True)
    ran = attack(box, how, workspace, PUT, project / mark / "store/data", project / name)
    assert not (project / name).exists(), ran.story
    assert (project / mark / "store/data").exists()  # daily work goes on
    assert is_reported(ran), ran.story
    assert freely(PUT, project / name).worked
    assert (project / name).exists()


@pytest.mark.parametrize("how", HOW)
def test_a_folder_of_the_user_that_becomes_a_repository_runs_nothing(
    box: Box, workspace: Path, how: str
) -> None:
    (workspace / "src/deep").mkdir(parents=True)
    for folder in (workspace, workspace / "src/deep"):
        ran = attack(box, how, workspace, PUT, *put_all(folder))
        assert made_in(folder) == {".hg/requires"}, ran.story
        assert is_reported(ran), ran.story
    said = " ".join(ran.raw["warnings"])
    assert f"a repository of hg in {workspace}/src/deep" in said
    assert freely(PUT, *put_all(workspace / "src/deep")).worked
    assert made_in(workspace / "src/deep") == set(NAMES)


@pytest.mark.parametrize("how", HOW)
def test_links_to_settings_elsewhere_are_moved_aside(box: Box, workspace: Path, how: str) -> None:
    (workspace / "src").mkdir()
    evil = workspace / "new/.hg"
    program = python("""
        evil, link, pointer = args
        os.makedirs(evil)
        open(evil + "/hgrc", "w").write("[hooks]\\npre-status = touch /tmp/ran")
        os.symlink("../new/.hg", link)
        os.makedirs(os.path.dirname(pointer))
        open(pointer, "w").write("../../new")
        worked()
    """)
    link, pointer = workspace / "src/.hg", workspace / "src/.jj/repo"
    ran = attack(box, how, workspace, program, evil, link, pointer)
    assert not link.is_symlink(), ran.story
    assert not pointer.exists(), ran.story
    assert is_reported(ran), ran.story
    assert (evil / "hgrc").exists()
    assert f"a repository of hg in {workspace}/new" in " ".join(ran.raw["warnings"])


@pytest.mark.parametrize("how", HOW)
def test_a_repository_in_a_new_folder_is_named(box: Box, workspace: Path, how: str) -> None:
    ran = attack(box, how, workspace, PUT, *put_all(workspace / "fetched/it"))
    assert made_in(workspace / "fetched/it") == set(NAMES), ran.story
    assert not is_reported(ran), ran.story
    said = " ".join(ran.raw["warnings"])
    for program in OTHER_REPOSITORIES.values():
        assert f"a repository of {program} in {workspace}/fetched/it" in said


def test_it_is_protected_from_the_next_command(box: Box, workspace: Path) -> None:
    """In a new folder its settings are the command's; from then on they stay as they were read."""
    settings = workspace / "fetched/.hg/hgrc"
    assert attack(box, "cold", workspace, PUT, settings).exit_code == 42
    before = settings.read_bytes()
    ran = attack(box, "cold", workspace, PUT, settings)
    assert settings.read_bytes() == before, ran.story


def test_what_a_command_left_running_makes_none(box: Box, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "own").mkdir()
    params = {"preset": "workspace-write", "workspace": str(workspace)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    (workspace / "own/.hg").mkdir()
    (workspace / "own/.hg/hgrc").write_text("of the user")
    script = (
        "(while [ ! -e go ]; do sleep 0.05; done; mkdir src/.hg; touch src/.hg/hgrc done; "
        "sleep 600) > /dev/null 2>&1 &"
    )
    assert box.shell(script, sandbox=sandbox, cwd=str(workspace)).exited(0)
    (workspace / "go").touch()
    wait_for(lambda: (workspace / "done").exists())
    wait_for(lambda: not (workspace / "src/.hg/hgrc").exists())
    assert (workspace / "own/.hg/hgrc").exists()
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
