"""A walk over the batches of one file. Everything that reads a log reads it through this: readers, recovery, compaction, tools."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.batch import HEADER_BYTES, RECORDS_AT, Header, check_body, read_header, u32
from trilogue.core.errors import Corrupt
from trilogue.store.disk import Disk, read_exactly

CHUNK_BYTES: Final = 262_144
HOP_BYTES: Final = 4_096        # a walk over headers alone reads little at each stop


class Scanner:
    """Stands on one batch at a time: `header` at `at`. Used by one thread."""

    def __init__(self, disk: Disk, fd: int, name: str, at: i64, limit: i64, chunk_bytes: i64 = CHUNK_BYTES) -> None:
        self.disk: Disk = disk
        self.fd: int = fd
        self.name: str = name
        self.at: i64 = at
        self.limit: i64 = limit             # nothing is read beyond it
        self.chunk_bytes: i64 = chunk_bytes
        self.header: Header | None = None
        self.bytes_read: i64 = 0
        self.data: bytes = b""
        self.data_at: i64 = at              # position of data[0]

    def next(self) -> bool:
        """Step to the next batch; false at the limit. `Corrupt` if no intact header is there, and then `at` is where."""
        header = self.header
        if header is not None:
            self.at += header.size
            self.header = None
        if self.at >= self.limit:
            return False
        self.fill(RECORDS_AT)
        i: i64 = self.at - self.data_at
        try:
            header = read_header(self.data, i)
        except Corrupt as error:
            raise self.corrupt(str(error)) from None
        if header.size > self.limit - self.at:
            raise self.corrupt("batch cut short")
        self.header = header
        return True

    def current(self) -> Header:
        header = self.header
        assert header is not None
        return header

    def batch(self) -> bytes:
        """The whole batch that `header` is of, verified."""
        header = self.current()
        self.fill(header.size)
        i: i64 = self.at - self.data_at
        try:
            check_body(self.data, i, header)
        except Corrupt as error:
            raise self.corrupt(str(error)) from None
        return self.data[i:i + header.size]

    def verify(self) -> None:
        """The same without a copy."""
        header = self.current()
        self.fill(header.size)
        try:
            check_body(self.data, self.at - self.data_at, header)
        except Corrupt as error:
            raise self.corrupt(str(error)) from None

    def buffered(self) -> bool:
        """Is the whole current batch in memory already?"""
        return self.at + self.current().size <= self.data_at + len(self.data)

    def seek(self, at: i64) -> None:
        self.at = at
        self.header = None

    def fill(self, size: i64) -> None:
        """Have `size` bytes from `at` on in memory, or as many as there are."""
        if self.at >= self.data_at and self.at + size <= self.data_at + len(self.data):
            return
        want: i64 = size if size > self.chunk_bytes else self.chunk_bytes
        if want > self.limit - self.at:
            want = self.limit - self.at
        self.data = read_exactly(self.disk, self.fd, want, self.at)
        self.data_at = self.at
        self.bytes_read += len(self.data)

    def claimed_size(self) -> i64:
        """How far the batch at `at` would reach if its length field were true; 0 if there is not even a header."""
        self.fill(HEADER_BYTES)
        i: i64 = self.at - self.data_at
        if len(self.data) - i < HEADER_BYTES:
            return 0
        return HEADER_BYTES + u32(self.data, i + 4)

    def corrupt(self, reason: str) -> Corrupt:
        return Corrupt(f"{self.name} at byte {self.at}: {reason}")
