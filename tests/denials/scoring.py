"""Precision and recall of classified runs against their truth, by kind and overall."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from denials.corpus import Record

from sandboxd_proto.denial import Denial

LABEL = {
    "memory": "resource_memory",
    "cpu": "resource_cpu",
    "processes": "process",
    "file_size": "filesystem_write",
    "protected_path": "filesystem_write",
}
# The thread limit makes node hang: the note of that record calls the timeout a second true kind.
ALSO_TRUE = {110: "timeout"}


@dataclass
class Score:
    """Counted by record and kind: a wrong kind is a false alarm and a miss.

    Low confidence is a hint and does not count, except for a command that exited 0: what it prints
    is never surer.
    """

    right: Counter[str] = field(default_factory=Counter)
    false_alarm: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    targets_right: int = 0
    targets_wrong: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, record: Record, denials: list[Denial], *, exit_code: int | None) -> None:
        # A sandbox that could not be set up denied nothing: the command never ran.
        found = [d for d in denials if d.kind != "sandbox_error"]
        found = [d for d in found if d.confidence != "low" or exit_code == 0]
        kinds = {LABEL.get(d.kind, d.kind) for d in found}
        if record.id in ALSO_TRUE and ALSO_TRUE[record.id] in kinds and record.truth:
            kinds = (kinds - {ALSO_TRUE[record.id]}) | {record.truth}
        if record.truth in kinds:
            self.right[record.truth or ""] += 1
            self._target(record, found)
        elif record.truth is not None:
            self.missed[record.truth] += 1
        for kind in kinds - {record.truth}:
            self.false_alarm[kind] += 1
        if kinds != ({record.truth} - {None}):
            told = [(d.kind, d.target, d.confidence) for d in found]
            self.wrong.append(f"{record.id} {record.argv} truth {record.truth}: {told}")

    def _target(self, record: Record, found: list[Denial]) -> None:
        if record.target is None:
            return
        targets = [d.target for d in found if LABEL.get(d.kind, d.kind) == record.truth]
        if record.target in targets or any(_near(record.target, t) for t in targets if t):
            self.targets_right += 1
        else:
            self.targets_wrong.append(f"{record.id}: {record.target} told as {targets}")

    @property
    def precision(self) -> float:
        return _ratio(self.right.total(), self.false_alarm.total())

    @property
    def recall(self) -> float:
        return _ratio(self.right.total(), self.missed.total())

    def table(self) -> str:
        rows = [f"{'kind':<18}{'right':>6}{'false':>6}{'missed':>7}{'precision':>10}{'recall':>8}"]
        for kind in sorted({*self.right, *self.false_alarm, *self.missed}):
            r, f, m = self.right[kind], self.false_alarm[kind], self.missed[kind]
            rows.append(f"{kind:<18}{r:>6}{f:>6}{m:>7}{_ratio(r, f):>10.3f}{_ratio(r, m):>8.3f}")
        r, f, m = self.right.total(), self.false_alarm.total(), self.missed.total()
        rows.append(f"{'all':<18}{r:>6}{f:>6}{m:>7}{self.precision:>10.3f}{self.recall:>8.3f}")
        named = self.targets_right + len(self.targets_wrong)
        rows.append(f"targets named rightly: {self.targets_right} of {named}")
        return "\n".join([*rows, *self.targets_wrong, "wrong:", *self.wrong])


def _near(truth: str, told: str) -> bool:
    """One contains the other: a lock file beside it, the folder that had to be writable."""
    return told.startswith(truth + "/") or truth.startswith(told + "/")


def _ratio(right: int, wrong: int) -> float:
    return right / (right + wrong) if right + wrong else 1.0
