"""What the landlock backend refuses besides the policy: there are no namespaces to hide it.

Landlock rules cover files, TCP ports, abstract sockets and signals. Everything of the host that
is reached by another kind of name (a number, a key, a pid) has to be closed here.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from sandboxd.linux.seccomp.baseline import IO_URING, KEYRINGS
from sandboxd.linux.seccomp.gates import CLONE, IOCTL, OTHER_PROCESSES, UNSHARE
from sandboxd.linux.seccomp.rules import ArgumentRule, RuleGroup

_SYSTEM_V = (
    "shmget", "shmat", "shmctl", "shmdt",
    "msgget", "msgsnd", "msgrcv", "msgctl",
    "semget", "semop", "semtimedop", "semctl",
)  # fmt: skip

REFUSED: tuple[RuleGroup, ...] = (
    IO_URING,
    KEYRINGS,
    RuleGroup(
        "System V objects",
        "shared memory, queues and semaphores of the user's other programs, found by number",
        _SYSTEM_V,
        EPERM,
    ),
    RuleGroup(
        "message queues",
        "opened by name on a mount of the kernel's own, where Landlock has no rules",
        ("mq_open", "mq_unlink"),
        EPERM,
    ),
    RuleGroup(
        "file handles",
        "opens a file by number, past every path",
        ("open_by_handle_at",),
        EPERM,
    ),
    RuleGroup(
        "clone3",
        "could make a user namespace: its flags lie behind a pointer; clone is used instead",
        ("clone3",),
        ENOSYS,
    ),
)

# A nested user namespace would have capabilities; bubblewrap forbids it with --disable-userns.
GATES: tuple[ArgumentRule, ...] = (*OTHER_PROCESSES, IOCTL, CLONE, UNSHARE)
