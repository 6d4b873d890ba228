"""Why Landlock cannot bring a sandbox up here, and what to do about it."""

from __future__ import annotations

from errno import EOPNOTSUPP, EPERM

from sandboxd.backends.interface import Unavailable
from sandboxd.linux.landlock import syscalls

NOT_CONFINED = Unavailable(
    "Landlock took the rules and a command could write outside them all the same",
    "report this with the output of `uname -a`; use the bubblewrap or docker backend",
)


def why_missing() -> Unavailable:
    """From what the kernel answers when it is asked for its Landlock version."""
    try:
        syscalls.abi_version()
    except OSError as error:
        if error.errno == EOPNOTSUPP:
            return Unavailable(
                "Landlock is built into this kernel and switched off",
                "add landlock to the list of the kernel's lsm= parameter and reboot",
            )
        if error.errno == EPERM:
            return Unavailable(
                "a system call filter (of a container) denies the Landlock calls",
                "start the container with a profile that allows landlock_create_ruleset, "
                "landlock_add_rule and landlock_restrict_self",
            )
        return Unavailable(
            "this kernel has no Landlock, or a system call filter hides it",
            "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK; in a container, a profile "
            "that allows the landlock calls",
        )
    return Unavailable("Landlock was not available a moment ago", "try again")


def explain_failure(said: str) -> Unavailable:
    return Unavailable(
        f"Landlock could not confine a command: {said or 'the init ended without a word'}",
        "run `sandboxctl doctor` for the facts of this host",
    )
