"""Which folders are the system's on Linux."""

from __future__ import annotations

# Programs and libraries: the read-only base of a sandbox.
PROGRAMS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    "/nix/store",  # Nix keeps every program here
    "/opt",  # vendor packages
)  # fmt: skip
# File systems of the kernel.
KERNEL = ("/proc", "/sys", "/dev")
# Settings and state of the machine. Programs look here and continue without what is missing.
AMBIENT = ("/etc", "/var", "/run", "/boot", *KERNEL)
# Any command may read these.
READABLE = (*PROGRAMS, "/etc")
# A write here changes what root or every user runs later.
MACHINE = ("/etc", "/boot", "/nix", "/var", *(one for one in PROGRAMS if one != "/opt"), *KERNEL)
# No sandbox writes here, so a recorded look is compared again only after a while. What is mounted
# here is noticed at once.
SLOW = ("/etc", "/proc", "/run", "/sys", "/usr", "/var/lib", "/var/run")
# Container engines mount and unmount here all the time.
CONTAINER_ENGINES = (
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet",
    "/var/lib/lxc", "/var/lib/machines",
)  # fmt: skip
HOMES_FOLDER, ROOT_HOME = "/home", "/root"
HOMES = (HOMES_FOLDER, ROOT_HOME)
# Hidden with the homes: toolchains in there have to be granted.
RUNTIME = ("/run",)
# Too much for one grant; what lies below may be granted.
TOO_WIDE = (
    "/", "/home", "/var", "/opt", "/srv", "/mnt", "/media", "/run", "/run/user", "/var/lib",
    "/var/log", "/var/cache", "/var/spool", "/var/mail", "/var/backups", "/var/run", "/var/lock",
    "/usr/src", "/usr/local/src",
)  # fmt: skip
# Too much for a proposed remedy.
TOO_WIDE_TO_PROPOSE = frozenset({"/", *HOMES, "/usr", "/etc", "/var", "/opt", "/boot", "/run"})

_RUNS = "the host runs what lies there"
# Never writable, nor anything below → why.
NEVER_WRITABLE = {
    "/sys": "it is the kernel's",
    **dict.fromkeys((one for one in PROGRAMS if one not in ("/opt", "/nix/store")), _RUNS),
    **dict.fromkeys(("/boot", "/efi", "/etc", "/nix", "/snap", "/var/snap"), _RUNS),
    **dict.fromkeys(("/run/systemd", "/run/udev", "/run/credentials"), _RUNS),
    **dict.fromkeys(("/var/spool/cron", "/var/spool/at", "/var/spool/anacron"), _RUNS),
    **dict.fromkeys(("/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/lib/pacman"), _RUNS),
    **dict.fromkeys(("/var/lib/systemd", "/var/lib/cloud", *CONTAINER_ENGINES), _RUNS),
}
