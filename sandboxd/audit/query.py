"""Reading the trail: records after a cursor, in pages. For worker threads."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import msgspec

from sandboxd.audit.files import lines_of, trail_files
from sandboxd_proto.messages.audit import AuditPage, Head, Record

MOST_RECORDS = 1000
_decoder = msgspec.json.Decoder(Record)
RecordFilter = Callable[[Record], bool]


def matches_type(kind: str, types: list[str] | None) -> bool:
    """`types` holds names and patterns such as `approval.*`."""
    return types is None or any(fnmatchcase(kind, pattern) for pattern in types)


def records_after(folder: str, after: int) -> Iterator[Record]:
    """Records with a sequence number above `after`, oldest first."""
    for line in lines_after(folder, after):
        record = _decoder.decode(line)
        if record.seq > after:
            yield record


def lines_after(folder: str, after: int) -> Iterator[bytes]:
    """Lines of the files that hold records above `after`; the first may hold older ones."""
    files = trail_files(folder)
    first = bisect.bisect_right([file.first_seq for file in files], after + 1) - 1
    for file in files[max(first, 0) :]:
        yield from lines_of(file, after)


def page(
    folder: str, after: int, before: int | None, limit: int, wanted: RecordFilter, head: Head
) -> AuditPage:
    found: list[Record] = []
    for record in records_after(folder, after):
        if before is not None and record.seq >= before:
            break
        if wanted(record):
            if len(found) == limit:
                return AuditPage(records=found, next=str(found[-1].seq), head=head)
            found.append(record)
    return AuditPage(records=found, next=None, head=head)
