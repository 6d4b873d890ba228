"""`python without_syscalls.py NAMES COMMAND…`: run a command on a kernel that lacks something.

NAMES, with commas: `landlock` (as before Linux 5.13), `userns` (as where namespaces are forbidden),
`mount` (as in a container without that right), `listmount` (as before Linux 6.8), `listener` (as
inside a sandbox whose own filter has a listener: no second one is given), `instances` and `watches`
(as where the user has used up those of inotify).
The filter is inherited by everything that the command starts.
"""

from __future__ import annotations

import errno
import os
import sys

import pyseccomp

LANDLOCK_CALLS = (444, 445, 446)
MOUNT_LISTING_CALLS = (457, 458)
CLONE_NEWUSER = 0x1000_0000
SET_MODE_FILTER, NEW_LISTENER = 1, 8


def main() -> None:
    names, *command = sys.argv[1:]
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    if "landlock" in names.split(","):
        for number in LANDLOCK_CALLS:
            program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), number)
    if "userns" in names.split(","):
        flag = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
        for call in ("unshare", "clone"):
            program.add_rule(pyseccomp.ERRNO(errno.EPERM), call, flag)
        program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    if "mount" in names.split(","):
        program.add_rule(pyseccomp.ERRNO(errno.EPERM), "mount")
    if "listmount" in names.split(","):
        for number in MOUNT_LISTING_CALLS:
            program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), number)
    if "listener" in names.split(","):
        program.add_rule(
            pyseccomp.ERRNO(errno.EBUSY), "seccomp",
            pyseccomp.Arg(0, pyseccomp.EQ, SET_MODE_FILTER),
            pyseccomp.Arg(1, pyseccomp.MASKED_EQ, NEW_LISTENER, NEW_LISTENER),
        )  # fmt: skip
    if "instances" in names.split(","):
        for call in ("inotify_init", "inotify_init1"):
            program.add_rule(pyseccomp.ERRNO(errno.EMFILE), call)
    if "watches" in names.split(","):
        program.add_rule(pyseccomp.ERRNO(errno.ENOSPC), "inotify_add_watch")
    program.load()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
