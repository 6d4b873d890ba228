"""Becoming an unprivileged user, for tests that run as root."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def unprivileged_user() -> pwd.struct_passwd:
    """The user that `make test` made, else the user nobody."""
    for name in (os.environ.get("SANDBOXD_TEST_USER"), "sandboxd-test", "nobody"):
        if name:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
    raise LookupError("there is no unprivileged user here")


def as_user(user: pwd.struct_passwd) -> list[str]:
    """The words to put before a command so that it runs as `user`. Needs root."""
    ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)]
    return ["setpriv", *ids, "--clear-groups", "--no-new-privs", "--"]


def open_to_others(folder: Path) -> None:
    """pytest's folders are closed to other users, who have to get here."""
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
