"""Fuzz every parser that reads what others wrote: `make fuzz`.

--seconds N for each target (30), --target NAME for one, --seed S (otherwise a new one each time).
"""

from __future__ import annotations

import argparse
import secrets
import sys

from fuzz.driver import Finding, run
from fuzz.targets import TARGETS


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--target", choices=sorted(TARGETS))
    options.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int)
    given = options.parse_args()
    failed = 0
    for name in [given.target] if given.target else sorted(TARGETS):
        seconds = None if given.count is not None else given.seconds
        try:
            done = run(
                TARGETS[name], given.seed, count=given.count, seconds=seconds, first=given.first
            )
            print(f"{name}: {done} inputs of seed {given.seed}", flush=True)
        except Finding as finding:
            failed = 1
            print(finding, file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
