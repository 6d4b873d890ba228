"""The Landlock domain of a sandbox: a second barrier behind the mounts.

Mounts decide what is visible. The domain forbids every write outside the writable places (also
below /proc, which closes core_pattern for root), new mounts, and signals and abstract sockets to
the outside.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandboxd.linux.init_client.messages import LandlockRule
from sandboxd.linux.landlock import (
    Ruleset,
    RulesetSpec,
    access_dev,
    access_read,
    access_write,
    build_ruleset,
)
from sandboxd.linux.landlock.access import on_file
from sandboxd.policy.mounts.mount_plan import MountKind, MountPlan

_DOMAIN = RulesetSpec(scope_abstract=True, scope_signal=True)


def ruleset(abi: int) -> Ruleset:
    return build_ruleset(_DOMAIN, abi)


def rules(layout: MountPlan, abi: int) -> list[LandlockRule]:
    """For the init, which adds them to the paths inside after everything is mounted."""
    return list(_rules(layout, abi))


def _rules(layout: MountPlan, abi: int) -> Iterator[LandlockRule]:
    yield LandlockRule(path="/", access=access_read(abi))
    for place in layout.places:
        if place.kind in (MountKind.PRIVATE, MountKind.WRITE):
            rights = access_write(abi)
            yield LandlockRule(path=place.path, access=rights if place.is_dir else on_file(rights))
        elif place.kind is MountKind.DEV:
            yield LandlockRule(path=place.path, access=access_dev(abi))
