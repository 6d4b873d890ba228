"""Why bwrap could not bring a sandbox up, and the exact fix, from facts of this host."""

from __future__ import annotations

import os

from sandboxd.backends.interface import Unavailable

NOT_INSTALLED = Unavailable(
    "bwrap is not installed",
    "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap or "
    "pacman -S bubblewrap; or set SANDBOXD_BACKEND=docker",
)

APPARMOR_PROFILE = """\
# /etc/apparmor.d/bwrap, then: apparmor_parser -r /etc/apparmor.d/bwrap
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}
"""


def _sysctl(name: str) -> int | None:
    try:
        with open(os.path.join("/proc/sys", *name.split(".")), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def explain(said: str) -> Unavailable:
    """`said`: what bwrap wrote to stderr, or what the init reported."""
    said = said.strip() or "bwrap ended without a word"
    if _sysctl("kernel.apparmor_restrict_unprivileged_userns") == 1 and _is_namespace(said):
        return Unavailable(
            f"bwrap cannot create a user namespace: {said}; "
            "kernel.apparmor_restrict_unprivileged_userns is 1",
            "install this AppArmor profile:\n" + APPARMOR_PROFILE,
        )
    if _sysctl("user.max_user_namespaces") == 0:
        return Unavailable(
            f"bwrap cannot create a user namespace: {said}; user.max_user_namespaces is 0",
            "run: sysctl -w user.max_user_namespaces=15000",
        )
    if _sysctl("kernel.unprivileged_userns_clone") == 0 and os.getuid() != 0:
        return Unavailable(
            f"bwrap cannot create a user namespace: {said}; kernel.unprivileged_userns_clone is 0",
            "run: sysctl -w kernel.unprivileged_userns_clone=1",
        )
    return _from_words(said)


def _is_namespace(said: str) -> bool:
    return any(word in said for word in ("namespace", "uid map", "setting up", "loopback"))


def _from_words(said: str) -> Unavailable:
    if "setuid" in said or "Unexpected capabilities" in said:
        return Unavailable(
            f"bwrap is setuid and cannot be used under no_new_privs: {said}",
            "remove the setuid bit (chmod u-s $(command -v bwrap)) and allow user namespaces",
        )
    if "proc" in said and "mount" in said.lower():
        return Unavailable(
            f"this container does not allow bwrap to mount /proc: {said}",
            "start the container with a less strict profile (--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined), "
            "or use the landlock backend",
        )
    if _is_namespace(said):
        return Unavailable(
            f"bwrap cannot create its namespaces: {said}",
            "allow user namespaces for this user or container "
            "(user.max_user_namespaces, the container's seccomp profile), "
            "or use the landlock or docker backend",
        )
    return Unavailable(
        f"bwrap failed: {said}", "run `sandboxctl doctor` for the facts of this host"
    )
