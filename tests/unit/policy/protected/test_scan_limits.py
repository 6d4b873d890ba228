"""What a command left in a workspace cannot make the planning of the next one endless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.plan import Plan
from sandboxd.policy.protected import git_config, git_dir, git_programs, scan_limits
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.manifest import Manifest


def planned(machine: Machine, workspace: Path) -> Plan:
    wish = PolicyRequest(
        manifest=Manifest(), preset="workspace-write", workspace=str(workspace), dry=True
    )
    return plan_for(wish, machine)


@pytest.fixture
def nested(workspace: Path) -> Callable[[str], Path]:
    """Makes a repository as a command can: with any config."""
    made: list[Path] = []

    def make(config: str) -> Path:
        git_dir = workspace / f"vendor{len(made)}" / ".git"
        for name in ("objects", "refs/heads", "hooks"):
            (git_dir / name).mkdir(parents=True)
        (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
        (git_dir / "config").write_text(config)
        made.append(git_dir)
        return git_dir

    return make


def filters(count: int) -> str:
    return "".join(f'[filter "f{n}"]\n\tclean = ./clean{n}\n' for n in range(count))


def read_only(machine: Machine, workspace: Path) -> dict[str, str]:
    """Folders that commands can only read, each with what the result says about it."""
    plan = planned(machine, workspace)
    whole = [one.path for one in plan.sandbox.protected if one.present]
    said = {path: one for path in whole for one in plan.nested.warnings if f"read {path}:" in one}
    assert len(said) == len(plan.nested.warnings)
    return said


def test_programs_of_one_repository(
    machine: Machine, workspace: Path, nested: Callable[[str], Path]
) -> None:
    nested(filters(400))
    protected = {one.path for one in planned(machine, workspace).sandbox.protected}
    assert str(workspace / "vendor0" / "clean399") in protected  # the control
    assert read_only(machine, workspace) == {}
    harmful = nested(filters(scan_limits.MOST_PROGRAMS + 1))
    said = read_only(machine, workspace)
    assert list(said) == [str(harmful.parent)]
    assert "names programs in more than" in said[str(harmful.parent)]
    assert str(harmful / "config") in said[str(harmful.parent)]


def test_a_long_command_line(
    machine: Machine, workspace: Path, nested: Callable[[str], Path]
) -> None:
    git_dir = nested(f"[core]\n\tpager = ./x {'a' * (scan_limits.MOST_IN_A_LINE - 10)}\n")
    assert read_only(machine, workspace) == {}
    (git_dir / "config").write_text(f"[core]\n\tpager = {'a' * scan_limits.MOST_IN_A_LINE}b\n")
    said = read_only(machine, workspace)
    assert "has a command line of more than" in said[str(git_dir.parent)]


@pytest.mark.parametrize("kind", [scan_limits.PATHS, scan_limits.MOUNTS, scan_limits.SETTINGS])
def test_one_repository_takes_nothing_from_others(
    machine: Machine, workspace: Path, nested: Callable[[str], Path], kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The largest one is read-only, and what it has counts no more."""
    small = nested("")
    large = nested(filters(300) + "; " + "x" * 5000 + "\n")
    for number in range(30):
        (large.parent / f"clean{number}").touch()
    assert read_only(machine, workspace) == {}
    most = {scan_limits.PATHS: 400, scan_limits.MOUNTS: 20, scan_limits.SETTINGS: 4000}
    monkeypatch.setitem(scan_limits.ONE_NESTED, kind, most[kind])
    said = read_only(machine, workspace)
    assert list(said) == [str(large.parent)]
    assert f"more than {most[kind]} {kind}" in said[str(large.parent)]
    monkeypatch.setitem(scan_limits.NESTED, kind, most[kind])
    assert list(read_only(machine, workspace)) == [str(large.parent)]
    assert small.parent.name == "vendor0"


def test_all_in_sum(
    machine: Machine, workspace: Path, nested: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folders = [str(nested("; " + "x" * 9000 + "\n").parent) for _ in range(3)]
    assert read_only(machine, workspace) == {}
    # The host's own settings (/etc/gitconfig) count too.
    monkeypatch.setitem(scan_limits.NESTED, scan_limits.SETTINGS, 20_000)
    assert list(read_only(machine, workspace)) == folders[2:]


@pytest.mark.parametrize("top", [False, True], ids=["nested", "top"])
def test_names_that_are_not_gits(
    machine: Machine, workspace: Path, nested: Callable[[str], Path], top: bool
) -> None:
    """Each is a mount."""
    git_dir = nested("")
    if top:
        git_dir = git_dir.rename(workspace / ".git")
    for number in range(scan_limits.MOST_FOREIGN_NAMES):
        (git_dir / f"name{number}").touch()
    assert read_only(machine, workspace) == {}
    (git_dir / "another").touch()
    whole = git_dir if top else git_dir.parent
    assert "that are not git's" in read_only(machine, workspace)[str(whole)]


def test_a_nested_git_dir_that_cannot_be_read(
    machine: Machine, workspace: Path, nested: Callable[[str], Path]
) -> None:
    git_dir = nested("")
    git_dir.chmod(0)
    said = read_only(machine, workspace)
    git_dir.chmod(0o700)
    assert f"chmod u+rwx {git_dir}" in said[str(git_dir.parent)]


@pytest.mark.parametrize("unit", ["${", "$(", "`", "$", "{", "$((", "${a", "$(a"])
def test_what_only_a_shell_knows_is_found_in_linear_time(unit: str) -> None:
    """In a mebibyte: time that grows with the square would be longer than any test may take."""
    git_programs._UNKNOWN.sub("", unit * ((1 << 20) // len(unit)))


@pytest.mark.parametrize("surplus", [0, 1])
def test_settings_that_are_too_long_are_refused_and_not_cut(tmp_path: Path, surplus: int) -> None:
    """git reads the rest, and what it names."""
    hidden = "\n[core]\n\thooksPath = hooks\n"
    blank = "#" * (git_config.MAX_BYTES + surplus - len(hidden))
    config = tmp_path / "config"
    config.write_text(blank + hidden)
    if surplus:
        with pytest.raises(scan_limits.TooMuch, match=f"{config} has more than"):
            git_dir.read_config(str(config))
    else:
        assert git_dir.read_config(str(config)) == [("core.hookspath", "hooks")]
