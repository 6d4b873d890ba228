"""Amounts that are charged: tokens, and money in whole micro-dollars. Pure."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from sandboxd_proto.errors import InvalidParams

MICROS = 1_000_000
MOST_TOKENS = 1 << 53  # JSON readers keep integers exact up to here
MOST_USD = 1e9


class Amounts(NamedTuple):
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micros: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cost_micros + other.cost_micros,
        )


def to_micros(usd: float, field: str) -> int:
    if not math.isfinite(usd) or usd < 0 or usd > MOST_USD:
        raise InvalidParams(
            f"{field} must be a number of dollars from 0 to {MOST_USD:.0f}", field=field
        )
    return int((Decimal(str(usd)) * MICROS).quantize(Decimal(1), ROUND_HALF_UP))


def to_usd(micros: int) -> float:
    return micros / MICROS


def charge_of(tokens_in: int, tokens_out: int, cost_usd: float) -> Amounts:
    """A charge as it was sent, checked."""
    for name, value in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        if not 0 <= value <= MOST_TOKENS:
            raise InvalidParams(f"{name} must be 0 or more", field=name)
    return Amounts(tokens_in, tokens_out, to_micros(cost_usd, "cost_usd"))
