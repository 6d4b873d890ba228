"""`python without_syscalls.py NAMES COMMAND…`: run a command on a kernel that lacks something.

NAMES, with commas: `landlock` (as before Linux 5.13), `userns` (as where namespaces are forbidden),
`mount` (as in a container without that right).
The filter is inherited by everything that the command starts.
"""

from __future__ import annotations

import errno
import os
import sys

import pyseccomp

LANDLOCK_CALLS = (444, 445, 446)
CLONE_NEWUSER = 0x1000_0000


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
    program.load()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
