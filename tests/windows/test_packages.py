"""SIDs are worked out as Windows does: compared with published ones."""

from __future__ import annotations

import pytest

from sandboxd.windows.app_containers.packages import (
    capability_sid,
    grant_capability,
    package_sid,
    profile_name,
)

# Microsoft Edge's package, and the capability lpacCom.
EDGE = "microsoft.microsoftedge_8wekyb3d8bbwe"
EDGE_SID = "S-1-15-2-3624051433-2125758914-1423191267-1740899205-1073925389-3782572162-737981194"
LPAC_COM_SID = (
    "S-1-15-3-1024-2405443489-874036122-4286035555-1823921565-1746547431-2453885448-3625952902-"
    "991631256"
)


def test_a_published_package() -> None:
    assert package_sid(EDGE) == EDGE_SID
    assert package_sid(EDGE.upper()) == EDGE_SID


def test_a_published_capability() -> None:
    assert capability_sid("lpacCom") == LPAC_COM_SID


def test_grants_of_different_folders_and_accesses_never_share_a_capability() -> None:
    sids = {
        grant_capability(path, access)
        for path in ("/C:/a", "/C:/b", "/C:/a/b") for access in ("read", "write")
    }  # fmt: skip
    assert len(sids) == 6
    assert grant_capability("/C:/A", "read") == grant_capability("/C:/a", "read")


def test_the_name_of_a_profile_is_short_and_plain() -> None:
    assert profile_name("0123") == "sandboxd.0123"
    for bad in ("x" * 60, "a b", "ü"):
        with pytest.raises(ValueError, match="profile"):
            profile_name(bad)
