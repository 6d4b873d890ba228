"""Find the engine: from the config, DOCKER_HOST, or the first socket that exists.

The only place that decides it, so that `status` names the engine that is used.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping

import msgspec

from sandboxd_proto.locations import DEFAULT_ENGINE, engine_sockets

_SCHEMES = ("unix", "tcp", "http", "https")


class Endpoint(msgspec.Struct, frozen=True):
    """`url` as people write it. `certificates`: the folder for TLS, None without TLS."""

    url: str
    certificates: str | None = None

    @property
    def socket(self) -> str | None:
        """The path of a local engine's socket."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def is_spoken(self) -> bool:
        return self.url.partition("://")[0] in _SCHEMES

    @property
    def base_url(self) -> str:
        """The base URL of requests; for a socket the connector has its path."""
        if self.socket is not None:
            return "unix://localhost"
        scheme = "https" if self.certificates else "http"
        return f"{scheme}://{self.url.partition('://')[2]}"

    def tls(self) -> ssl.SSLContext | None:
        """As the docker CLI does it: ca.pem, cert.pem and key.pem of DOCKER_CERT_PATH."""
        if self.certificates is None:
            return None
        context = ssl.create_default_context(cafile=os.path.join(self.certificates, "ca.pem"))
        context.load_cert_chain(
            os.path.join(self.certificates, "cert.pem"), os.path.join(self.certificates, "key.pem")
        )
        return context


def find(configured: str, env: Mapping[str, str]) -> Endpoint:
    """The engine to use; without a setting and a socket, the default place."""
    url = configured or env.get("DOCKER_HOST") or ""
    if not url:
        found = next((path for path in engine_sockets(env) if _is_socket(path)), None)
        return Endpoint(f"unix://{found}" if found else DEFAULT_ENGINE)
    if url.startswith("unix://"):
        return Endpoint(url)
    return Endpoint(url, _certificates(env))


def _certificates(env: Mapping[str, str]) -> str | None:
    if not env.get("DOCKER_TLS_VERIFY"):
        return None
    return env.get("DOCKER_CERT_PATH") or os.path.join(env.get("HOME") or "/", ".docker")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
