"""The one table of the bench: a line for each thing measured, with its ratio and its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEAD = ("", "p50", "p95", "ratio", "to", "target", "met")


@dataclass(frozen=True, slots=True)
class Target:
    """What the ratio (or, with a unit, the value itself) is to be. `least`: at least that much."""

    bound: float
    value: float
    least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    @property
    def text(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.bound:g}{self.unit or ' ×'}"


@dataclass(frozen=True, slots=True)
class Line:
    """`p50` and `p95` are texts with their unit; a rate or a size stands in `p50` alone."""

    name: str
    p50: str = ""
    p95: str = ""
    ratio: float | None = None
    to: str = ""
    targets: tuple[Target, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        wanted = ", ".join(target.text for target in self.targets)
        met = ", ".join("yes" if target.met else "NO" for target in self.targets)
        return (self.name, self.p50, self.p95, ratio, self.to, wanted, met)


@dataclass(frozen=True, slots=True)
class Section:
    """`note`: what a reader must know to read its lines."""

    title: str
    lines: tuple[Line, ...]
    note: str = ""


def ms(value: float) -> str:
    return f"{value:.2f} ms"


def plain(sections: Sequence[Section]) -> str:
    """For a terminal: one table, its sections set off by their titles."""
    rows = [HEAD, *(line.cells for section in sections for line in section.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    out = [_aligned(HEAD, widths)]
    for section in sections:
        out += ["", f"-- {section.title}"]
        out += [_aligned(line.cells, widths) for line in section.lines]
        out += [f"   {section.note}"] if section.note else []
    return "\n".join(out)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = {0, 4, 5}
    return "  ".join(
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def markdown(sections: Sequence[Section]) -> str:
    out: list[str] = []
    for section in sections:
        out += [f"## {section.title}", ""]
        out += [f"{section.note}", ""] if section.note else []
        out += [_row(("what", *HEAD[1:])), "|---|--:|--:|--:|---|---|---|"]
        out += [_row(line.cells) for line in section.lines]
        out.append("")
    return "\n".join(out)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def missed(sections: Sequence[Section]) -> list[str]:
    return [
        f"{line.name}: {target.text.strip()}, measured {target.value:.2f}{target.unit or ' ×'}"
        for section in sections
        for line in section.lines
        for target in line.targets
        if not target.met
    ]
