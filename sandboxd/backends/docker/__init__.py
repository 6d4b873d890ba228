"""The Docker backend: containers of an engine, local or remote."""

from sandboxd.backends.docker.backend import Docker
from sandboxd.backends.interface import BackendContext

__all__ = ["Docker", "make"]


def make(context: BackendContext) -> Docker:
    config = context.config
    expected = Docker.name in (config.backend, *(config.ceiling.backends or ()))
    return Docker(
        context.support, config.docker, socket_path=context.socket_path, expected=expected
    )
