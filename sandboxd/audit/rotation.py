"""When a trail begins a new file, and which old files are removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sandboxd.audit.files import last_line, line_digest, trail_files
from sandboxd.config.config import AuditConfig


def is_due(size: int, day: str, today: str, config: AuditConfig) -> bool:
    """`size` and `day`: of the file that is written."""
    return size > 0 and (size >= config.max_file_bytes or day != today)


def remove_old(folder: str, now: float, config: AuditConfig) -> Iterator[dict[str, Any]]:
    """Remove whole files beyond `retention_days` or `max_bytes`; of each removed one the name, the
    size and the head it had."""
    kept = trail_files(folder)
    sizes = [os.stat(file.path).st_size for file in kept]
    oldest = now - config.retention_days * 86400
    while len(kept) > 1:
        too_old = os.stat(kept[0].path).st_mtime < oldest
        if not too_old and sum(sizes) <= config.max_bytes:
            return
        gone, size = kept.pop(0), sizes.pop(0)
        line = last_line(gone.path)
        head = {"seq": kept[0].first_seq - 1, "sha256": line_digest(line) if line else None}
        os.unlink(gone.path)
        yield {"file": os.path.basename(gone.path), "bytes": size, "head": head}
