"""The batch: what a log is made of, and what goes between nodes byte for byte.

All fields are fixed-width and big-endian.

==========  ====  =========================================================================================
byte        size  field
==========  ====  =========================================================================================
0           2     magic 0x5452
2           1     format version (1)
3           1     flags: bits 0-2 codec (0 none, 1 zstd, 2 reserved for lz4)
4           4     length: number of bytes after byte 64
8           8     base offset
16          4     last offset delta (offsets may have holes after compaction)
20          4     leader epoch
24          8     `synced_to`: the first offset not known to be on disk when this batch was written
32          8     append time, ms
40          4     origin cluster (0: this one)
44          8     origin offset
52          4     encryption key id (0: none)
56          4     body CRC-32C over everything after byte 64, made by whoever built the batch
60          4     header CRC-32C over bytes 0-59, made by the broker that stores the batch
64          8     producer id (0: none)
72          4     producer epoch
76          4     base sequence
80          4     record count
84                records (compressed as one block if the codec says so)
==========  ====  =========================================================================================

The header CRC covers the body CRC, so that a header can never be paired with another batch's body. A follower restamps `synced_to` and
the header CRC; the body, and its CRC, stay as they were made.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import extend as crc_extend
from google_crc32c import value as crc_value
from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from trilogue.core.errors import Corrupt

MAGIC: Final = 0x5452
VERSION: Final = 1
HEADER_BYTES: Final = 64
RECORDS_AT: Final = 84
CODEC_MASK: Final = 7
CODEC_NONE: Final = 0
CODEC_ZSTD: Final = 1
BATCH_BYTES_MAX: Final = 1 << 30
U32: Final = 0xFFFFFFFF


class Header:
    """The decoded fixed part of one stored batch. `size` is the whole batch in bytes."""

    def __init__(self, flags: i64, size: i64, base: i64, last: i64, epoch: i64, synced_to: i64, time_ms: i64,
                 producer: i64, producer_epoch: i64, sequence: i64, count: i64) -> None:
        self.flags: i64 = flags
        self.size: i64 = size
        self.base: i64 = base
        self.last: i64 = last
        self.epoch: i64 = epoch
        self.synced_to: i64 = synced_to
        self.time_ms: i64 = time_ms
        self.producer: i64 = producer
        self.producer_epoch: i64 = producer_epoch
        self.sequence: i64 = sequence
        self.count: i64 = count


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & U32


def write_u32(w: BytesWriter, n: i64) -> None:
    if n > 0x7FFFFFFF:
        n -= 0x100000000
    write_i32_be(w, i32(n))


def write_u16(w: BytesWriter, n: i64) -> None:
    if n > 0x7FFF:
        n -= 0x10000
    write_i16_be(w, i16(n))


def make_body_head(producer: i64, producer_epoch: i64, sequence: i64, count: i64) -> bytes:
    w = BytesWriter()
    write_i64_be(w, producer)
    write_u32(w, producer_epoch)
    write_u32(w, sequence)
    write_u32(w, count)
    return w.getvalue()


def seal(records: bytes, base: i64, last: i64, epoch: i64, synced_to: i64, time_ms: i64, count: i64,
         flags: i64 = 0, producer: i64 = 0, producer_epoch: i64 = 0, sequence: i64 = 0) -> bytes:
    """The 84 bytes that go in front of `records` (already compressed, if the codec in `flags` says so)."""
    body_head = make_body_head(producer, producer_epoch, sequence, count)
    body_crc: i64 = crc_extend(crc_value(body_head), records)
    return stamp(flags, len(body_head) + len(records), base, last - base, epoch, synced_to, time_ms, 0, 0, 0, body_crc) + body_head


def stamp(flags: i64, length: i64, base: i64, delta: i64, epoch: i64, synced_to: i64, time_ms: i64,
          origin_cluster: i64, origin_offset: i64, key_id: i64, body_crc: i64) -> bytes:
    """The broker's 64 bytes: everything that may differ between two copies of one batch, under the header CRC."""
    w = BytesWriter()
    write_u16(w, MAGIC)
    w.append(VERSION)
    w.append(int(flags))
    write_u32(w, length)
    write_i64_be(w, base)
    write_u32(w, delta)
    write_u32(w, epoch)
    write_i64_be(w, synced_to)
    write_i64_be(w, time_ms)
    write_u32(w, origin_cluster)
    write_i64_be(w, origin_offset)
    write_u32(w, key_id)
    write_u32(w, body_crc)
    crc: i64 = crc_value(w.getvalue())
    write_u32(w, crc)
    return w.getvalue()


def restamp(batch: bytes, synced_to: i64) -> bytes:
    """The same batch with another `synced_to`: what a follower does with the value of its own disk."""
    head = batch[:24] + _i64(synced_to) + batch[32:60]
    w = BytesWriter()
    w.write(head)
    crc: i64 = crc_value(head)
    write_u32(w, crc)
    w.write(batch[64:])
    return w.getvalue()


def _i64(n: i64) -> bytes:
    w = BytesWriter()
    write_i64_be(w, n)
    return w.getvalue()


def read_header(data: bytes, at: i64) -> Header:
    """Decode and check the header at `at`; `Corrupt` if it is cut short or its checksum is wrong."""
    if len(data) - at < RECORDS_AT:
        raise Corrupt("batch header cut short")
    if (i64(read_i16_be(data, at)) & 0xFFFF) != MAGIC:
        raise Corrupt("no batch begins here")
    crc: i64 = crc_value(data[at:at + 60])
    if crc != u32(data, at + 60):
        raise Corrupt("batch header checksum is wrong")
    if data[at + 2] != VERSION:
        raise Corrupt(f"batch format {data[at + 2]} is not known to this version")
    length: i64 = u32(data, at + 4)
    if length < RECORDS_AT - HEADER_BYTES or length > BATCH_BYTES_MAX:
        raise Corrupt("batch length is out of range")
    base: i64 = read_i64_be(data, at + 8)
    return Header(data[at + 3], HEADER_BYTES + length, base, base + u32(data, at + 16), u32(data, at + 20),
                  read_i64_be(data, at + 24), read_i64_be(data, at + 32), read_i64_be(data, at + 64),
                  u32(data, at + 72), u32(data, at + 76), u32(data, at + 80))


def check_body(data: bytes, at: i64, header: Header) -> None:
    """`Corrupt` unless the batch at `at` is complete and its body matches its checksum."""
    end: i64 = at + header.size
    if len(data) < end:
        raise Corrupt("batch body cut short")
    crc: i64 = crc_value(data[at + HEADER_BYTES:end])
    if crc != u32(data, at + 56):
        raise Corrupt("batch body checksum is wrong")
