"""Many executions at once on another machine: our own side, against a server that only pretends."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import quantiles

from support.daemon import running_daemon
from support.fake_opensandbox import KEY
from support.opensandbox_load import run_load, slow_server

from bench.lines import Line, Section, ms
from bench.place import FULL, Place

TITLE = "opensandbox: executions at once through one daemon"
NOTE = (
    "A pretended server: 0.5 to 2 s for a sandbox, 1 s for a command. It shows what our side adds, "
    "and nothing about an OpenSandbox server."
)
COUNT, COUNT_QUICK = 1000, 100


def measured(place: Place) -> Section:
    count = COUNT if place.size is FULL else COUNT_QUICK
    with tempfile.TemporaryDirectory() as folder, slow_server() as url:
        key = Path(folder) / "key"
        key.write_text(KEY)
        key.chmod(0o600)
        keys = {"url": url, "api_key_file": str(key), "image": "image", "way": "execd"}
        env = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in keys.items()}
        fixed = {"SANDBOXD_BACKEND": "opensandbox", "SANDBOXD_POOL_ENABLED": "false"}
        with running_daemon(env={**fixed, **env}) as daemon:
            load = run_load(daemon, url, count)
    cuts = quantiles(load.waited_ms, n=20)
    return Section(
        TITLE,
        (
            Line(f"{count} executions: from request to answer", ms(cuts[9]), ms(cuts[18])),
            Line("all of them", f"{load.took_s:.1f} s"),
            Line("the daemon's peak memory", f"{load.peak_bytes / (1 << 20):.0f} MiB"),
        ),
        NOTE,
    )
