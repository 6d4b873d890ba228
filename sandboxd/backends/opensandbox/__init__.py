"""The OpenSandbox backend: a server that runs sandboxes on Docker or on a Kubernetes cluster."""

import sys

from sandboxd.backends.interface import Backend, BackendContext
from sandboxd.backends.unavailable import UnavailableBackend


def make(context: BackendContext) -> Backend:
    config = context.config.opensandbox
    if sys.platform == "win32":
        return UnavailableBackend(
            "opensandbox", "the backend opensandbox does not work on Windows yet",
            'leave "backend" out: the daemon then uses what works on this platform',
        )  # fmt: skip
    if not config.url:
        return UnavailableBackend(
            "opensandbox", "no OpenSandbox server is configured",
            'set [opensandbox] url = "https://…" and api_key_file in the config',
        )  # fmt: skip
    if config.way == "init" and sys.platform != "linux":
        return UnavailableBackend(
            "opensandbox", 'the init for [opensandbox] way = "init" is built on Linux only',
            'leave "way" out: commands are then run by the execd of the sandbox',
        )  # fmt: skip
    # Not on Windows.
    from sandboxd.backends.opensandbox.backend import OpenSandbox
    from sandboxd.backends.owner_identity import supervisor_identity

    return OpenSandbox(config, owner=supervisor_identity(context.socket_path))
