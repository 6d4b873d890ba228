"""Which access-control entries a sandbox gets, decided by a small model of Windows' own check."""

from __future__ import annotations

import posixpath

from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Grant, Identity, Mask, NetworkRule, Protected, SandboxSpec
from sandboxd.windows.access_lists.acl_plan import (
    ALL,
    DELETE,
    INHERITED,
    READ,
    WRITE,
    WRITE_DAC,
    WRITE_OWNER,
    AclPlan,
    acl_plan,
)

FOLDER = Identity(1, 2, True)
FILE_WRITE_DATA = 0x2
FILE_READ_DATA = 0x1
WORKSPACE = "/C:/work"


def spec(**more: object) -> SandboxSpec:
    grants = (Grant(WORKSPACE, "write", FOLDER), Grant("/C:/lib", "read", FOLDER))
    return SandboxSpec(base="minimal", network=NetworkRule("deny"), grants=grants, **more)  # type: ignore[arg-type]


def permits(plan: AclPlan, path: str, wanted: int) -> bool:
    """Explicit entries before inherited ones, nearer before farther, denials before grants."""
    left, at = wanted, path
    while True:
        here = [e for e in plan.entries if e.path == at and e.sid in plan.capabilities]
        here = [e for e in here if at == path or e.inheritance == INHERITED]
        if any(e.kind == "deny" and e.mask & left for e in here):
            return False
        for entry in here:
            if entry.kind == "allow":
                left &= ~entry.mask
        if not left:
            return True
        if at == "/":
            return False
        at = posixpath.dirname(at)


def test_a_command_reads_and_writes_what_was_granted_and_nothing_else() -> None:
    plan = acl_plan(spec())
    assert permits(plan, "/C:/work/a/b", FILE_READ_DATA | FILE_WRITE_DATA)
    assert permits(plan, "/C:/lib/x", FILE_READ_DATA)
    assert not permits(plan, "/C:/lib/x", FILE_WRITE_DATA)
    assert not permits(plan, "/C:/workother", FILE_READ_DATA)
    assert not permits(plan, "/C:/Users/me/secret", FILE_READ_DATA)


def test_no_grant_lets_a_command_change_access_lists() -> None:
    plan = acl_plan(spec())
    for entry in plan.entries:
        if entry.kind == "allow":
            assert not entry.mask & (WRITE_DAC | WRITE_OWNER | 0x40)
    assert WRITE & ~ALL == 0
    assert READ & (FILE_WRITE_DATA | DELETE) == 0


def test_a_protected_path_is_read_only_and_cannot_be_moved_away() -> None:
    kept = Protected("/C:/work/.git/hooks", True, True)
    plan = acl_plan(spec(protected=(kept,)))
    assert permits(plan, "/C:/work/.git/hooks/pre-commit", FILE_READ_DATA)
    assert not permits(plan, "/C:/work/.git/hooks/pre-commit", FILE_WRITE_DATA)
    assert not permits(plan, "/C:/work/.git/hooks", DELETE)
    assert not permits(plan, "/C:/work/.git", DELETE)
    assert permits(plan, "/C:/work/.git/index", FILE_WRITE_DATA | DELETE)


def test_a_mask_hides_everything_below() -> None:
    plan = acl_plan(spec(masks=(Mask("/C:/work/.env", False), Mask("/C:/lib/keys", True))))
    for path in ("/C:/work/.env", "/C:/lib/keys", "/C:/lib/keys/a/b"):
        assert not permits(plan, path, FILE_READ_DATA)
        assert not permits(plan, path, FILE_WRITE_DATA)
    assert permits(plan, "/C:/work/other", FILE_READ_DATA)


def test_a_read_only_grant_inside_a_writable_one_stays_read_only() -> None:
    inner = Grant("/C:/work/vendor", "read", FOLDER)
    plan = acl_plan(
        SandboxSpec(
            base="minimal", network=NetworkRule("deny"),
            grants=(Grant(WORKSPACE, "write", FOLDER), inner),
        )
    )  # fmt: skip
    assert permits(plan, "/C:/work/vendor/x", FILE_READ_DATA)
    assert not permits(plan, "/C:/work/vendor/x", FILE_WRITE_DATA)


def test_every_entry_lies_in_a_grant_and_belongs_to_the_plans_capabilities() -> None:
    plan = acl_plan(spec(masks=(Mask("/C:/Users/me/.ssh", True), Mask("/C:/work/.env", False))))
    for entry in plan.entries:
        assert within(entry.path, WORKSPACE) or within(entry.path, "/C:/lib")
        assert entry.sid in plan.capabilities
