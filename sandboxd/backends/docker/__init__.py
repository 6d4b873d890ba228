"""The Docker backend: containers of an engine, local or remote."""

from sandboxd.backends.docker.backend import Docker

__all__ = ["Docker"]
