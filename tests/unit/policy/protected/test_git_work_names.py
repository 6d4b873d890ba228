"""Names of daily work in a git dir, programs that settings name, repositories in folders."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandboxd.policy.data import git_work_names
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.revalidation import Basis
from sandboxd.policy.protected import distant_git, git_programs, nested_git

WORK = (
    "objects", "refs", "logs", "packed-refs", "packed-refs.lock", "packed-refs.new", "index",
    "index.lock", "HEAD", "HEAD.lock", "ORIG_HEAD", "FETCH_HEAD", "MERGE_MSG", "BISECT_LOG",
    "COMMIT_EDITMSG", "rebase-merge", "sequencer", "sharedindex.0123abcd", "shallow", "gc.pid",
    "next-index-123", ".COMMIT_EDITMSG.swp", "reftable", "COMMIT_EDITMSG~", "MERGE_MSG~", "4913",
    ".TAG_EDITMSG.swx", ".COMMIT_EDITMSG.un~", "#COMMIT_EDITMSG#", "addp-hunk-edit.diff~",
)  # fmt: skip
KEPT = (
    "hooks", "config", "config.worktree", "commondir", "description", "gitdir", "branches",
    "remotes", "svn", "annex", "hooks2", "Index", "HEADS", "index.lock.d", "MERGE_msg", "..",
    "Hooks", "CONFIG", "CommonDir", "HEAd", "config~", ".config.swp", "hooks~", "4914", "HEAD~",
)  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_names_of_daily_work(name: str) -> None:
    assert git_work_names.is_work(name)
    assert not git_work_names.is_kept(name, is_dir=False)


@pytest.mark.parametrize("name", KEPT)
def test_other_names_stay_as_they_are(name: str) -> None:
    assert not git_work_names.is_work(name)
    assert git_work_names.is_kept(name, is_dir=False)


def test_temporary_files_beside_a_protected_file_are_transient() -> None:
    assert all(map(git_work_names.is_transient, ("config.lock", "sedNSWZ6u")))
    assert not any(map(git_work_names.is_transient, ("sed", "sedNSWZ6u2", "xsedNSWZ6u", "config")))


def test_what_runs_at_once_is_no_work() -> None:
    assert not any(map(git_work_names.is_work, git_work_names.RUNS_AT_ONCE))


def test_info() -> None:
    assert git_work_names.is_info_work("refs")
    for name in ("attributes", "exclude", "grafts", "sparse-checkout", "refs_../x"):
        assert not git_work_names.is_info_work(name)


PROGRAMS = {
    ("core.sshcommand", "./ssh -v"): ["ssh"],
    ("core.fsmonitor", "tools/monitor"): ["tools/monitor"],
    ("filter.x.clean", "sh tools/clean.sh %f"): ["tools/clean.sh"],
    ("filter.x.process", "FOO=1 'tools/a b'"): ["tools/a b"],
    ("diff.x.textconv", "python3 run"): ["run"],
    ("merge.x.driver", "tools/m %O %A;tools/n"): ["tools/m", "tools/n"],
    ("credential.helper", "!f() { cat tools/secret; }; f"): ["tools/secret"],
    ("credential.https://x.helper", "tools/h"): ["tools/h"],
    ("alias.x", "!tools/x"): ["tools/x"],
    ("alias.x", "log --oneline tools/x"): [],
    ("core.editor", "vim"): [],
    ("core.editor", "/usr/bin/vim"): [],
    ("user.name", "tools/x"): [],
    ("core.pager", "less -R ../outside"): [],
    ("lfs.customtransfer.x.path", "tools/agent"): ["tools/agent"],
    ("remote.x.url", "ext::sh tools/connect"): ["tools/connect"],
    ("remote.x.url", "ssh://host/tools/clean.sh"): [],
}
# Lines for a shell, in a work tree with the file tools/clean.sh.
LINES = (
    "cd tools && ./clean.sh", "cd tools; sh clean.sh", "FOO=1 sh -c 'cd tools && exec ./clean.sh'",
    'sh -c "cd \'tools\'; ./clean.sh"', "$(git rev-parse --show-toplevel)/tools/clean.sh %f",
    '"${TOP:-.}/tools/clean.sh"', "cd $(dirname $(pwd))/tools && ./clean.sh",
    "`pwd`/tools/clean.sh", "(cd tools&&./clean.sh)", "env -C tools ./clean.sh",
    "exec<tools/clean.sh sh", "cat %f | tools/../tools//clean.sh", "tools/clean\\.sh",
    ". tools/cle*.sh", "for f in tools/*; do . $f; done", "make -C tools run",
    "python3 tools", "cd tools && python3 -m clean", "npm --prefix tools run clean",
    "tools/{clean,smudge}.sh", "f() { cd tools; npm run x; }; f", 'eval "cd tools; ./clean.sh"',
)  # fmt: skip


@pytest.mark.parametrize(("key", "value"), PROGRAMS)
def test_programs_in_the_workspace(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "run").write_text("")
    (tmp_path / "vim").write_text("")
    found = git_programs.paths(key, value, str(tmp_path), str(tmp_path))
    wanted = PROGRAMS[key, value]
    assert {str(tmp_path / name) for name in wanted} <= set(found)
    assert bool(found) == bool(wanted)


@pytest.mark.parametrize("line", LINES)
def test_programs_in_lines_for_a_shell(tmp_path: Path, line: str) -> None:
    program = tmp_path / "tools/clean.sh"
    program.parent.mkdir()
    program.write_text("")
    found = git_programs.paths("filter.x.clean", line, str(tmp_path), str(tmp_path))
    assert {str(program), str(program.parent)} & set(found)
    assert str(tmp_path) not in found


def test_a_folder_that_a_line_merely_names_stays_writable(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for line in ("sed s,tools,lib,", "clean --into tools"):
        found = git_programs.paths("filter.x.clean", line, str(tmp_path), str(tmp_path))
        assert str(tmp_path / "tools") not in found
    assert git_programs.paths("alias.x", "!cd tools && make", str(tmp_path), str(tmp_path)) == []


def _repository(folder: Path) -> str:
    (folder / ".git").mkdir(parents=True)
    return str(folder)


def test_repositories_are_found_and_package_folders_left_out(tmp_path: Path) -> None:
    wanted = {_repository(tmp_path / name) for name in ("a", "b/c", "b/c/d")}
    bare = tmp_path / "bare"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "file").mkdir()
    (tmp_path / "file/.git").write_text("gitdir: x\n")
    _repository(tmp_path / "node_modules/x")
    (tmp_path / "link").symlink_to("a")
    found = nested_git.find(str(tmp_path))
    assert set(found.paths) == {*wanted, str(bare), str(tmp_path / "file")}
    assert found.warnings == ()


def test_distant_repositories_are_found_too(tmp_path: Path) -> None:
    wanted = {_repository(tmp_path / name) for name in ("1/2/3/4/5/6/7/8/9", "folder299/x")}
    for number in range(300):
        (tmp_path / f"folder{number}/src/main/java").mkdir(parents=True)
    bare = tmp_path / "a/b/c/d/e/f/g/bare"
    for name in ("objects/info", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    found = nested_git.find(str(tmp_path))
    assert set(found.paths) == {*wanted, str(bare)}
    assert found.warnings == ()
    assert len(found.folders) == nested_git.MOST_FOLDERS


def test_distant_folders_are_searched_again_when_their_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "1/2/3/4/5/6/7"
    deep.mkdir(parents=True)
    with recording_fs.recording() as notes:
        assert nested_git.find(str(tmp_path)).paths == ()
    made = _repository(deep)
    assert Basis(notes, ()).holds()
    assert nested_git.find(str(tmp_path)).paths == ()
    monkeypatch.setattr(time, "monotonic", lambda: notes.until + 1)
    assert not Basis(notes, ()).holds()
    assert nested_git.find(str(tmp_path)).paths == (made,)
    (tmp_path / "1/2/3/4/5/6/7/.git").rename(tmp_path / "gone")
    assert nested_git.find(str(tmp_path)).paths == ()


@pytest.mark.parametrize("bound", ["depth", "folders", "repositories"])
def test_beyond_the_bounds_it_says_so(
    tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bound == "depth":
        monkeypatch.setattr(distant_git, "DEEPEST", 2)
        _repository(tmp_path / "1/2/3/4/5/6/7/8/9")
    elif bound == "folders":
        monkeypatch.setattr(distant_git, "MOST_FOLDERS", 1)
        for name in "abcd":
            (tmp_path / name).mkdir()
    else:
        monkeypatch.setattr(nested_git, "MOST_REPOSITORIES", 2)
        for name in "abc":
            _repository(tmp_path / name)
    found = nested_git.find(str(tmp_path), most=3 if bound == "folders" else 100)
    assert len(found.warnings) == 1
    assert str(tmp_path) in found.warnings[0]
    assert found.read_only, "what was not searched, or cannot be protected by itself"


def test_what_was_not_searched_can_only_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More folders than are searched, before the user's own in every order."""
    own = _repository(tmp_path / "zz/own")
    for number in range(300):
        (tmp_path / f"a/{number:03}").mkdir(parents=True)
    monkeypatch.setattr(distant_git, "MOST_FOLDERS", 40)
    found = nested_git.find(str(tmp_path), most=100)
    assert found.read_only == (str(tmp_path / "a"), str(tmp_path / "zz"))
    for number in range(200, 300):
        (tmp_path / f"a/{number}").rmdir()
    found = nested_git.find(str(tmp_path), most=100)
    assert own in found.read_only, "few enough to be named by themselves"
    for number in range(100, 200):
        (tmp_path / f"a/{number}").rmdir()
    found = nested_git.find(str(tmp_path), most=100)
    assert (found.paths, found.read_only) == ((own,), ())


def test_a_workspace_of_which_too_much_was_not_searched_can_only_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (tmp_path / f"{number}").mkdir()
    monkeypatch.setattr(distant_git, "MOST_FOLDERS", 40)
    found = nested_git.find(str(tmp_path), most=100)
    assert (found.read_only, len(found.warnings)) == ((str(tmp_path),), 1)
    for number in range(150):
        (tmp_path / f"{number}").rmdir()
    assert nested_git.find(str(tmp_path), most=100).read_only == tuple(
        sorted(str(tmp_path / f"{number}") for number in range(289, 300))
    )


def test_what_a_command_made_far_down_ends_plans(tmp_path: Path) -> None:
    deep = tmp_path / "1/2/3/4/5/6/7"
    deep.mkdir(parents=True)
    with recording_fs.recording() as notes:
        assert nested_git.find(str(tmp_path)).paths == ()
    made = _repository(deep)
    assert Basis(notes, ()).holds()
    distant_git.add_repositories(str(tmp_path), [made])
    assert not Basis(notes, ()).holds()
    assert nested_git.find(str(tmp_path)).paths == (made,)


def test_a_repository_by_another_spelling_is_found_where_the_file_system_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain/.GIT").mkdir(parents=True)
    (tmp_path / "folded/.GIT").mkdir(parents=True)
    real = recording_fs.lexists
    folded = str(tmp_path / "folded/.git")
    monkeypatch.setattr(recording_fs, "lexists", lambda path: path == folded or real(path))
    assert nested_git.find(str(tmp_path)).paths == (str(tmp_path / "folded"),)
