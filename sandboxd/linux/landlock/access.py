"""The access masks: what reading, writing or using a device means in Landlock's rights.

A mask never holds a right that the ABI does not know: the kernel refuses a rule that does.
"""

from __future__ import annotations

from landlock.plumbing import FSAccess

from sandboxd.linux.landlock.abi import ABI_IOCTL_DEV, ABI_REFER, ABI_TRUNCATE

NET_BIND_TCP = 1 << 0
NET_CONNECT_TCP = 1 << 1

IOCTL_DEV = int(FSAccess.IOCTL_DEV)

SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
SCOPE_SIGNAL = 1 << 1

_READ = int(FSAccess.EXECUTE | FSAccess.READ_FILE | FSAccess.READ_DIR)
_MAKE = int(
    FSAccess.MAKE_DIR
    | FSAccess.MAKE_REG
    | FSAccess.MAKE_SOCK
    | FSAccess.MAKE_FIFO
    | FSAccess.MAKE_SYM
)
_REMOVE = int(FSAccess.REMOVE_DIR | FSAccess.REMOVE_FILE)
# Handled and never granted: a new device node gives access to the machine's disk or memory.
_MAKE_DEVICE = int(FSAccess.MAKE_CHAR | FSAccess.MAKE_BLOCK)
_FILE = int(
    FSAccess.EXECUTE
    | FSAccess.READ_FILE
    | FSAccess.WRITE_FILE
    | FSAccess.TRUNCATE
    | FSAccess.IOCTL_DEV
)


def _known(abi: int) -> int:
    """Every file right of this ABI."""
    rights = _READ | int(FSAccess.WRITE_FILE) | _MAKE | _REMOVE | _MAKE_DEVICE
    if abi >= ABI_REFER:
        rights |= int(FSAccess.REFER)
    if abi >= ABI_TRUNCATE:
        rights |= int(FSAccess.TRUNCATE)
    if abi >= ABI_IOCTL_DEV:
        rights |= int(FSAccess.IOCTL_DEV)
    return rights if abi > 0 else 0


def access_handled(abi: int) -> int:
    """The rights that a ruleset handles: all that the ABI knows."""
    return _known(abi)


def access_read(abi: int) -> int:
    """Read, list, execute. Granted on /proc, where a write as root would be an escape."""
    return _READ & _known(abi)


def access_write(abi: int) -> int:
    """Everything but making device nodes."""
    return _known(abi) & ~_MAKE_DEVICE


def access_dev(abi: int) -> int:
    """Use the devices below a folder such as /dev: open, list, ioctl; make and remove nothing."""
    rights = FSAccess.READ_FILE | FSAccess.WRITE_FILE | FSAccess.READ_DIR
    return int(rights | FSAccess.TRUNCATE | FSAccess.IOCTL_DEV) & _known(abi)


def on_file(access: int) -> int:
    """The part of a mask that a rule on something other than a folder may hold."""
    return access & _FILE
