"""The records of a batch as bytes, unpacked within limits if they are compressed. Batches are stored and served as they came; only those
who look inside pay."""

from __future__ import annotations

import io
from typing import Final

import zstandard
from mypy_extensions import i64

from trilogue.core.batch import CODEC_MASK, CODEC_NONE, CODEC_ZSTD, RECORDS_AT, Header, read_header
from trilogue.core.errors import Corrupt
from trilogue.core.topic import Unpacker

RECORDS_BYTES_MAX: Final = 256 << 20
WINDOW_BYTES_MAX: Final = 8 << 20
READ_BYTES: Final = 1 << 20


class BatchUnpacker(Unpacker):
    def records(self, batch: bytes) -> bytes:
        return records_of(batch, read_header(batch, 0))


def records_of(batch: bytes, header: Header) -> bytes:
    """What follows the 84 bytes of a verified batch, decompressed."""
    codec: i64 = header.flags & CODEC_MASK
    if codec == CODEC_NONE:
        return batch[RECORDS_AT:]
    if codec == CODEC_ZSTD:
        return unpack_zstd(batch[RECORDS_AT:])
    raise Corrupt(f"batch codec {codec} is not known to this version")


def unpack_zstd(packed: bytes) -> bytes:
    """`max_output_size` is no limit where the frame states its own size, so that is looked at first, and the rest is read piece by piece."""
    try:
        stated: int = zstandard.get_frame_parameters(packed).content_size
        if RECORDS_BYTES_MAX < stated != zstandard.CONTENTSIZE_UNKNOWN:
            raise Corrupt(f"batch unpacks to more than {RECORDS_BYTES_MAX} bytes")
        parts: list[bytes] = []
        size: i64 = 0
        with zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).stream_reader(io.BytesIO(packed)) as stream:
            while True:
                part = stream.read(READ_BYTES)
                if not part:
                    break
                size += len(part)
                if size > RECORDS_BYTES_MAX:
                    raise Corrupt(f"batch unpacks to more than {RECORDS_BYTES_MAX} bytes")
                parts.append(part)
    except zstandard.ZstdError as error:
        raise Corrupt(f"batch cannot be unpacked: {error}") from None
    if stated not in (int(size), zstandard.CONTENTSIZE_UNKNOWN):
        raise Corrupt(f"batch unpacks to {size} bytes instead of {stated}")
    return b"".join(parts)


def pack_zstd(records: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(records)
