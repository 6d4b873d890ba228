"""Import an image into an engine over its socket, with the standard library only.

A client is installed without the daemon's dependencies, so this does not use aiodocker.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
from collections.abc import Mapping
from typing import IO
from urllib.parse import quote, urlsplit

from sandboxd_client.image_content import CannotBuild
from sandboxd_proto.locations import DEFAULT_ENGINE, engine_sockets

ENGINE_S = 600.0


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ENGINE_S)
        self._path = path

    def connect(self) -> None:
        if sys.platform == "win32":
            raise CannotBuild("engines are reached by TCP here", remedy="name it: --host tcp://…")
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ENGINE_S)
        self.sock.connect(self._path)


def engine_url(named: str | None, env: Mapping[str, str]) -> str:
    """The named engine, else DOCKER_HOST, else the usual sockets."""
    if named or env.get("DOCKER_HOST"):
        return named or env["DOCKER_HOST"]
    usual = (path for path in engine_sockets(env) if os.path.exists(path))
    return next((f"unix://{path}" for path in usual), DEFAULT_ENGINE)


def import_image(url: str, tag: str, tar: IO[bytes], env: Mapping[str, str]) -> str:
    """The image's id. CannotBuild with the engine's message if it refuses."""
    repository, _, version = tag.rpartition(":")
    name = f"repo={quote(repository or tag)}&tag={quote(version if repository else 'latest')}"
    changes = quote("ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    size = tar.seek(0, os.SEEK_END)
    tar.seek(0)
    connection = _connection(url, env)
    try:
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(size)}
        create = f"/images/create?fromSrc=-&{name}&changes={changes}"
        connection.request("POST", create, body=tar, headers=headers)
        answer = connection.getresponse()
        identity = _read(answer.status, answer.read())
        # Podman takes no tag with the image.
        connection.request("POST", f"/images/{quote(identity)}/tag?{name}")
        answer = connection.getresponse()
        _read(answer.status, answer.read())
        return identity
    except OSError as error:
        raise CannotBuild(
            f"the engine at {url} does not answer: {error}",
            remedy="start the engine (systemctl start docker), or name it with --host",
        ) from None
    finally:
        connection.close()


def _read(status: int, body: bytes) -> str:
    said = [json.loads(line) for line in body.splitlines() if line.strip()]
    error = next((item.get("error") or item.get("message") for item in said if status >= 400
                  or "error" in item), None)  # fmt: skip
    if error or status >= 400:
        raise CannotBuild(f"the engine refused the image: {error or status}")
    return str(said[-1].get("status", "")) if said else ""


def _connection(url: str, env: Mapping[str, str]) -> http.client.HTTPConnection:
    if url.startswith("unix://"):
        return _SocketConnection(url.removeprefix("unix://"))
    place = urlsplit(url)
    if not env.get("DOCKER_TLS_VERIFY"):
        return http.client.HTTPConnection(place.hostname or "", place.port or 2375, ENGINE_S)
    folder = env.get("DOCKER_CERT_PATH") or os.path.join(env.get("HOME", "/"), ".docker")
    context = ssl.create_default_context(cafile=os.path.join(folder, "ca.pem"))
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    return http.client.HTTPSConnection(
        place.hostname or "", place.port or 2376, timeout=ENGINE_S, context=context
    )
