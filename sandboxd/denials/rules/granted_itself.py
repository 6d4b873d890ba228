"""A path that is granted itself, and not by a folder around it: a mount, or a rule for it alone.

It can be written in place. Its entry in the folder above cannot change, whatever may be written
there: renaming over it, which is how git and many editors save, fails.
"""

from __future__ import annotations

from sandboxd.denials.context import Setting
from sandboxd.denials.rules.path_status import PathStatus
from sandboxd.denials.text.verbs import Operation
from sandboxd.policy.display_names import named
from sandboxd.policy.mounts.mount_plan import MountKind


def changes(at: PathStatus, did: Operation) -> bool:
    """Whether the entry of such a path was to change."""
    itself = at.place.kind == MountKind.WRITE and at.place.path == at.path
    return itself and did.direction == "write" and did.in_folder and did.name != "mkdir"


def why_not(setting: Setting, at: PathStatus, did: Operation) -> str:
    what = "in fs_write_allow itself, and such a file can only be written in place"
    if at.path == setting.plan.workspace:
        what = "the workspace, of which only the content can change"
    elif setting.host.is_dir(at.path):
        what = "in fs_write_allow itself, and of such a folder only the content can change"
    return f"{named(at.path)} could not be replaced, renamed or removed ({did.name}): it is {what}"
