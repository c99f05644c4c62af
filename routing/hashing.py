"""Placement by hash: CRC-32C of the UTF-8 bytes, modulo, everywhere. (Python's own `hash` differs from process to process.)

Every node, every client and every later version must compute the same numbers, so nothing here may ever change.
"""

from __future__ import annotations

from google_crc32c import value as crc_value
from mypy_extensions import i64


def crc32c(data: bytes) -> i64:
    crc: i64 = crc_value(data)
    return crc


def partition_of(key: bytes, count: i64) -> i64:
    """The partition, of `count`, that a key belongs to."""
    assert count > 0
    return crc32c(key) % count


def mix(n: i64) -> i64:
    """Spread a 32-bit number over all 32 bits, one to one.

    A CRC is linear: numbers made from similar names differ in a pattern. The multiplier is small enough for the product to stay below
    2^63, so that both builds agree.
    """
    n &= 0xFFFFFFFF
    n = ((n ^ (n >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    n = ((n ^ (n >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return n ^ (n >> 16)
