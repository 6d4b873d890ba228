"""The environment: exactly the manifest's pairs, and nothing of the daemon's."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rpc import RpcError
from support.subject import Subject

# Where /tmp cannot be private, TMPDIR leads to a folder that is.
ADDED = {"TMPDIR"}


def variables(printed: str) -> dict[str, str]:
    pairs = dict(line.split("=", 1) for line in printed.split("\0") if line)
    return {name: value for name, value in pairs.items() if name not in ADDED}


def show(subject: Subject, **params: object) -> dict[str, str]:
    """`env -0`, started directly: a shell would add variables of its own."""
    return variables(subject.run("env", "-0", **params).stdout)


@pytest.mark.holds("env")
def test_it_is_exactly_what_was_given(subject: Subject) -> None:
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "A": "b=c", "EMPTY": "", "U": "grün\nzwei"}
    assert show(subject, manifest={"env": given}) == given


def test_it_is_empty_unless_given(subject: Subject) -> None:
    assert show(subject, manifest={}) == {}


@pytest.mark.holds("env")
def test_nothing_of_the_daemons_is_in_it(subject: Subject) -> None:
    """The daemon was started with TEST_SECRET, HOME and more in its own environment."""
    assert show(subject, manifest={"env": {"ONLY": "this"}}) == {"ONLY": "this"}


def test_pairs_may_be_a_list(subject: Subject) -> None:
    assert show(subject, manifest={"env": [["B", "2"], ["A", "1"]]}) == {"B": "2", "A": "1"}


def test_the_program_is_searched_in_the_path_that_was_given(
    subject: Subject, workspace: Path
) -> None:
    program = workspace / "my-program"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    manifest = {"fs_read_allow": [str(workspace)], "env": {"PATH": f"/nowhere:{workspace}"}}
    assert subject.run("my-program", manifest=manifest).stdout == "mine\n"
    with pytest.raises(RpcError) as refusal:
        subject.run("my-program", manifest={"fs_read_allow": [str(workspace)]})
    assert refusal.value.kind == "ExecFailed"


@pytest.mark.parametrize(
    "env",
    [[["A", "1"], ["A", "2"]], [["", "x"]], [["A=B", "x"]], [["A", "x\0y"]], [["A"]], {"A": 1}],
)
def test_what_is_no_environment_is_refused(subject: Subject, env: object) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={"env": env})
    assert refusal.value.code == -32602
