"""The sparse index of one segment: where, and when, every so many bytes a batch begins.

A file `<base>.idx` is a run of 32-byte entries, big-endian: offset, position, append time, kind (4 bytes), CRC-32C of the 28 bytes before
(4 bytes). The entry of kind END closes it: end offset, size and last append time of the segment. The file is never synced and can always
be rebuilt; whoever uses an entry checks it against the batch that it points to.
"""

from __future__ import annotations

from array import array
from typing import Final

from google_crc32c import value as crc_value
from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from trilogue.core.batch import u32, write_u32

ENTRY_BYTES: Final = 32
KIND_BATCH: Final = 1
KIND_END: Final = 2


class Index:
    """Entries in order. Appended to by one thread; `count` moves last, so that others may read meanwhile."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.positions: array[int] = array("q")
        self.times: array[int] = array("q")
        self.count: i64 = 0

    def add(self, offset: i64, position: i64, time_ms: i64) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(time_ms)
        self.count += 1

    def at_or_before(self, offset: i64) -> i64:
        """The number of the last entry at or below `offset`; -1 if there is none."""
        return bisect(self.offsets, self.count, offset) - 1

    def before_time(self, time_ms: i64) -> i64:
        """The number of the last entry made before `time_ms`; -1 if there is none."""
        return bisect(self.times, self.count, time_ms - 1) - 1

    def cut(self, position: i64) -> None:
        """Forget the entries from this position on."""
        k: i64 = bisect(self.positions, self.count, position - 1)
        self.count = k
        del self.offsets[k:]
        del self.positions[k:]
        del self.times[k:]

    def encode(self) -> bytes:
        parts: list[bytes] = []
        for k in range(self.count):
            parts.append(encode_entry(self.offsets[k], self.positions[k], self.times[k], KIND_BATCH))
        return b"".join(parts)


class End:
    """What the closing entry says about its segment."""

    def __init__(self, offset: i64, size: i64, time_ms: i64) -> None:
        self.offset: i64 = offset
        self.size: i64 = size
        self.time_ms: i64 = time_ms


def bisect(numbers: array[int], count: i64, n: i64) -> i64:
    """How many of the first `count` numbers are at or below `n`."""
    a: i64 = 0
    z: i64 = count
    while a < z:
        m: i64 = (a + z) >> 1
        if numbers[m] <= n:
            a = m + 1
        else:
            z = m
    return a


def encode_entry(offset: i64, position: i64, time_ms: i64, kind: i64) -> bytes:
    w = BytesWriter()
    write_i64_be(w, offset)
    write_i64_be(w, position)
    write_i64_be(w, time_ms)
    write_u32(w, kind)
    crc: i64 = crc_value(w.getvalue())
    write_u32(w, crc)
    return w.getvalue()


def entry_kind(data: bytes, at: i64) -> i64:
    """The kind of the entry at `at`; 0 if it is cut short or its checksum is wrong."""
    if len(data) - at < ENTRY_BYTES:
        return 0
    crc: i64 = crc_value(data[at:at + 28])
    return u32(data, at + 24) if crc == u32(data, at + 28) else 0


def decode_index(data: bytes, size: i64) -> Index:
    """The entries up to the first that is damaged, out of order, or beyond `size`, the bytes of the segment."""
    index = Index()
    at: i64 = 0
    last_offset: i64 = -1
    last_position: i64 = -1
    while entry_kind(data, at) == KIND_BATCH:
        offset: i64 = read_i64_be(data, at)
        position: i64 = read_i64_be(data, at + 8)
        if offset <= last_offset or position <= last_position or position >= size:
            break
        index.add(offset, position, read_i64_be(data, at + 16))
        last_offset = offset
        last_position = position
        at += ENTRY_BYTES
    return index


def decode_end(data: bytes) -> End | None:
    """The closing entry, if these last bytes of an index file are one."""
    if entry_kind(data, 0) != KIND_END:
        return None
    return End(read_i64_be(data, 0), read_i64_be(data, 8), read_i64_be(data, 16))
