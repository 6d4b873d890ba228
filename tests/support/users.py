"""Becoming an unprivileged user, for tests that run as root."""

from __future__ import annotations

import os
import pwd


def unprivileged_user() -> pwd.struct_passwd:
    """The one that `make test` made, else nobody."""
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
