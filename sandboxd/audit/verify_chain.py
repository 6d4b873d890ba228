"""The check of the trail's hash chain. For worker threads."""

from __future__ import annotations

import msgspec

from sandboxd.audit.files import FIRST_PREV, line_digest, lines_of, trail_files
from sandboxd_proto.messages.audit import Head, Record, Verified

_decoder = msgspec.json.Decoder(Record)


def verify(folder: str) -> Verified:
    """Whether each record is chained to the one before; the first on disk may follow a removed
    file, so its own `prev` is believed."""
    count = 0
    previous: str | None = None
    seq = 0
    for file in trail_files(folder):
        broken = None
        for line in lines_of(file):
            try:
                record = _decoder.decode(line)
            except msgspec.MsgspecError:
                broken = seq + 1
                break
            chained = previous is None or (record.prev == previous and record.seq == seq + 1)
            if not chained or (record.seq == 1 and record.prev != FIRST_PREV):
                broken = record.seq
                break
            previous, seq = line_digest(line), record.seq
            count += 1
        if broken is not None:
            head = Head(seq=seq, sha256=previous or FIRST_PREV)
            return Verified(ok=False, records=count, broken_at=broken, head=head)
    head = Head(seq=seq, sha256=previous or FIRST_PREV)
    return Verified(ok=True, records=count, broken_at=None, head=head)
