"""TLS hellos: whole, cut into records and in pieces, read alike by both ways of reading."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress

from fuzz.driver import Target

from sandboxd.egress.sniffing import tls_sni
from sandboxd.egress.sniffing.tls_sni import HelloIncomplete, HelloMalformed, HelloReader

Answer = str | None | type[Exception]


def seeds() -> Sequence[bytes]:
    made = []
    for name in ("example.org", None, "a" * 60 + ".example.org"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.set_alpn_protocols(["h2", "http/1.1"])
        into, outof = ssl.MemoryBIO(), ssl.MemoryBIO()
        talk = context.wrap_bio(into, outof, server_hostname=name)
        with suppress(ssl.SSLWantReadError):
            talk.do_handshake()
        made.append(outof.read())
    message = made[0][5:]
    pieces = [message[at : at + 50] for at in range(0, len(message), 50)]
    made.append(b"".join(b"\x16\3\1" + struct.pack("!H", len(p)) + p for p in pieces))
    return made


def answer_of(reader: HelloReader, data: bytes) -> Answer:
    try:
        return reader.read(data).server_name
    except (HelloMalformed, HelloIncomplete) as error:
        return type(error)


def check(data: bytes) -> None:
    try:
        whole: Answer = tls_sni.parse(data).server_name
    except (HelloMalformed, HelloIncomplete) as error:
        whole = type(error)
    assert not isinstance(whole, str) or len(whole) <= 4 * len(data)
    reader = HelloReader()
    step = max(1, len(data) // 16)
    answers = [answer_of(reader, data[:end]) for end in range(0, len(data), step)]
    last = next((a for a in answers if a is not HelloIncomplete), None) or answer_of(reader, data)
    # In pieces it is what it is as a whole, or it was refused before all of it was there.
    assert last == whole or HelloMalformed in answers or None in answers


TARGET = Target("client_hello", seeds, check, words=(b"\x16\3\1\0\1", b"\0\0\0\5\0\3\0\0\0"))
