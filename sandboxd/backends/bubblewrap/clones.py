"""Sandboxes that are clones: one bwrap for each spec makes the mounts, once.

The mounts that sandboxes of one spec share are read-only or the host's own. The others are made
afresh in each clone: `fresh` lists them. What is mounted inside one of these has to be moved there.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import anyio

from sandboxd import event_loop
from sandboxd.backends.bubblewrap.arguments import MountSources, folders_in_tmp
from sandboxd.linux.host_mounts import MountWatch
from sandboxd.linux.init_client.launch import Launch
from sandboxd.linux.init_client.template import Template
from sandboxd.linux.openat import is_unchanged
from sandboxd.policy.mounts.mount_plan import MountKind, MountPlan
from sandboxd.policy.paths.within import folders_above, is_below
from sandboxd.policy.plan import SandboxSpec

log = logging.getLogger(__name__)
MOST: Final = 48
MOST_MOVED: Final = 512  # MOVED_MAX in init/template.h
MOST_FAILURES: Final = 3  # in a row
FAILURE_S: Final = 600.0
IDLE_S: Final = 60.0
MOST_AGE_S: Final = 300.0
SWEEP_S: Final = 1.0
SWEEP_MOST_S: Final = 0.01  # of one sweep: the table of mounts may be long, and change all the time
END_S: Final = 2.0


@lru_cache(maxsize=48)
def can_clone(spec: SandboxSpec, layout: MountPlan) -> bool:
    """Not where a gate serves the network namespace, nor with a symlink in a private folder, nor
    with more mounts in such folders than a template moves."""
    around = MountSources("", "", "", "", shared_tmp=spec.shared_tmp)
    private = [path for _, _, path in _fresh(layout, around)]
    links = (place.path for place in layout.places if place.kind is MountKind.LINK)
    inside = any(is_below(link, folder) for link in links for folder in private)
    few = len(_moved(layout, private)) <= MOST_MOVED
    return spec.network.kind != "allow_hosts" and not inside and few


def template_arguments(flags: str, layout: MountPlan, around: MountSources) -> list[str]:
    """The init's own arguments after `--template FD` (init/template.c). `flags`: n for a network
    namespace of its own, k to cover the kernel's files in /proc."""
    fresh = _fresh(layout, around)
    moved = _moved(layout, [path for _, _, path in fresh])
    return [flags, *(word for one in fresh for word in one), "--", *moved]


def _fresh(layout: MountPlan, around: MountSources) -> list[tuple[str, str, str]]:
    """(size, mode, path) of each file system that a command may write and that ends with it."""
    found = []
    for place in layout.places:
        if place.kind is not MountKind.PRIVATE:
            continue
        if place.path == "/tmp" and around.shared_tmp is not None:
            found += [(str(around.tmp_bytes), "755", folder) for folder in folders_in_tmp(layout)]
            continue
        size = around.shm_bytes if place.path == "/dev/shm" else around.tmp_bytes
        found.append((str(size), "1777", place.path))
    return found


def _moved(layout: MountPlan, fresh: list[str]) -> list[str]:
    """The outermost mounts inside a fresh one: what is mounted in them moves along."""
    moved: dict[str, None] = {}
    for place in layout.places:  # sorted by depth
        above = set(folders_above(place.path))
        if place.path not in fresh and not above.isdisjoint(fresh) and above.isdisjoint(moved):
            moved[place.path] = None
    return list(moved)


class CloneFailures:
    """Where clones fail, each sandbox gets a bwrap of its own: for the spec that they fail for, and
    for all of them where none ever worked. A spec is tried again after a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ever_worked = False
        self._without_success = 0
        self._of: dict[SandboxSpec, tuple[int, float]] = {}  # in a row, and when the last one was

    def may_try(self, spec: SandboxSpec) -> bool:
        if not self._ever_worked and self._without_success >= MOST_FAILURES:
            return False
        count, when = self._of.get(spec, (0, 0.0))
        return count < MOST_FAILURES or self._clock() - when > FAILURE_S

    def worked(self, spec: SandboxSpec) -> None:
        self._ever_worked = True
        self._of.pop(spec, None)

    def failed(self, spec: SandboxSpec, why: object) -> None:
        """When a bwrap did what the clone could not."""
        self._without_success += 1
        count = self._of.pop(spec, (0, 0.0))[0] + 1
        while len(self._of) >= MOST:
            del self._of[next(iter(self._of))]
        self._of[spec] = count, self._clock()
        if count == MOST_FAILURES or not (self._ever_worked or self.may_try(spec)):
            whose = "of this plan" if self._ever_worked else "here"
            log.warning("no more clones %s, each sandbox gets its own bwrap: %s", whose, why)


class Verification:
    """Whether what is made now would still be as what was made before. `facts`: of the host."""

    def __init__(self, mounts: MountWatch, facts: Callable[[], object]) -> None:
        self.mounts = mounts
        self._facts = facts
        self._then = facts()

    def __call__(self) -> bool:
        return self.mounts.holds() and self._facts() == self._then

    def changed(self) -> bool:
        """Whether it is known to be different."""
        return self.mounts.changed() or self._facts() != self._then


@dataclass(slots=True)
class SpecTemplate:
    """A template with how it is cloned: with a ruleset besides. `verify`: whether a clone would be
    as planned."""

    template: Template
    launch: Launch
    verify: Verification
    made_at: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)
    _settled: bool = False

    def settle(self) -> bool:
        """When a clone is up. False: a mount of the host that came and went while bwrap mounted may
        have stayed in the template, whose mounts are its own from then on."""
        self._settled = self._settled or not self.verify.mounts.stirred()
        return self._settled

    def is_usable(self, now: float) -> bool:
        """If the host is still the same."""
        return self.template.is_alive and now - self.made_at < MOST_AGE_S

    def is_good(self, now: float) -> bool:
        return self.is_usable(now) and self.verify.mounts.holds()


class Templates:
    """The templates in use, by spec. One that is not used any more ends; its sandboxes go on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SandboxSpec, SpecTemplate] = OrderedDict()
        self._timer: event_loop.Timer | None = None

    def __contains__(self, spec: SandboxSpec) -> bool:
        return spec in self._kept

    def get(self, spec: SandboxSpec) -> SpecTemplate | None:
        found, now = self._kept.get(spec), time.monotonic()
        if found is None:
            return None
        if not (found.is_usable(now) and found.verify()):
            self.drop(spec)
            return None
        found.used_at = now
        self._kept.move_to_end(spec)
        return found

    def add(self, spec: SandboxSpec, kept: SpecTemplate) -> None:
        self.drop(spec)
        self._kept[spec] = kept
        while len(self._kept) > MOST:
            self.drop(next(iter(self._kept)))
        if self._timer is None:
            self._timer = event_loop.call_later(SWEEP_S, self._sweep)

    def drop(self, spec: SandboxSpec) -> None:
        kept = self._kept.pop(spec, None)
        if kept is not None:
            kept.template.close()

    def _sweep(self) -> None:
        """Also what the host has unmounted, or removed with a session, is not kept in use."""
        now = time.monotonic()
        for spec, kept in list(self._kept.items()):
            tmp = spec.shared_tmp
            gone = tmp is not None and not is_unchanged(tmp.path, tmp.identity)
            if gone or now - kept.used_at > IDLE_S or not kept.is_good(now):
                self.drop(spec)
            if time.monotonic() - now > SWEEP_MOST_S:
                break  # each is looked at again before it is used
        self._timer = event_loop.call_later(SWEEP_S, self._sweep) if self._kept else None

    async def close(self) -> None:
        """When no sandbox is left: end all processes."""
        if self._timer is not None:
            self._timer.cancel()
        ending = [kept.template for kept in self._kept.values()]
        for spec in list(self._kept):
            self.drop(spec)
        with anyio.move_on_after(END_S, shield=True):
            for template in ending:
                await template.ended()
            return
        for template in ending:
            template.kill()
