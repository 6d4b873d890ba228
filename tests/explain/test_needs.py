"""Which refusals are ours, which matter, and what is proposed for them: on a made-up machine."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from denials.settings import host, open_setting, setting
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sandboxd.denials import ExplainRequest, RunEvidence, Setting, StreamScanner
from sandboxd.policy.plan import RunAs
from sandboxd.types import RefusedAccess, Wanted
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.explanation import Explanation

WANTED: tuple[Wanted, ...] = (
    "look", "read", "exec", "enter", "write", "create", "remove", "change", "probe", "rename",
)  # fmt: skip


def judged(
    where: Setting, *refused: tuple[str, Wanted, int], exit_code: int = 1, stderr: bytes = b"",
    **more: Any,
) -> tuple[list[Denial], Explanation]:  # fmt: skip
    scanner = StreamScanner(where)
    scanner.feed("stderr", stderr)
    accesses = tuple(RefusedAccess(*one) for one in refused)
    facts = RunEvidence(exit_code=exit_code, explained=True, refused=accesses, **more)
    denials = scanner.finish(facts)
    return denials, scanner.explain(facts, denials, ExplainRequest({}))


def missing(where: Setting, *refused: tuple[str, Wanted, int], **more: Any) -> dict[str, Any]:
    return judged(where, *refused, **more)[1].missing


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (("/w/out/new", "create", errno.EROFS), {"fs_write_allow": ["/w/out"]}),
        (("/w/out/old.txt", "write", errno.EROFS), {"fs_write_allow": ["/w/out/old.txt"]}),
        (("/w/out/old.txt", "remove", errno.EROFS), {"fs_write_allow": ["/w/out"]}),
        (("/w/out/old.txt", "rename", errno.EROFS), {"fs_write_allow": ["/w/out"]}),
        (("/w/out/old.txt", "change", errno.EROFS), {"fs_write_allow": ["/w/out/old.txt"]}),
        (("/h/u/notes.txt", "read", errno.ENOENT), {"fs_read_allow": ["/h/u/notes.txt"]}),
        (("/h/u/lib/new", "create", errno.ENOENT), {"fs_write_allow": ["/h/u/lib"]}),
        (("/w/../h/u//notes.txt", "look", errno.ENOENT), {"fs_read_allow": ["/h/u/notes.txt"]}),
    ],
)
def test_the_narrowest_grant_is_proposed(
    refused: tuple[str, Wanted, int], expected: dict[str, Any]
) -> None:
    assert missing(setting("prog"), refused) == expected


@pytest.mark.parametrize(
    "refused",
    [
        ("/w/ws/src/x", "create", errno.EACCES),  # writable for us: the host's own bits
        ("/w/ws/missing", "read", errno.ENOENT),  # shown, and not there
        ("/nowhere/x", "read", errno.ENOENT),
        ("/proc/sys/vm/x", "write", errno.EACCES),
        ("/w/out/old.txt", "read", errno.EACCES),
        ("/w/out", "change", errno.EPERM),
        ("/tmp/x", "create", errno.ENOSPC),
        ("/tmp/missing/x", "create", errno.ENOENT),
    ],
)
def test_what_the_plan_does_not_explain_is_not_ours(refused: tuple[str, Wanted, int]) -> None:
    denials, explanation = judged(setting("prog"), refused)
    assert denials == []
    assert explanation.needs == []


def test_a_folder_of_the_hosts_tmp_is_needed_to_make_a_file_in_it() -> None:
    where = setting("prog", view=host(mine=("/tmp",)))
    refused = ("/tmp/of-host/new", "create", errno.ENOENT)
    assert missing(where, refused) == {"fs_write_allow": ["/tmp/of-host"]}


def test_a_protected_path_is_refused_for_good() -> None:
    denials, explanation = judged(setting("prog"), ("/w/ws/.git/hooks/x", "create", errno.EROFS))
    assert [d.kind for d in denials] == ["protected_path"]
    assert [n.status for n in explanation.needs] == ["refused"]
    assert explanation.missing == {}


def test_what_permission_bits_keep_from_the_owner_of_the_workspace_is_told() -> None:
    where = setting("prog", view=host(modes=()))
    spec = replace(where.plan.sandbox, run_as=RunAs(1, 1))
    dropped = replace(where, plan=replace(where.plan, sandbox=spec))
    refused: tuple[tuple[str, Wanted, int], ...] = (
        ("/w/ws/src", "write", errno.EACCES),
        ("/w/ws/new", "create", errno.EACCES),
        ("/w/ws/.envrc", "look", errno.EACCES),
    )
    for one in refused:
        (denial,), explanation = judged(dropped, one)
        assert (denial.target, denial.layer, denial.remedy) == (one[0], "namespace", None)
        assert "belongs to ada" in denial.message
        assert "(bob), as whom the command runs" in denial.message
        assert [n.status for n in explanation.needs] == ["refused"]
        assert explanation.missing == {}
        assert judged(where, one)[0] == []  # a user's own daemon: the same holds outside


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_protected_path_that_was_moved_aside_is_refused_for_good(exit_code: int) -> None:
    moved = (("/w/ws/.envrc", "/w/ws/.sandboxd-kept/1/.envrc"), ("/w/ws/.vscode", None))
    _, explanation = judged(setting("prog"), exit_code=exit_code, protected=moved)
    rows = [(n.status, n.access, n.target, "moved aside" in n.note) for n in explanation.needs]
    assert rows == [
        ("refused", "write", "/w/ws/.envrc", True), ("refused", "write", "/w/ws/.vscode", False),
    ]  # fmt: skip
    assert explanation.missing == {}


def test_a_masked_folder_is_a_secret() -> None:
    refused: tuple[str, Wanted, int] = ("/h/u/.ssh/id", "read", errno.ENOENT)
    denials, explanation = judged(setting("prog", "/h/u/.ssh/id"), refused)
    assert explanation.secrets == ["/h/u/.ssh/id"]
    assert explanation.missing == {}
    assert [(d.kind, d.remedy) for d in denials] == [("filesystem_read", None)]
    # Programs that look for it unasked do without.
    denials, explanation = judged(setting("prog"), refused)
    assert (denials, explanation.secrets) == ([], ["/h/u/.ssh/id"])


def test_ambient_settings_matter_only_when_named_or_complained_about() -> None:
    refused: tuple[str, Wanted, int] = ("/opt/tools/bin/cargo", "look", errno.ENOENT)
    assert judged(setting("prog"), refused, exit_code=0)[0] == []
    assert len(judged(setting("sh", "-c", "/opt/tools/bin/cargo"), refused)[0]) == 1
    text = b"sh: 1: cannot access '/opt/tools/bin/cargo': No such file or directory\n"
    assert len(judged(setting("prog"), refused, stderr=text)[0]) == 1


def test_a_failure_that_nothing_else_explains_proposes_what_was_read() -> None:
    refused: tuple[str, Wanted, int] = ("/run/docker.sock", "read", errno.ENOENT)
    where = setting("prog", env=(("HOME", "/h/u"),))
    assert missing(where, refused, exit_code=0) == {}
    # It opens a way to root: named, never proposed.
    assert judged(where, refused)[1].secrets == ["/run/docker.sock"]


def test_what_is_written_is_not_asked_for_twice() -> None:
    found = missing(
        setting("prog"),
        ("/h/u/lib", "look", errno.ENOENT),
        ("/h/u/lib/new", "create", errno.ENOENT),
    )
    assert found == {"fs_write_allow": ["/h/u/lib"]}


REFUSED = st.tuples(
    st.sampled_from(["/", "/etc/hosts", "/w/ws/.env", "/w/out/x", "/h/u/.ssh/id", "/none", "/run"]),
    st.sampled_from(WANTED),
    st.sampled_from([0, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EBUSY]),
)


@given(st.lists(REFUSED, max_size=8), st.integers(0, 2))
def test_under_a_plan_that_allows_everything_nothing_was_denied(
    refused: list[tuple[str, Wanted, int]], exit_code: int
) -> None:
    denials, explanation = judged(open_setting("prog"), *refused, exit_code=exit_code)
    assert denials == []
    assert explanation.missing == {}


@given(st.lists(REFUSED, max_size=8), st.integers(0, 2))
def test_no_secret_is_ever_in_a_manifest(
    refused: list[tuple[str, Wanted, int]], exit_code: int
) -> None:
    explanation = judged(setting("prog"), *refused, exit_code=exit_code)[1]
    proposed = [path for paths in explanation.missing.values() for path in paths]
    assert not any(".ssh" in path or ".env" in path or path in ("/", "/run") for path in proposed)


@pytest.mark.parametrize("wanted", ["look", "read"])
def test_what_programs_look_for_in_the_folders_above_is_optional(wanted: Wanted) -> None:
    """As npm does for package.json and node_modules. A failure that nothing else explains, and what
    the program complains about, are other cases."""
    where, refused = setting("npm", cwd="/h/u/lib"), ("/h/u/notes.txt", wanted, errno.ENOENT)
    other: tuple[str, Wanted, int] = ("/w/out/new", "create", errno.EROFS)
    told, found = judged(where, refused, other)
    assert [d.target for d in told] == ["/w/out/new"]
    assert [(need.target, need.status) for need in found.needs] == [
        ("/w/out/new", "needed"), ("/h/u/notes.txt", "optional"),
    ]  # fmt: skip
    asked = b"cat: /h/u/notes.txt: No such file or directory\n"
    assert missing(where, refused, stderr=asked) == {"fs_read_allow": ["/h/u/notes.txt"]}
