"""Caches private to a workspace: package managers write there, never to the host's own caches.

A poisoned host cache would run later, outside the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.policy.environment import Pairs
from sandboxd.policy.plan import Grant


@dataclass(frozen=True, slots=True)
class Caches:
    grants: tuple[Grant, ...]
    env: Pairs


def for_workspace(workspace: str, root: str) -> Caches:
    return Caches((), ())
