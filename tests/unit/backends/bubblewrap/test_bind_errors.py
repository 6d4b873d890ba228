"""A path that the user who runs the command cannot walk to: refused by its own name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends import running_backend
from support.rpc import RpcError
from support.runs import Runner
from support.users import unprivileged_user

from sandboxd.backends.bubblewrap.arguments import Bind
from sandboxd.backends.bubblewrap.bind_errors import unreachable
from sandboxd.policy.plan import RunAs
from sandboxd_proto.account_names import in_sentence
from sandboxd_proto.errors import PathDenied, SandboxUnavailable

NOBODY = RunAs(65534, 65534)
GRANT = Bind("/srv/work", "/srv/work", writable=True)
OWN = Bind("/run/state/etc", "/etc")
SOURCES = {"/proc/self/fd/9": GRANT, "/proc/self/fd/10": OWN}
# In words of bwrap 0.8; 0.11 says them of descriptors too.
NOT_FOUND = "bwrap: Can't find source path {}: {}"
NO_TYPE = "bwrap: Can't get type of source {}: {}"


@pytest.mark.parametrize("words", [NOT_FOUND, NO_TYPE])
@pytest.mark.parametrize("name", ["/proc/self/fd/9", "/srv/work"])
def test_what_the_user_cannot_reach_is_denied_by_its_name(words: str, name: str):
    refusal = unreachable(words.format(name, "Permission denied"), SOURCES, NOBODY)
    assert isinstance(refusal, PathDenied)
    assert refusal.message.startswith("/srv/work cannot be reached by the user nobody,")
    assert "/proc/self/fd" not in f"{refusal.message} {refusal.remedy}"
    assert "let the user nobody pass: chmod o+x" in str(refusal.remedy)


def test_a_user_without_a_name_is_named_by_number():
    said = NOT_FOUND.format("/proc/self/fd/9", "Permission denied")
    refusal = unreachable(said, SOURCES, RunAs(4_000_000, 4_000_000))
    assert refusal is not None
    assert "by uid 4000000," in refusal.message


@pytest.mark.requires("root")
@pytest.mark.parametrize("own", [False, True])
def test_nobody_is_told_to_open_a_home_folder(own: bool):
    source = "/root/closed/x"
    bind = Bind(source, "/etc" if own else source)
    said = NOT_FOUND.format("/proc/self/fd/9", "Permission denied")
    refusal = unreachable(said, {"/proc/self/fd/9": bind}, NOBODY)
    assert refusal is not None
    assert "chmod" not in str(refusal.remedy)
    assert "home folder" in str(refusal.remedy)
    if not own:
        example = "a place that the user nobody can reach, for example a new folder in /srv:"
        assert example in str(refusal.remedy)


def test_what_is_gone_is_to_be_sent_again():
    said = NOT_FOUND.format("/proc/self/fd/9", "No such file or directory")
    refusal = unreachable(said, SOURCES, None)
    assert isinstance(refusal, PathDenied)
    assert refusal.message.startswith("/srv/work changed between the check and the mount")


@pytest.mark.parametrize("reason", ["Permission denied", "No such file or directory"])
def test_the_daemons_own_files_are_not_the_callers_fault(reason: str):
    refusal = unreachable(NOT_FOUND.format("/proc/self/fd/10", reason), SOURCES, NOBODY)
    assert isinstance(refusal, SandboxUnavailable)
    assert "/run/state/etc" in refusal.message


@pytest.mark.parametrize(
    "said",
    [
        "",
        "bwrap: setting up uid map: Permission denied",
        NOT_FOUND.format("/proc/self/fd/11", "Permission denied"),
        "bwrap: Can't find source path",
    ],
)
def test_other_words_are_left_to_the_diagnosis(said: str):
    assert unreachable(said, SOURCES, NOBODY) is None


# for real


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder of root that no other user can enter, with a folder of another user in it."""
    user = unprivileged_user()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sbxd-closed-") as name:
        folder = Path(name).resolve()
        (folder / "theirs").mkdir()
        os.chown(folder / "theirs", user.pw_uid, user.pw_gid)
        yield folder


@pytest.mark.isolation
@pytest.mark.requires("bubblewrap", "root")
@pytest.mark.parametrize("with_preset", [False, True], ids=["manifest", "preset"])
def test_a_workspace_in_a_closed_folder_of_root(closed: Path, with_preset: bool):
    user, theirs = unprivileged_user(), str(closed / "theirs")
    params = (
        {"preset": "workspace-write", "workspace": theirs}
        if with_preset
        else {"manifest": {"fs_write_allow": [theirs]}}
    )
    with running_backend("bubblewrap") as daemon:
        runner = Runner(daemon)
        with pytest.raises(RpcError) as refused:
            runner.run("id", "-u", **params)
        error = refused.value
        assert error.kind == "PathDenied"
        assert error.message.startswith(
            f"{theirs} cannot be reached by {in_sentence(user.pw_name)}"
        )
        assert f"{closed} does not let them through" in error.message
        assert f"chmod o+x {closed}" in str(error.remedy)
        # The remedy works.
        closed.chmod(0o711)
        assert runner.run("id", "-u", **params).stdout == f"{user.pw_uid}\n"
        runner.close()
