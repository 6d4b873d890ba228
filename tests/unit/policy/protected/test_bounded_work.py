"""What a command left in a workspace cannot make the planning of the next one endless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.plan import Plan
from sandboxd.policy.protected import bounded_work, git_programs
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.errors import PathDenied
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


def test_programs_of_one_repository(
    machine: Machine, workspace: Path, nested: Callable[[str], Path]
) -> None:
    nested(filters(400))
    protected = {one.path for one in planned(machine, workspace).sandbox.protected}
    assert str(workspace / "vendor0" / "clean399") in protected  # the control
    harmful = nested(filters(bounded_work.MOST_PROGRAMS + 1))
    with pytest.raises(PathDenied, match="names programs in more than") as refused:
        planned(machine, workspace)
    assert str(harmful / "config") in (refused.value.remedy or "")


def test_a_long_command_line(
    machine: Machine, workspace: Path, nested: Callable[[str], Path]
) -> None:
    git_dir = nested(f"[core]\n\tpager = ./x {'a' * (bounded_work.MOST_IN_A_LINE - 10)}\n")
    assert planned(machine, workspace)
    (git_dir / "config").write_text(f"[core]\n\tpager = {'a' * bounded_work.MOST_IN_A_LINE}b\n")
    with pytest.raises(PathDenied, match="has a command line of more than"):
        planned(machine, workspace)


def test_settings_in_sum(
    machine: Machine, workspace: Path, nested: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    nested("; " + "x" * 5000 + "\n")
    assert planned(machine, workspace)
    monkeypatch.setattr(bounded_work, "MOST_CONFIG_BYTES", 4000)
    with pytest.raises(PathDenied, match="of settings"):
        planned(machine, workspace)


def test_paths_in_sum(
    machine: Machine, workspace: Path, nested: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each name in a git dir that is no daily work is protected, and modules have their own."""
    git_dir = nested("")
    for number in range(500):
        (git_dir / f"name{number}").touch()
    assert planned(machine, workspace)
    monkeypatch.setattr(bounded_work, "MOST_PATHS", 500)
    with pytest.raises(PathDenied, match="paths to protect"):
        planned(machine, workspace)


@pytest.mark.parametrize("unit", ["${", "$(", "`", "$", "{", "$((", "${a", "$(a"])
def test_what_only_a_shell_knows_is_found_in_linear_time(unit: str) -> None:
    """In a mebibyte: time that grows with the square would be longer than any test may take."""
    git_programs._UNKNOWN.sub("", unit * ((1 << 20) // len(unit)))
