"""bench/report.md and its picture: the same table, with the machine that it was measured on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from bench.lines import Section, markdown, missed
from bench.plot import Bar, bars

HERE = Path(__file__).parent


def machine() -> str:
    """One line: figures of another machine do not compare."""
    load = os.getloadavg()[0]
    user = "root" if os.geteuid() == 0 else "an unprivileged user"
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"as {user}, load before the run {load:.1f}"
    )


def write(sections: Sequence[Section], *, about: str, command: str, name: str) -> Path:
    """`name`.md and `name`.svg, beside this module."""
    picture = HERE / f"{name}.svg"
    picture.write_text(_picture(sections[0]))
    failed = missed(sections)
    verdict = ["Every target was met."] if not failed else ["Targets that were missed:", ""]
    text = "\n".join([
        "# What sandboxd costs",
        "",
        f"Measured by `{command}` on {time.strftime('%Y-%m-%d')}: {about}.",
        "Rows of a section took turns in one run: read the ratios, not the milliseconds.",
        "",
        f"![{sections[0].title}]({picture.name})",
        "",
        *verdict,
        *(f"- {line}" for line in failed),
        "",
        markdown(sections),
    ])  # fmt: skip
    path = HERE / f"{name}.md"
    path.write_text(text)
    return path


def _picture(section: Section) -> str:
    seen: dict[str, Bar] = {}
    for line in section.lines:
        value, _, unit = line.p50.partition(" ")
        if unit == "ms":
            seen[line.name] = Bar(
                line.name, float(value), float(line.p95.partition(" ")[0] or value),
                ours=line.name.startswith(("execute", "sandboxctl")),
            )  # fmt: skip
    return bars(f"{section.title} (p50; the thin line is the p95)", "ms", list(seen.values()))
