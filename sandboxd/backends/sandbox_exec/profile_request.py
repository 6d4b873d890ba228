"""A plan's sandbox as a request for a profile. The only looks at the host are spellings on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import msgspec

from sandboxd.macos.profile import Access, Profile, ProfileRequest, UnsafePath, profile
from sandboxd.policy.plan import Grant, Protected, SandboxSpec
from sandboxd_proto.errors import PathDenied, PolicyNotSupported

# The whole command line and environment may have 1 MiB on macOS; the command's own come on top.
MOST_BYTES = 512 * 1024


class OwnParts(msgspec.Struct, frozen=True):
    """What a profile needs beside the plan. `folder`: the sandbox's own for temporary files."""

    tag: str
    folder: str
    launcher: str
    homes: tuple[str, ...] = ()
    own_home: str = ""
    proxy_port: int | None = None
    terminal: str | None = None


def profile_for(spec: SandboxSpec, own: OwnParts, on_disk: Callable[[str], str]) -> Profile:
    """PathDenied for a path that no profile can hold, PolicyNotSupported for too many of them."""
    try:
        made = profile(_request(spec, own, on_disk))
    except UnsafePath as error:
        raise PathDenied(
            f"{error}", remedy="rename it: NUL, line breaks and bytes that are not UTF-8 cannot "
            "be part of a path here",
        ) from None  # fmt: skip
    size = sum(len(word.encode()) + 1 for word in made.arguments())
    if size > MOST_BYTES:
        raise PolicyNotSupported(
            f"the sandbox profile would have {size} bytes, and {MOST_BYTES} can be passed on",
            field="fs_deny", remedy="allow or deny fewer single paths",
        )  # fmt: skip
    return made


def _request(spec: SandboxSpec, own: OwnParts, on_disk: Callable[[str], str]) -> ProfileRequest:
    # Naming / shows the machine and the own home folder; others' homes, devices and temporary
    # files stay hidden.
    whole = any(grant.path == "/" for grant in spec.grants)
    granted = [grant for grant in spec.grants if grant.origin != "pin" and grant.path != "/"]
    grants: list[tuple[str, Access]] = [(on_disk(grant.path), grant.access) for grant in granted]
    grants.append((own.folder, "write"))
    if whole and own.own_home:
        grants.append((own.own_home, "read"))
    kept = [one for one in spec.protected if is_denied(one)]
    return ProfileRequest(
        tag=own.tag,
        base="host" if whole else spec.base,
        grants=tuple(grants),
        masks=tuple(on_disk(mask.path) for mask in spec.masks),
        protected=tuple((on_disk(one.path), on_disk(one.root)) for one in kept),
        absent=frozenset(on_disk(one.path) for one in kept if not one.present),
        programs=(on_disk(own.launcher),),
        sockets=tuple(on_disk(grant.path) for grant in granted if _is_socket(grant)),
        homes=own.homes,
        network=spec.network.kind,
        proxy_port=own.proxy_port,
        terminal=own.terminal,
    )


def is_denied(one: Protected) -> bool:
    """The profile denies also what does not exist yet. What may come into being under conditions
    (a new repository, a rebase) is looked at after the command."""
    return one.present or one.rule == "absent"


def _is_socket(grant: Grant) -> bool:
    """A granted socket may be connected to; a socket inside a readable folder may not."""
    if grant.identity.is_dir:
        return False
    try:
        return stat.S_ISSOCK(os.stat(grant.path).st_mode)
    except OSError:
        return False
