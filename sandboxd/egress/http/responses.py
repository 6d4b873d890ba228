"""Refusals as exceptions, and as answers in the refused program's protocol."""

from __future__ import annotations

from sandboxd.traffic import GateRefusal


class GateRefused(Exception):
    """`status`: of the answer, where the refused program speaks HTTP."""

    def __init__(self, refusal: GateRefusal, status: str = "403 Forbidden") -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
        self.status = status


def http_answer(error: GateRefused) -> bytes:
    what = error.refusal
    where = what.host if what.port is None else f"{what.host}:{what.port}"
    return plain_answer(error.status, f"sandboxd refuses {where}: {what.reason}")


def plain_answer(status: str, text: str, *fields: str) -> bytes:
    body = text.encode("utf-8", "replace") + b"\n"
    head = [
        f"HTTP/1.1 {status}", "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}", "Connection: close", *fields,
    ]  # fmt: skip
    return "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + body


# A fatal alert "access denied": programs print it instead of "unexpected end of file".
TLS_ALERT = bytes((21, 3, 3, 0, 2, 2, 49))
