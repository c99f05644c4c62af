"""Compressed batches are unpacked within limits."""

from __future__ import annotations

import pytest
import zstandard

from tests.store.helpers import batch
from trilogue.core.batch import read_header
from trilogue.core.errors import Corrupt
from trilogue.store.codec import RECORDS_BYTES_MAX, pack_zstd, records_of


def unpack(payload: bytes, flags: int) -> bytes:
    data = batch(0, payload, flags=flags)
    return records_of(data, read_header(data, 0))


def test_plain_and_zstd() -> None:
    records = b"some records " * 10_000
    assert unpack(records, 0) == records
    assert unpack(pack_zstd(records), 1) == records
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(records)
    assert unpack(unsized, 1) == records


def test_what_unpacks_to_too_much_is_refused_by_its_own_word() -> None:
    with pytest.raises(Corrupt, match="more than"):
        unpack(zstandard.ZstdCompressor(level=1).compress(bytes(RECORDS_BYTES_MAX + 1)), 1)


def test_what_does_not_say_its_size_is_stopped_on_the_way() -> None:
    packer = zstandard.ZstdCompressor(level=1, write_content_size=False)
    with pytest.raises(Corrupt, match="more than"):
        unpack(packer.compress(bytes(RECORDS_BYTES_MAX + 1)), 1)


@pytest.mark.parametrize("payload", [b"", b"rubbish", pack_zstd(b"x" * 1_000)[:-3]])
def test_rubbish_is_corrupt(payload: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack(payload, 1)


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="codec 2"):
        unpack(b"x", 2)
