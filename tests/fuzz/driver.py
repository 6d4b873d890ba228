"""Mutated inputs for one parser: seeds that are real, changes that a number repeats exactly.

Input `i` of seed `s` depends on nothing else, so a failure is repeated by its two numbers:
`python -m fuzz.run --target NAME --seed S --first I --count 1`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MAX_INPUT = 1 << 16
_INTERESTING = (
    b"\0", b"\xff", b"\x7f", b"\x80", b"\n", b"\r\n", b"\r", b" ", b"\t", b":", b"\0\0\0\0",
    b"\xff\xff\xff\xff", b"\xff\xff", b"\0\x01", b"\x80\0\0\0", b"\xff\xff\xff\x7f", b"\xc0\x0c",
    b" HTTP/1.1\r\n", b"Host: other.test\r\n", b"Content-Length: 5\r\n", b"[core]\n", b'"', b"\\",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """`check` raises for anything but the parser's declared refusal.

    `check_many`: where a batch is cheaper (a program that is started for it).
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], object]
    words: Sequence[bytes] = ()
    check_many: Callable[[Sequence[bytes]], object] | None = None


class Finding(AssertionError):
    """An input that a parser got wrong, with what repeats it."""


def mutated(rng: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8))):
        _change(rng, data, seeds, words)
    return bytes(data[:MAX_INPUT])


def _change(
    rng: random.Random, data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]
) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 64)))
    match rng.randrange(9):
        case 0 if data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        case 2:
            del data[at:end]
        case 3:
            del data[at:]
        case 4:
            data[at:at] = data[at:end] * rng.choice((1, 2, 16))
        case 5:
            data[at:end] = rng.choice(_INTERESTING)
        case 6:
            data[at:at] = rng.choice(tuple(words) or _INTERESTING)
        case 7:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[at:] = other[start:]
        case _:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def inputs(target: Target, seed: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """The seeds as they are, then without end their mutations."""
    seeds = list(target.seeds())
    number = first
    while True:
        if number < len(seeds):
            yield number, seeds[number]
        else:
            yield number, mutated(random.Random(f"{seed}:{number}"), seeds, target.words)
        number += 1


def run(
    target: Target, seed: int, *, count: int | None = None, seconds: float | None = None,
    first: int = 0, batch: int = 500,
) -> int:  # fmt: skip
    """How many inputs were tried: `count`, or as many as fit. Finding at the first failure."""
    until = None if seconds is None else time.monotonic() + seconds
    done = 0
    source = inputs(target, seed, first)
    while (count is None or done < count) and (until is None or time.monotonic() < until):
        size = batch if count is None else min(batch, count - done)
        taken = [next(source) for _ in range(size)]
        if target.check_many is not None:
            _try_many(target, seed, taken)
        else:
            for number, data in taken:
                _try(target, seed, number, data)
        done += size
    return done


def _try(target: Target, seed: int, number: int, data: bytes) -> None:
    try:
        target.check(data)
    except Exception as error:
        raise _finding(target, seed, number, data, error) from error


def _try_many(target: Target, seed: int, taken: Sequence[tuple[int, bytes]]) -> None:
    assert target.check_many is not None
    try:
        target.check_many([data for _, data in taken])
    except Exception:
        for number, data in taken:  # which of them it was
            _try(target, seed, number, data)
        raise


def _finding(target: Target, seed: int, number: int, data: bytes, error: Exception) -> Finding:
    return Finding(
        f"{target.name}: {type(error).__name__}: {error}\ninput {number} of seed {seed}, "
        f"{len(data)} bytes: {data[:400].hex()}\nrepeat: python -m fuzz.run "
        f"--target {target.name} --seed {seed} --first {number} --count 1"
    )
