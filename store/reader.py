"""Reading a log: whole batches, header and body verified, never beyond what is written.

A batch that contradicts its checksum is an error for the reader, never data. Runs in the reading thread (`FetchTask`) or at once (tools,
recovery). A segment may be deleted or replaced by compaction meanwhile: then the reading begins anew on the list as it is now.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import Corrupt, StoreError
from trilogue.core.ports import BatchReader, Callback
from trilogue.store.scan import Scanner
from trilogue.store.segment import Segment, SegmentList
from trilogue.store.worker import Post, Task

SKIP_BYTES: Final = 65_536


class Batches:
    """What was read, and the offset to go on with."""

    def __init__(self, next_offset: i64) -> None:
        self.data: list[bytes] = []
        self.size: i64 = 0
        self.next_offset: i64 = next_offset


class FetchTask(Task):
    def __init__(self, segments: SegmentList, offset: i64, bytes_max: i64, reader: BatchReader, post: Post) -> None:
        self.segments: SegmentList = segments
        self.offset: i64 = offset
        self.bytes_max: i64 = bytes_max
        self.reader: BatchReader = reader
        self.post: Post = post

    def run(self) -> bool:
        error: Exception | None = None
        batches = Batches(self.offset)
        try:
            batches = read_batches(self.segments, self.offset, self.bytes_max)
        except Corrupt as corrupt:
            error = corrupt
        except OSError as failure:
            error = StoreError(f"{self.segments.folder} cannot be read: {failure}")
        self.post.post(FetchAnswer(self.reader, batches, error))
        return True


class FetchAnswer(Callback):
    def __init__(self, reader: BatchReader, batches: Batches, error: Exception | None) -> None:
        self.reader: BatchReader = reader
        self.batches: Batches = batches
        self.error: Exception | None = error

    def fire(self) -> None:
        self.reader.batches(self.batches.data, self.batches.next_offset, self.error)


def read_batches(segments: SegmentList, offset: i64, bytes_max: i64) -> Batches:
    """From the batch that holds `offset`, or the first one after it: at most `bytes_max`, but at least one batch if there is one."""
    while True:
        out = Batches(offset)
        items = segments.items
        k = segments.find(items, offset)
        while k < len(items) and not out.data:
            if not read_segment(segments, items[k], offset, bytes_max, out):
                break
            k += 1
        else:
            return out


def read_segment(segments: SegmentList, segment: Segment, offset: i64, bytes_max: i64, out: Batches) -> bool:
    """False if the segment is gone and the list has to be looked at again."""
    limit = segment.written
    if limit == 0:
        return True
    file = segments.open(segment)
    if file is None:
        return False
    try:
        scanner = Scanner(segments.disk, file.fd, segment.path, 0, limit, bytes_max + SKIP_BYTES)
        scanner.seek(segments.find_entry(segment, scanner, offset))
        while scanner.next():
            header = scanner.current()
            if header.last < offset:
                continue
            if out.data and (out.size + header.size > bytes_max or not scanner.buffered()):
                break
            if out.data and header.base < out.next_offset:
                raise scanner.corrupt(f"offset {header.base} comes after {out.next_offset - 1}")
            out.data.append(scanner.batch())
            out.size += header.size
            out.next_offset = header.last + 1
    finally:
        segments.files.release(file)
    return True
