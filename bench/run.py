"""`make bench`: one table of ratios, measured side by side in one run, and bench/report.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from bench import (
    captured,
    growth,
    idle,
    memory,
    report,
    rows_audit,
    rows_boxes,
    rows_docker,
    rows_egress,
    rows_opensandbox,
    rows_starvation,
    starting,
    streaming,
    sustained,
)
from bench.lines import Section, missed, plain
from bench.place import FULL, QUICK, Place, made_place

PARTS: dict[str, Callable[[Place], Section]] = {
    "start": starting.measured,
    "paced": starting.paced,
    "rotated": starting.rotated,
    "rate": sustained.measured,
    "stream": streaming.measured,
    "captured": captured.measured,
    "paths": growth.paths,
    "live": growth.live,
    "memory": memory.measured,
    "audit": rows_audit.measured,
    "boxes": rows_boxes.measured,
    "docker": rows_docker.measured,
    "egress": rows_egress.measured,
    "opensandbox": rows_opensandbox.measured,
    "starvation": rows_starvation.measured,
}
# Those with a target for the daemon itself, which fit in ten minutes.
TARGETS = ("start", "paced", "rotated", "rate", "stream", "captured", "paths", "memory", "audit")


def main() -> None:
    options = _options()
    wanted = options.only or (TARGETS if options.targets else list(PARTS))
    about = report.machine()
    sections: list[Section] = []
    began = time.monotonic()
    with made_place(options.preset, QUICK if options.quick else FULL) as place:
        for name in wanted:
            print(f"measuring {name} …{idle.wait()}", flush=True)
            sections.append(PARTS[name](place))
            print(plain(sections[-1:]), flush=True)
    print(f"\npreset {options.preset}, {about}, {time.monotonic() - began:.0f} s; all of it:\n")
    print(plain(sections))
    failed = missed(sections)
    print("\nmissed: " + "; ".join(failed) if failed else "\nevery target was met")
    if not (options.quick or options.only or options.targets):
        path = report.write(sections, about=about, command="make bench", name="report")
        print(f"written: {path}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute; no report")
    parser.add_argument("--targets", action="store_true", help="ten minutes; no report")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts; no report")
    parser.add_argument("--preset", default="workspace-write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
