"""One example of each method, for the OpenRPC document. A test checks them against the structs."""

from __future__ import annotations

from typing import Any

_ID, _BOX, _SESSION, _APPROVAL = "ex-1", "sb-1", "se-1", "ap-1"

# method → params
EXAMPLES: dict[str, dict[str, Any]] = {
    "initialize": {"client": {"name": "my-agent", "version": "1.0"}},
    "status": {},
    "execute": {
        "argv": ["make", "test"], "preset": "workspace-write", "workspace": "/home/me/project",
    },
    "execution/write": {"execution_id": _ID, "data": "yes\n"},
    "execution/status": {"execution_id": _ID},
    "execution/attach": {"execution_id": _ID, "after": {"stdout": 7}},
    "execution/close_stdin": {"execution_id": _ID},
    "execution/signal": {"execution_id": _ID, "signal": "SIGINT"},
    "execution/resize": {"execution_id": _ID, "rows": 40, "cols": 120},
    "execution/cancel": {"execution_id": _ID},
    "execution/list": {},
    "execution/wait": {"execution_id": _ID},
    "sandbox/create": {"preset": "workspace-write", "workspace": "/home/me/project"},
    "sandbox/list": {},
    "sandbox/get": {"sandbox": _BOX},
    "sandbox/destroy": {"sandbox": _BOX},
    "sandbox/forward": {"sandbox": _BOX, "port": 8000},
    "sandbox/unforward": {"sandbox": _BOX, "forward": "fw-1"},
    "fs/read": {"sandbox": _BOX, "path": "README.md"},
    "fs/write": {"sandbox": _BOX, "path": "notes.txt", "data": "hello\n"},
    "fs/stat": {"sandbox": _BOX, "path": "README.md"},
    "fs/list": {"sandbox": _BOX, "path": "."},
    "fs/mkdir": {"sandbox": _BOX, "path": "build"},
    "fs/remove": {"sandbox": _BOX, "path": "build", "recursive": True},
    "fs/rename": {"sandbox": _BOX, "from": "a.txt", "to": "b.txt"},
    "fs/copy": {"sandbox": _BOX, "from": "a.txt", "to": "b.txt"},
    "fs/realpath": {"sandbox": _BOX, "path": "link"},
    "manifest/check": {"preset": "read-only"},
    "session/open": {"title": "fix the login", "workspace": "/home/me/project"},
    "session/attach": {"session": _SESSION, "token": "0" * 64},
    "session/update": {"mode": "auto_edit"},
    "session/close": {},
    "session/list": {},
    "session/charge": {"tokens_in": 1200, "tokens_out": 300, "cost_usd": 0.02},
    "approval/list": {},
    "approval/decide": {"approval": _APPROVAL, "digest": "sha256:" + "0" * 64, "choice": "once"},
    "approval/wait": {"approval": _APPROVAL, "timeout_secs": 10},
    "grant/list": {},
    "grant/remove": {"grant": "gr-1"},
    "events/subscribe": {"types": ["approval.*"]},
    "events/unsubscribe": {"subscription": "su-1"},
    "audit/query": {"types": ["execution.ended"], "limit": 10},
    "audit/verify": {},
    "rpc.discover": {},
    "shutdown": {},
}  # fmt: skip
