"""What the user spent today (UTC), in a file that all daemons of the user share.

Changed under a lock and by rename. A clock that is set back changes nothing: a later date in the
file stays. For worker threads: the lock may be held by another daemon.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from sandboxd.platform.current import files
from sandboxd.supervisor.budgets.amounts import to_micros, to_usd
from sandboxd.supervisor.budgets.ledger import USER, budget_error
from sandboxd_proto.errors import BudgetExceeded


class Day(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: str = ""
    cost_micros: int = 0


class DayFile:
    def __init__(self, folder: str, limit_usd: float | None) -> None:
        self.path = os.path.join(folder, "day.json")
        self._limit_usd = limit_usd

    def charge(self, cost_micros: int, now: float) -> None:
        """Add to today's sum. BudgetExceeded, with nothing changed, above the limit or if the
        file cannot be read."""
        if self._limit_usd is None or cost_micros == 0:
            return
        try:
            with self._locked():
                day = self._today(now)
                after = day.cost_micros + cost_micros
                if after > to_micros(self._limit_usd, "per_user_daily_usd"):
                    raise budget_error(USER, "per_user_daily_usd", to_usd(after), self._limit_usd)
                self._write(Day(day.date, after))
        except OSError as error:
            raise self._unusable(f"cannot be stored in {self.path} ({error.strerror})") from None

    def spent(self, now: float) -> int:
        with self._locked():
            return self._today(now).cost_micros

    def _today(self, now: float) -> Day:
        today = time.strftime("%Y-%m-%d", time.gmtime(now))
        stored = self._read()
        return stored if stored.date >= today else Day(today, 0)

    def _read(self) -> Day:
        try:
            with open(self.path, "rb") as file:
                return msgspec.json.decode(file.read(4096), type=Day)
        except FileNotFoundError:
            return Day()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            raise self._unusable(f"cannot be read from {self.path}") from None

    def _unusable(self, problem: str) -> BudgetExceeded:
        return BudgetExceeded(
            f"what was spent today {problem}",
            reason="per_user_daily_usd", observed=0.0, limit=self._limit_usd or 0.0,
            session="user", remedy=f"look at {self.path}, and remove it to start at zero",
        )  # fmt: skip

    def _write(self, day: Day) -> None:
        scratch = f"{self.path}.{os.getpid()}"
        with open(scratch, "wb") as file:
            file.write(msgspec.json.encode(day))
            file.flush()
            files.sync(file.fileno())
        os.replace(scratch, self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT | files.PRIVATE, 0o600)
        try:
            files.lock(lock)
            yield
        finally:
            os.close(lock)
