"""HTTP to one OpenSandbox server: every call bounded, no redirects, every error in our words.

It hides aiohttp. The API key goes to the configured origin and to no other.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import msgspec

from sandboxd.config.setting_words import backend_words
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.secret import Secret

if TYPE_CHECKING:
    import aiohttp

KEY_HEADER = "OPEN-SANDBOX-API-KEY"
CALL_S = 20.0
CONNECT_S = 10.0
ANSWER_MAX = 1 << 20
SAID_MAX = 300
SECRET_MIN = 4  # a shorter one would be found in every text
MOST_SECRETS = 512


class ApiError(Exception):
    """The server answered with an error: its status, its code and its words."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A base URL and the headers that calls to it carry."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Body(msgspec.Struct, frozen=True):
    """What a request carries that is not JSON: its pieces, and how many bytes they are."""

    pieces: AsyncIterator[bytes]
    size: int
    content_type: str


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. ValueError for what is no HTTP URL, or has a user in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{url!r} is not an http:// or https:// URL")
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


class HttpClient:
    """Used from one event loop; `close` ends its connections."""

    def __init__(self, url: str, ca_file: str = "") -> None:
        self.url = url
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None
        self._secrets: dict[str, None] = {}  # the ones that were used last are at the end

    def headers_for(self, url: str, key: Secret) -> dict[str, str]:
        """The key, where `url` is of the configured origin."""
        if not key.reveal() or origin(url) != origin(self.url):
            return {}
        self.conceal(key.reveal())
        return {KEY_HEADER: key.reveal()}

    def conceal(self, secret: str) -> None:
        """From now on `said` shows asterisks in its place."""
        if len(secret) >= SECRET_MIN:
            self._secrets.pop(secret, None)
            self._secrets[secret] = None
            if len(self._secrets) > MOST_SECRETS:
                del self._secrets[next(iter(self._secrets))]

    def said(self, text: object, most: int = SAID_MAX) -> str:
        """Words of the server for our errors and logs: one line, short, without what is secret.

        A server may repeat the key that it was sent.
        """
        line = str(text)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return "".join(sign if sign.isprintable() else " " for sign in line[:most]).strip()

    async def call(
        self,
        method: str,
        target: HttpTarget,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        timeout_s: float = CALL_S,
    ) -> Any:
        """The answer's JSON; None for an empty one. ApiError, or SandboxUnavailable."""
        data = bytearray()
        try:
            with anyio.fail_after(timeout_s):
                async with self.stream(method, target, path, body=body, query=query) as answer:
                    while more := await answer.content.readany():
                        data += more
                        if len(data) > ANSWER_MAX:
                            raise self.nonsense(f"an answer of more than {ANSWER_MAX} bytes")
        except TimeoutError:
            raise self.unreachable(f"no answer in {timeout_s:g} s") from None
        return self._parsed(bytes(data))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: HttpTarget,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer whose body is still to be read. The caller bounds the time."""
        session = self._connected()
        import aiohttp

        headers = dict(target.headers)
        data: Any = None
        if isinstance(body, Body):
            data = body.pieces
            headers |= {"Content-Type": body.content_type, "Content-Length": str(body.size)}
        elif body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            async with session.request(
                method, target.url + path, data=data, headers=headers, params=query,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                await self._check(answer)
                yield answer
        except aiohttp.ClientError as error:
            raise self.unreachable(self.said(error) or type(error).__name__) from None
        except (OSError, ValueError) as error:
            raise self.unreachable(self.said(error)) from None

    async def _check(self, answer: aiohttp.ClientResponse) -> None:
        data = b""
        if 200 <= answer.status < 300:
            return
        if 300 <= answer.status < 400:
            where = self.said(answer.headers.get("Location", "nowhere"))
            raise SandboxUnavailable(
                f"the OpenSandbox server at {self.url} redirects to {where!r}, and redirects are "
                "not followed: the API key would go there",
                remedy="set [opensandbox] url to the server's own address",
            )
        with anyio.move_on_after(CALL_S):
            data = await answer.content.read(64 << 10)
        code, message = map(self.said, _said(data))
        if answer.status in (401, 403):
            raise SandboxUnavailable(
                f"the OpenSandbox server at {self.url} refuses the API key: {message}",
                remedy="put the server's key into the file that [opensandbox] api_key_file names",
            )
        raise ApiError(answer.status, code, message)

    def _parsed(self, data: bytes) -> Any:
        if not data.strip():
            return None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise self.nonsense("an answer that is not JSON") from None

    def nonsense(self, what: str) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"the server at {self.url} sent {what}: it is no OpenSandbox server, or of another "
            "version",
            remedy="check [opensandbox] url",
        )

    def unreachable(self, why: str) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"the OpenSandbox server at {self.url} does not answer: {why}",
            remedy=f"start the server, or check [opensandbox] url; or for the local sandbox "
            f"{backend_words('auto')}",
        )

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            try:
                import aiohttp
            except ImportError:
                raise SandboxUnavailable(
                    "the opensandbox backend needs the Python package aiohttp",
                    remedy="install it: pip install 'sandboxd[opensandbox]'",
                ) from None
            # A connection for each call: one that was kept is broken after a server's restart.
            connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._tls())
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                read_bufsize=256 << 10,
            )
        return self._session

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise SandboxUnavailable(
                f"the certificates in {self._ca_file} cannot be used: {error}",
                remedy="set [opensandbox] ca_file to a PEM file, or leave it out",
            ) from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _said(data: bytes) -> tuple[str, str]:
    """Code and message of an error: {code, message}, or FastAPI's {"detail": …}."""
    text = data.decode("utf-8", "replace")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return "", text
    if not isinstance(said, dict):
        return "", text
    detail = said.get("detail")
    if isinstance(detail, list):
        each = [f"{_place(one)}: {one.get('msg')}" for one in detail if isinstance(one, dict)]
        return "INVALID", "; ".join(each)
    if isinstance(detail, dict):
        said = detail
    message = said.get("message") or (detail if isinstance(detail, str) else text)
    return str(said.get("code") or "")[:80], str(message)


def _place(one: dict[str, Any]) -> str:
    where = one.get("loc")
    return ".".join(str(part) for part in where) if isinstance(where, list) else "body"
