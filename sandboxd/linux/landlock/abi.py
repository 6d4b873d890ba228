"""What each Landlock ABI adds, in the words that `status` and `enforcement` show."""

from __future__ import annotations

from errno import ENOSYS, EOPNOTSUPP, EPERM

import msgspec

from sandboxd.linux.landlock import syscalls

# ABI 7 adds audit flags only: nothing that confines.
NEWEST_KNOWN_ABI = 7

ABI_REFER = 2
ABI_TRUNCATE = 3
ABI_NET = 4
ABI_IOCTL_DEV = 5
ABI_SCOPE = 6


class Feature(msgspec.Struct, frozen=True):
    """One thing that Landlock confines, from `abi` on (`kernel` is the first release with it)."""

    name: str
    abi: int
    kernel: str
    layer: str
    without: str


FEATURES: tuple[Feature, ...] = (
    Feature(
        "files", 1, "5.13",
        "reading, writing, making, removing and executing files",
        "files are not covered",
    ),
    Feature(
        "refer", ABI_REFER, "5.19",
        "moving and linking files between folders",
        "moving a file to another folder is always refused",
    ),
    Feature(
        "truncate", ABI_TRUNCATE, "6.2",
        "truncating files",
        "truncate is not covered",
    ),
    Feature(
        "tcp", ABI_NET, "6.7",
        "TCP bind and connect",
        "TCP ports are not covered",
    ),
    Feature(
        "ioctl_dev", ABI_IOCTL_DEV, "6.10",
        "device ioctls",
        "device ioctls are not covered",
    ),
    Feature(
        "abstract", ABI_SCOPE, "6.12",
        "abstract sockets outside the sandbox",
        "abstract sockets outside the sandbox are not covered",
    ),
    Feature(
        "signal", ABI_SCOPE, "6.12",
        "signals to processes outside the sandbox",
        "signals to processes outside the sandbox are not covered",
    ),
)  # fmt: skip


def kernel_abi() -> int:
    """This kernel's ABI, 0 when it has no Landlock. Asked afresh each time (a microsecond).

    EPERM is what a container's seccomp profile answers for a call that it does not know.
    """
    try:
        return syscalls.abi_version()
    except OSError as error:
        if error.errno in (ENOSYS, EOPNOTSUPP, EPERM):
            return 0
        raise


def layers(abi: int) -> tuple[str, ...]:
    """What an ABI confines, one phrase for each feature."""
    return tuple(feature.layer for feature in FEATURES if feature.abi <= abi)


def missing_features(abi: int, *, names: frozenset[str] | None = None) -> tuple[str, ...]:
    """One sentence for each feature (of `names`, or all) that this ABI lacks."""
    if abi <= 0:
        return ("Landlock is not available in this kernel (5.13 or newer, lsm=landlock)",)
    return tuple(
        f"{feature.without} (needs Landlock ABI {feature.abi}, Linux {feature.kernel}; "
        f"this kernel has ABI {abi})"
        for feature in FEATURES
        if feature.abi > abi and (names is None or feature.name in names)
    )
