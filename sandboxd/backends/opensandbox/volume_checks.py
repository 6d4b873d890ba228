"""Whether the folders that a sandbox has are the ones that were granted.

The server mounts by path, after the plan was made: a name may lead to another folder by then. So
the sandbox is asked, before any command runs, which inodes it has.
"""

from __future__ import annotations

import os
import sys

from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.policy.plan import Identity, SandboxSpec
from sandboxd_proto.errors import PathDenied, PolicyNotSupported, SandboxUnavailable


def are_unchanged(spec: SandboxSpec) -> bool:
    """Whether the granted paths are, on this machine, what they were when they were planned."""
    try:
        return all(Identity.of(os.lstat(one.path)) == one.identity for one in spec.grants)
    except OSError:
        return False


async def check_volumes(execd: Execd, spec: SandboxSpec) -> None:
    """PathDenied for a folder that is another one; refused where the image cannot tell."""
    if not spec.grants:
        return
    paths = [grant.path for grant in spec.grants]
    code, said, _ = await execd.capture(["stat", "-c", "%d:%i", *paths])
    if code != 0:
        raise SandboxUnavailable(
            "the sandbox cannot tell which folders it has, so nothing was run in it",
            remedy="the image needs the program stat (coreutils or busybox)",
        )
    wanted = [f"{grant.identity.device}:{grant.identity.inode}" for grant in spec.grants]
    for path, want, found in zip(paths, wanted, [*said.split(), *[""] * len(paths)], strict=False):
        if want != found:
            raise PathDenied(
                f"{path} is another folder on the server than on this machine",
                field="manifest",
                remedy="host_volumes is for a server that runs on this machine",
            )
    if any(grant.access == "write" for grant in spec.grants):
        await _check_user(execd, spec)


async def _check_user(execd: Execd, spec: SandboxSpec) -> None:
    """Files are written as the image's user. As root it could leave set-uid files of root."""
    own_uid = 0
    if sys.platform != "win32":
        own_uid = os.getuid()
    owner = spec.run_as.uid if spec.run_as is not None else own_uid
    code, said, _ = await execd.capture(["id", "-u"])
    if code != 0 or said.strip() != str(owner) or owner == 0:
        raise PolicyNotSupported(
            f"the image's commands run as uid {said.strip() or '?'}, and folders of uid {owner} "
            "would be written",
            field="fs_write_allow",
            remedy="use an image whose USER is the owner of the folder, and not root",
        )
