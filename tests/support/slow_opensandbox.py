"""A lifecycle server with the latencies of a cluster, for many executions at once: `PORT`.

Nothing runs in its sandboxes: a command prints its last argument after a second. It shows what our
own side does under load, and nothing about an OpenSandbox server. It needs aiohttp.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any
from uuid import uuid4

from aiohttp import web

KEY_HEADER = "OPEN-SANDBOX-API-KEY"
CREATE_S, COMMAND_S, CALL_S = (0.5, 2.0), 1.0, 0.02
_made: dict[str, dict[str, Any]] = {}
_most = 0


def _shown(identity: str) -> dict[str, Any]:
    return {"id": identity, "status": {"state": "Running"}, "metadata": _made[identity]}


async def _create(request: web.Request) -> web.Response:
    global _most
    body = await request.json()
    await asyncio.sleep(random.uniform(*CREATE_S))
    identity = str(uuid4())
    _made[identity] = body["metadata"]
    _most = max(_most, len(_made))
    return web.json_response(_shown(identity), status=202)


async def _get(request: web.Request) -> web.Response:
    await asyncio.sleep(CALL_S)
    identity = request.match_info["id"]
    if identity not in _made:
        return web.json_response({"code": "NOT_FOUND", "message": "gone"}, status=404)
    return web.json_response(_shown(identity))


async def _delete(request: web.Request) -> web.Response:
    await asyncio.sleep(CALL_S)
    _made.pop(request.match_info["id"], None)
    return web.Response(status=204)


async def _endpoint(request: web.Request) -> web.Response:
    return web.json_response({"endpoint": f"{request.host}/execd"})


async def _list(request: web.Request) -> web.Response:
    return web.json_response({"items": [], "pagination": {"hasNextPage": False}})


async def _command(request: web.Request) -> web.StreamResponse:
    said = (await request.json())["argv"][-1]
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(json.dumps({"type": "init", "text": uuid4().hex}).encode() + b"\n\n")
    await asyncio.sleep(COMMAND_S)
    for event in ({"type": "stdout", "text": said}, {"type": "execution_complete"}):
        await answer.write(json.dumps(event).encode() + b"\n\n")
    return answer


async def _seen(request: web.Request) -> web.Response:
    return web.json_response({"left": len(_made), "most": _most})


async def _plain(request: web.Request) -> web.Response:
    return web.json_response({"version": "slow"})


def main() -> None:
    app = web.Application()
    sandboxes = "/v1/sandboxes"
    app.add_routes([
        web.post(sandboxes, _create), web.get(sandboxes, _list),
        web.get(f"{sandboxes}/{{id}}", _get), web.delete(f"{sandboxes}/{{id}}", _delete),
        web.get(f"{sandboxes}/{{id}}/endpoints/44772", _endpoint),
        web.post("/execd/command", _command), web.get("/execd/ping", _plain),
        web.get("/version", _plain), web.get("/seen", _seen),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, backlog=2048)


if __name__ == "__main__":
    main()
