"""AppContainer profiles and capabilities: their names, and their SIDs as Windows works them out.

Pure but for `Profiles`, which is in `profiles`: a SID follows from a name alone.
"""

from __future__ import annotations

import hashlib
import struct

MAX_NAME = 64
INTERNET_CLIENT = "S-1-15-3-1"
INTERNET_CLIENT_SERVER = "S-1-15-3-2"
PRIVATE_NETWORK = "S-1-15-3-3"
NETWORK_CAPABILITIES = (INTERNET_CLIENT, INTERNET_CLIENT_SERVER, PRIVATE_NETWORK)
ALL_PACKAGES = "S-1-15-2-1"
ALL_RESTRICTED_PACKAGES = "S-1-15-2-2"


def package_sid(name: str) -> str:
    """Of the profile `name`: 7 words of SHA-256 over the lower-cased name."""
    digest = hashlib.sha256(name.lower().encode("utf-16-le")).digest()
    return "S-1-15-2-" + "-".join(map(str, struct.unpack("<7I", digest[:28])))


def capability_sid(name: str) -> str:
    """Of the capability `name`: 8 words of SHA-256 over the upper-cased name."""
    digest = hashlib.sha256(name.upper().encode("utf-16-le")).digest()
    return "S-1-15-3-1024-" + "-".join(map(str, struct.unpack("<8I", digest)))


def grant_capability(path: str, access: str, daemon: str = "") -> str:
    """The SID of the capability that files below `path` are granted to.

    A command has exactly the capabilities of its plan, so an entry that is written once for a
    workspace serves every sandbox of it, and no other. `daemon`: a secret of the daemon's life, so
    that daemons do not take back one another's entries.
    """
    named = f"{daemon} {path.lower()}"
    digest = hashlib.sha256(named.encode("utf-16-le", "surrogatepass")).hexdigest()
    return capability_sid(f"sandboxd.{access}.{digest[:40]}")


def profile_name(token: str) -> str:
    name = f"sandboxd.{token}"
    if len(name) > MAX_NAME or not all(c.isascii() and (c.isalnum() or c in ".-") for c in name):
        raise ValueError(f"{name!r} cannot be the name of a profile")
    return name
