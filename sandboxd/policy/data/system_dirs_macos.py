"""Which folders are the system's on macOS. Canonical: /etc, /tmp and /var lead into /private."""

from __future__ import annotations

# What `base: minimal` shows: programs, libraries and settings of the system, no one's data.
PROGRAMS = (
    "/bin", "/sbin", "/usr", "/System", "/System/Volumes/Preboot/Cryptexes", "/Library/Apple",
    "/Library/Developer/CommandLineTools", "/Library/Frameworks", "/Library/Java",
    "/Library/Preferences/Logging", "/Applications/Xcode.app", "/opt/homebrew", "/opt/local",
    "/usr/local", "/nix/store", "/private/etc", "/private/var/db/dyld",
    "/private/var/db/timezone", "/private/var/db/xcode_select_link", "/private/var/select",
)  # fmt: skip
# Below the folders above, and not for a sandbox.
SYSTEM_SECRETS = (
    "/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/sudoers.d",
    "/private/etc/ssh", "/private/etc/krb5.keytab", "/System/Volumes/Data",
)  # fmt: skip
# What `base: host` hides: people's data, temporary files of others, sockets, other disks, and
# devices (terminals and disks of the user; DEVICES opens the usual ones again).
HIDDEN_FROM_HOST = (
    "/dev", "/Users", "/System/Volumes/Data", "/Volumes", "/private/var/root", "/private/tmp",
    "/private/var/tmp", "/private/var/folders", "/private/var/run", "/private/var/db/dslocal",
    "/private/var/db/sudo", "/Library/Keychains",
)  # fmt: skip
KERNEL = ("/dev",)
# Settings and state of the machine. Programs look here and continue without what is missing.
AMBIENT = ("/Library", "/etc", "/private/etc", "/private/var", "/var", *KERNEL)
# Any command may read these.
READABLE = (*PROGRAMS, "/etc")
# A write here changes what root or every user runs later.
MACHINE = ("/Applications", "/Library", "/etc", "/private/var/db", *PROGRAMS, *KERNEL)
# No sandbox writes here, so a recorded look is compared again only after a while.
SLOW = ("/private/etc", "/usr", "/System", "/Library")
CONTAINER_ENGINES: tuple[str, ...] = ()
HOMES_FOLDER, ROOT_HOME = "/Users", "/private/var/root"
HOMES = (HOMES_FOLDER, ROOT_HOME)
# Hidden with the homes: toolchains in there have to be granted.
RUNTIME = ("/Volumes", "/private/var/folders", "/private/tmp")
# Too much for one grant; what lies below may be granted.
TOO_WIDE = (
    "/", "/Users", "/Volumes", "/Applications", "/Library", "/private", "/private/var",
    "/private/tmp", "/private/var/tmp", "/private/var/folders", "/opt", "/opt/homebrew", "/cores",
)  # fmt: skip
# Too much for a proposed remedy.
TOO_WIDE_TO_PROPOSE = frozenset({*TOO_WIDE, *HOMES, "/usr", "/etc", "/private/etc", "/System"})

_RUNS = "the host runs what lies there"
# Never writable, nor anything below → why.
NEVER_WRITABLE = {
    "/System": "it is the system's",
    **dict.fromkeys(
        ("/bin", "/sbin", "/usr", "/etc", "/nix", "/private/etc", "/private/var/db",
         "/private/var/at", "/private/var/root", "/private/var/run", "/private/var/spool",
         "/private/var/vm", "/Library/Apple", "/Library/Extensions", "/Library/Frameworks",
         "/Library/Keychains", "/Library/LaunchAgents", "/Library/LaunchDaemons",
         "/Library/Preferences", "/Library/PrivilegedHelperTools", "/Library/Security",
         "/Library/StartupItems", "/Library/SystemExtensions"),
        _RUNS,
    ),
}  # fmt: skip
