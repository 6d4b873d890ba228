"""The lifecycle API of an OpenSandbox server, as far as this backend needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from sandboxd.backends.opensandbox.http_client import ApiError, HttpClient, HttpTarget, origin
from sandboxd_proto.secret import Secret

EXECD_PORT = 44772
CREATE_S = 180.0  # a cluster may have to pull an image
PAGE = 100
MAX_PAGES = 50
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# host[:port][/path], without a scheme, a user or a query.
_ENDPOINT = re.compile(
    r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%-][A-Za-z0-9._~/%-]*)?/?"
)
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_HOP_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "content-type"}


class SandboxState(msgspec.Struct, frozen=True):
    """`state`: Pending, Running, Failed, Terminated and others. `why`: the server's words."""

    id: str
    state: str
    why: str
    metadata: dict[str, str]


class Lifecycle:
    """`key` may be replaced while the daemon runs."""

    def __init__(self, http: HttpClient, key: Secret) -> None:
        self._http = http
        base = http.url.rstrip("/")
        self._root = base.removesuffix("/v1")
        self._base = f"{self._root}/v1"
        self.key = key

    async def version(self) -> str:
        said = await self._http.call("GET", HttpTarget(self._root), "/version")
        version = said.get("version") if isinstance(said, dict) else None
        if not isinstance(version, str) or not version.isprintable():
            raise self._http.nonsense("no version")
        return self._http.said(version, 40)

    async def create(self, body: dict[str, Any]) -> SandboxState:
        return self._state(await self._call("POST", "/sandboxes", body=body, timeout_s=CREATE_S))

    async def get(self, sandbox: str) -> SandboxState:
        return self._state(await self._call("GET", f"/sandboxes/{sandbox}"))

    async def delete(self, sandbox: str) -> None:
        """One that is not there is no error."""
        try:
            await self._call("DELETE", f"/sandboxes/{sandbox}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def renew(self, sandbox: str, seconds: float) -> None:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        body = {"expiresAt": until.isoformat().replace("+00:00", "Z")}
        await self._call("POST", f"/sandboxes/{sandbox}/renew-expiration", body=body)

    async def find(self, metadata: dict[str, str]) -> list[SandboxState]:
        """Every sandbox that has this metadata."""
        found: list[SandboxState] = []
        for page in range(1, MAX_PAGES + 1):
            query = {
                "metadata": urlencode(metadata), "page": str(page), "pageSize": str(PAGE),
            }  # fmt: skip
            said = await self._call("GET", "/sandboxes", query=query)
            if not isinstance(said, dict) or not isinstance(said.get("items"), list):
                raise self._http.nonsense("no list of sandboxes")
            each = [self._state(item) for item in said["items"]]
            # A server that ignores the filter must not have the sandboxes of others deleted.
            found += [one for one in each if metadata.items() <= one.metadata.items()]
            pagination = said.get("pagination")
            if not isinstance(pagination, dict) or not pagination.get("hasNextPage"):
                break
        return found

    async def execd(self, sandbox: str, *, via_server: bool) -> HttpTarget:
        """Where the sandbox's execd is, and what calls to it carry."""
        query = {"use_server_proxy": "true"} if via_server else None
        said = await self._call("GET", f"/sandboxes/{sandbox}/endpoints/{EXECD_PORT}", query=query)
        endpoint = said.get("endpoint") if isinstance(said, dict) else None
        if not isinstance(endpoint, str) or not _ENDPOINT.fullmatch(endpoint):
            raise self._http.nonsense("no endpoint of the sandbox")
        url = f"{origin(self._base)[0]}://{endpoint.rstrip('/')}"
        try:
            own = self._http.headers_for(url, self.key)
        except ValueError:
            raise self._http.nonsense("an endpoint that is no address") from None
        named = dict(_headers(said.get("headers")))
        for value in named.values():
            self._http.conceal(value)
        return HttpTarget(url, {**named, **own})

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        target = HttpTarget(self._base, self._http.headers_for(self._base, self.key))
        return await self._http.call(method, target, path, **options)

    def _state(self, said: Any) -> SandboxState:
        if not isinstance(said, dict) or not isinstance(said.get("status"), dict):
            raise self._http.nonsense("no sandbox where one was expected")
        sandbox, status = said.get("id"), said["status"]
        # The id becomes part of paths.
        if not isinstance(sandbox, str) or not _ID.fullmatch(sandbox) or set(sandbox) == {"."}:
            raise self._http.nonsense("an id that is none")
        why = status.get("message") or status.get("reason") or ""
        metadata = said.get("metadata")
        pairs = metadata.items() if isinstance(metadata, dict) else ()
        return SandboxState(
            sandbox, self._http.said(status.get("state"), 40), self._http.said(why),
            {str(key): str(value) for key, value in pairs},
        )  # fmt: skip


def _headers(given: Any) -> Iterator[tuple[str, str]]:
    for name, value in given.items() if isinstance(given, dict) else ():
        is_text = isinstance(value, str) and value.isascii() and value.isprintable()
        if is_text and _HEADER.fullmatch(str(name)) and str(name).lower() not in _HOP_HEADERS:
            yield str(name), value
