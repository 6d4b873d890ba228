"""What an administrator has to prepare, by the access lists as they are."""

from __future__ import annotations

from sandboxd.backends.appcontainer.probe import prepared
from sandboxd.backends.interface import Available, Unavailable
from sandboxd.windows.app_containers.packages import ALL_PACKAGES, ALL_RESTRICTED_PACKAGES
from sandboxd.windows.app_containers.preparation import (
    NUL_MASK,
    ROOT_MASK,
    Ace,
    is_granted,
    missing,
)

BOTH = (ALL_PACKAGES, ALL_RESTRICTED_PACKAGES)
ROOT = [Ace(True, sid, ROOT_MASK) for sid in BOTH]
NUL = [Ace(True, sid, NUL_MASK) for sid in BOTH]


def test_a_prepared_machine_lacks_nothing() -> None:
    assert missing("C:\\", ROOT, NUL) == []


def test_each_missing_entry_is_named_with_its_command() -> None:
    (root,) = missing("C:\\", ROOT[:1], NUL)
    assert root.fix == (
        'icacls C:\\ /grant "*S-1-15-2-1:(S,RC,RA,REA)" "*S-1-15-2-2:(S,RC,RA,REA)"'
    )
    (nul,) = missing("C:\\", ROOT, NUL[1:])
    assert "prepare_nul" in nul.fix
    assert len(missing("C:\\", None, None)) == 2


def test_entries_that_do_not_count() -> None:
    assert not is_granted([Ace(True, sid, ROOT_MASK, inherit_only=True) for sid in BOTH], ROOT_MASK)
    assert not is_granted([Ace(True, sid, ROOT_MASK & ~0x80) for sid in BOTH], ROOT_MASK)
    assert not is_granted([Ace(False, ALL_PACKAGES, 0x80), *ROOT], ROOT_MASK)
    assert is_granted([*ROOT, Ace(False, ALL_PACKAGES, 0x80)], ROOT_MASK)


def test_the_probe_tells_what_is_missing() -> None:
    lacking = missing("C:\\", None, NUL)
    refused = prepared(Unavailable("no", "do this"), lacking, elevated=False)
    assert isinstance(refused, Unavailable)
    assert refused.reason.startswith("no; AppContainers may not look at C:")
    assert "icacls" in refused.remedy
    assert prepared(Unavailable("no", "do this"), [], elevated=False) == Unavailable(
        "no", "do this"
    )
    works = prepared(Available(("x",), ("w",)), lacking, elevated=True)
    assert isinstance(works, Available)
    assert works.layers == ("x",)
    assert [text.split(":")[0] for text in works.warnings] == [
        "w", "AppContainers may not look at C", "the daemon runs with an administrator's rights, "
        "which its config permits",
    ]  # fmt: skip
