"""A bar chart as SVG, written by hand: a report needs one picture and no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 250, 90, 20, 8, 44


@dataclass(frozen=True, slots=True)
class Bar:
    """`whisker` is a second value, drawn as a thin line (the p95 of a p50). `ours`: highlighted."""

    name: str
    value: float
    whisker: float | None = None
    ours: bool = False


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars on one linear scale that starts at zero."""
    most = max((max(row.value, row.whisker or 0.0) for row in rows), default=1.0) or 1.0
    height = HEAD + len(rows) * (BAR + GAP) + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        out += _bar(row, HEAD + number * (BAR + GAP), (WIDTH - LEFT - RIGHT) / most, unit)
    return "\n".join([*out, "</svg>", ""])


def _bar(row: Bar, top: int, scale: float, unit: str) -> list[str]:
    long = row.value * scale
    colour = "#2563eb" if row.ours else "#9ca3af"
    middle = top + BAR / 2
    end = max(long, (row.whisker or 0.0) * scale)
    out = [
        f'<text x="{LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(row.name)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{long:.1f}" height="{BAR}" fill="{colour}"/>',
        f'<text x="{LEFT + end + 6:.1f}" y="{middle + 4:.0f}">{row.value:.3g} {unit}</text>',
    ]
    if row.whisker is not None:
        out.append(
            f'<line x1="{LEFT + long:.1f}" x2="{LEFT + row.whisker * scale:.1f}" '
            f'y1="{middle}" y2="{middle}" stroke="#374151"/>'
        )
    return out
