"""The contract between sandboxd and its clients: structs, errors, framing and the method table.

No I/O, and no imports from the daemon or a client. A client in another language needs only what
this package defines; `proto/openrpc.json` is generated from it.
"""

# The version of the whole distribution: pyproject.toml, the daemon and the client read it here.
__version__ = "0.1.0"
PROTOCOL_VERSION = 1
PRESET_NAMES = ("read-only", "workspace-write", "danger-full-access", "external-sandbox")
