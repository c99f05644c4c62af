from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.core.batch import BATCH_BYTES_MAX, HEADER_BYTES, RECORDS_AT, check_body, read_header, restamp, seal, stamp
from trilogue.core.errors import Corrupt

I64 = st.integers(0, (1 << 62) - 1)
U32 = st.integers(0, (1 << 32) - 1)

# What other programs must be able to read: changing it needs a new format version.
VECTOR = bytes.fromhex(
    "5452010000000017000000000000006400000002000000030000000000000032000000000000c350"
    "00000000000000000000000000000000")


def test_layout_of_the_header() -> None:
    batch = seal(b"abc", 100, 102, 3, 50, 50_000, 3) + b"abc"
    assert batch[:56] == VECTOR
    assert batch[56:64].hex() == "730eac117b2da65c"
    assert batch[64:].hex() == "0000000000000000000000000000000000000003616263"


@settings(deadline=None, derandomize=True)
@given(I64, U32, U32, I64, I64, U32, U32, U32, st.binary(max_size=200))
def test_round_trip(base: int, delta: int, epoch: int, synced_to: int, time_ms: int, producer_epoch: int, sequence: int, count: int,
                    records: bytes) -> None:
    data = b"before" + seal(records, base, base + delta, epoch, synced_to, time_ms, count, 1, 7, producer_epoch, sequence) + records
    header = read_header(data, 6)
    check_body(data, 6, header)
    assert (header.base, header.last, header.epoch, header.synced_to, header.time_ms) == (base, base + delta, epoch, synced_to, time_ms)
    assert (header.flags, header.producer, header.producer_epoch, header.sequence, header.count) == (1, 7, producer_epoch, sequence, count)
    assert header.size == RECORDS_AT + len(records) == len(data) - 6
    stamped = restamp(data[6:], 1)
    assert read_header(stamped, 0).synced_to == 1
    check_body(stamped, 0, read_header(stamped, 0))


def test_every_flipped_bit_is_found() -> None:
    batch = seal(b"some records", 5, 6, 1, 2, 3, 2) + b"some records"
    for bit in range(len(batch) * 8):
        bad = bytearray(batch)
        bad[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(Corrupt):
            check_body(bytes(bad), 0, read_header(bytes(bad), 0))


def test_every_cut_is_found() -> None:
    batch = seal(b"some records", 5, 6, 1, 2, 3, 2) + b"some records"
    for size in range(len(batch)):
        with pytest.raises(Corrupt):
            check_body(batch[:size], 0, read_header(batch[:size], 0))


@pytest.mark.parametrize("length", [RECORDS_AT - HEADER_BYTES - 1, BATCH_BYTES_MAX + 1])
def test_a_length_out_of_range_is_refused_whatever_the_checksum_says(length: int) -> None:
    with pytest.raises(Corrupt, match="length"):
        read_header(stamp(0, length, 0, 0, 0, 0, 0, 0, 0, 0, 0) + bytes(20), 0)
