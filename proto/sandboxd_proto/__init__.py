"""The contract between sandboxd and its clients: structs, errors, framing and the method table.

Nothing here does I/O, and nothing here knows the daemon or a client. A client in another language
needs only what this package describes, which is also written out in `proto/openrpc.json`.
"""

PROTOCOL_VERSION = 1
