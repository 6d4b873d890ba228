"""Sandboxes that are clones: one bwrap for each spec makes the mounts, once.

The mounts that sandboxes of one spec share are read-only or the host's own. The others are made
afresh in each clone: `fresh` lists them. What is mounted inside one of these has to be moved there.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from sandboxd import event_loop
from sandboxd.backends.bubblewrap.arguments import MountSources, folders_in_tmp
from sandboxd.linux.init_client.messages import Setup
from sandboxd.linux.init_client.template import Template
from sandboxd.policy.mounts.mount_plan import MountKind, MountPlan
from sandboxd.policy.paths.within import is_below
from sandboxd.policy.plan import SandboxSpec

MOST: Final = 64
IDLE_S: Final = 60.0
SWEEP_S: Final = 15.0
END_S: Final = 2.0


def can_clone(spec: SandboxSpec, layout: MountPlan) -> bool:
    """Not where a gate serves the network namespace, nor with a symlink in a private folder."""
    private = [path for _, _, path in _fresh(layout, MountSources("", "", "", ""))]
    links = (place.path for place in layout.places if place.kind is MountKind.LINK)
    inside = any(is_below(link, folder) for link in links for folder in private)
    return spec.network.kind != "allow_hosts" and not inside


def template_arguments(
    spec: SandboxSpec, layout: MountPlan, around: MountSources, *, root_inside: bool
) -> list[str]:
    """The init's own arguments after `--template FD` (init/template.c)."""
    uid, gid = os.getuid(), os.getgid()
    if spec.run_as is not None:
        uid, gid = spec.run_as.uid, spec.run_as.gid
    own_network = spec.network.kind != "inherit"
    flags = ("n" if own_network else "") + ("k" if root_inside else "")
    fresh = _fresh(layout, around)
    moved = _moved(layout, [path for _, _, path in fresh])
    return [str(uid), str(gid), flags, *(word for one in fresh for word in one), "--", *moved]


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
    moved: list[str] = []
    for place in layout.places:  # sorted by depth
        path = place.path
        if path in fresh or not any(is_below(path, folder) for folder in fresh):
            continue
        if not any(is_below(path, outer) for outer in moved):
            moved.append(path)
    return moved


@dataclass(slots=True)
class SpecTemplate:
    """A template with what a clone of it needs. `verify`: whether a clone would be as planned."""

    template: Template
    setup: Setup
    verify: Callable[[], bool]
    used_at: float


class Templates:
    """The templates in use, by spec. One that is not used any more ends; its sandboxes go on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SandboxSpec, SpecTemplate] = OrderedDict()
        self._timer: event_loop.TimerHandle | None = None

    def get(self, spec: SandboxSpec) -> SpecTemplate | None:
        found = self._kept.get(spec)
        if found is None:
            return None
        if not (found.template.is_alive and found.verify()):
            self.drop(spec)
            return None
        found.used_at = time.monotonic()
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
        self._timer = None
        now = time.monotonic()
        for spec, kept in list(self._kept.items()):
            if not kept.template.is_alive or now - kept.used_at > IDLE_S:
                self.drop(spec)
        if self._kept:
            self._timer = event_loop.call_later(SWEEP_S, self._sweep)

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
