"""Git's compressed bitmaps (EWAH), as a split index has them: the numbers of the bits set.

A bitmap is a count of bits, a count of 64-bit words, the words, and the position of the last
marker. A marker word says how many words of equal bits follow it, and how many literal words.
"""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">II")
_POSITION = Struct(">I")
_WORD_BITS = 64


class GitBitmapError(Exception):
    """The bytes are no bitmap."""


def set_bits(data: bytes, at: int, most: int) -> tuple[list[int], int]:
    """The bits set in the bitmap at `at`, ascending, and where it ends. Bits are below `most`."""
    if at + _HEAD.size > len(data):
        raise GitBitmapError("a bitmap is cut off")
    bits, words = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    end = at + words * 8
    if bits > most or end + _POSITION.size > len(data):
        raise GitBitmapError("a bitmap is cut off or too large")
    found: list[int] = []
    bit = 0
    while at < end:
        marker = int.from_bytes(data[at : at + 8], "big")
        at += 8
        run = (marker >> 1 & 0xFFFF_FFFF) * _WORD_BITS
        literals = marker >> 33
        if bit + run > bits + _WORD_BITS or at + literals * 8 > end:
            raise GitBitmapError("a bitmap is longer than it says")
        if marker & 1:
            found += range(bit, bit + run)
        bit += run
        for _ in range(literals):
            word = int.from_bytes(data[at : at + 8], "big")
            at += 8
            found += (bit + i for i in range(_WORD_BITS) if word >> i & 1)
            bit += _WORD_BITS
        if bit > bits + _WORD_BITS:
            raise GitBitmapError("a bitmap is longer than it says")
    if found and found[-1] >= bits:
        raise GitBitmapError("a bit outside the bitmap")
    return found, end + _POSITION.size
