"""Compaction by key: of every key, only the last record stays; offsets, and the order, stay as they are.

The key of a message is its key, or else its routing key; of a state record its key. Records without one always stay. A tombstone (the
rule decides what is one) goes `delete_retention_ms` after it was first cleaned, when every reader has had its chance to see it: when
that was is kept in the file `compaction`, as (offset, time) pairs: everything below the offset was clean at that time.

Only closed segments are compacted. `step` does a bounded piece of work, so that a thread may run it beside others; nothing of the log's
state changes but by `SegmentList.swap`. A crash loses the work of a group of segments, never a record (see `swap.py`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Final

from google_crc32c import extend as crc_extend
from google_crc32c import value as crc_value
from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import CODEC_MASK, CODEC_ZSTD, Header, make_body_head, stamp, u32, write_u32
from trilogue.core.decoding import decode
from trilogue.core.errors import Corrupt
from trilogue.core.message import Run
from trilogue.core.record import Messages, Record, State
from trilogue.store.codec import pack_zstd, records_of
from trilogue.store.disk import Disk, read_whole, replace_whole, unlink_if_there, write_all, write_whole
from trilogue.store.files import File
from trilogue.store.index import Index
from trilogue.store.scan import Scanner
from trilogue.store.segment import Segment, SegmentList, remove_segment_files
from trilogue.store.swap import clean_path, decide_swap, put_in_place, remove_replaced

STATE_NAME: Final = "compaction"
DIGEST_BYTES: Final = 16
MAPPING: Final = 0
CLEANING: Final = 1
FINISHED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Tombstones(ABC):
    """Knows the encodings of messages, which the store does not."""

    @abstractmethod
    def is_tombstone(self, run: Run, span: bytes) -> bool:
        """Does this message say that its key has no value any more?"""


class Mark:
    """Everything below `upto` was clean at `time_ms`; 0: so long ago that the tombstones there are gone."""

    def __init__(self, upto: i64, time_ms: i64) -> None:
        self.upto: i64 = upto
        self.time_ms: i64 = time_ms


class Compactor:
    """One compaction of one log. Used by one thread; the log may be written, read and trimmed meanwhile."""

    def __init__(self, segments: SegmentList, tombstones: Tombstones, now_ms: i64, delete_retention_ms: i64, segment_bytes: i64,
                 keys_max: i64 = 4_000_000, step_bytes: i64 = 1 << 20) -> None:
        self.segments: SegmentList = segments
        self.disk: Disk = segments.disk
        self.tombstones: Tombstones = tombstones
        self.now_ms: i64 = now_ms
        self.delete_retention_ms: i64 = delete_retention_ms
        self.segment_bytes: i64 = segment_bytes
        self.keys_max: i64 = keys_max
        self.step_bytes: i64 = step_bytes
        self.marks: list[Mark] = load_marks(self.disk, segments.folder)
        self.closed: list[Segment] = closed_segments(segments)
        self.last: dict[bytes, int] = {}            # digest of a key: the highest offset it was seen at
        self.upto: i64 = self.marks[len(self.marks) - 1].upto if self.marks else 0
        self.phase: i64 = MAPPING
        self.at: i64 = 0                            # number of the segment under work
        self.file: File | None = None
        self.scanner: Scanner | None = None
        self.group: Group | None = None
        self.records_dropped: i64 = 0
        self.bytes_before: i64 = 0
        self.bytes_after: i64 = 0

    def run(self) -> None:
        while not self.step():
            pass

    def step(self) -> bool:
        """Do some more; true when there is nothing left to do."""
        if self.phase == MAPPING:
            self.map_some()
        elif self.phase == CLEANING:
            self.clean_some()
        return self.phase == FINISHED

    def close(self) -> None:
        """Give up: what was not swapped yet is thrown away."""
        self.leave_segment()
        group = self.group
        if group is not None:
            group.discard()
            self.group = None
        self.phase = FINISHED

    # ---------------------------------------------------------------------------------------- which record is the last

    def map_some(self) -> None:
        if self.scanner is None:
            while self.at < len(self.closed) and self.closed[self.at].end <= self.upto:
                self.at += 1
            # Only whole segments: one that has more keys than are wanted is mapped to its end all the same.
            if self.at == len(self.closed) or len(self.last) >= self.keys_max:
                self.begin_cleaning()
                return
        scanner = self.enter_segment(self.closed[self.at])
        if scanner is None:
            self.close()
            return
        stop: i64 = scanner.at + self.step_bytes
        while scanner.next():
            header = scanner.current()
            for record in decode(header, records_of(scanner.batch(), header)):
                self.map_record(record)
            if scanner.at >= stop:
                return
        self.leave_segment()
        self.upto = self.closed[self.at].end
        self.at += 1

    def map_record(self, record: Record) -> None:
        key = key_of(record)
        if key is not None:
            self.last[digest(key)] = int(record.offset + record.span_count() - 1)

    def begin_cleaning(self) -> None:
        self.phase = CLEANING
        self.closed = [segment for segment in self.closed if segment.end <= self.upto]
        self.at = 0
        if not self.last and not self.tombstone_due():
            self.finish()

    def tombstone_due(self) -> bool:
        """Was anything cleaned long enough ago for its tombstones to go?"""
        return any(mark.time_ms and self.now_ms - mark.time_ms >= self.delete_retention_ms for mark in self.marks)

    # ---------------------------------------------------------------------------------------- keeping only those

    def clean_some(self) -> None:
        if self.at == len(self.closed):
            if self.end_group():
                self.finish()
            return
        segment = self.closed[self.at]
        group = self.group
        # How much will stay of a segment is not known before: between half and one and a half of the usual size come out.
        if group is not None and self.scanner is None and 2 * group.size >= self.segment_bytes:
            self.end_group()
            return
        scanner = self.enter_segment(segment)
        if scanner is None:
            self.close()
            return
        if group is None:
            group = Group(self.segments, segment)
            self.group = group
        stop: i64 = scanner.at + self.step_bytes
        while scanner.next():
            self.clean_batch(group, scanner)
            if scanner.at >= stop:
                return
        self.leave_segment()
        group.old.append(segment)
        group.last_time_ms = segment.last_time_ms
        self.bytes_before += segment.size
        self.at += 1

    def clean_batch(self, group: Group, scanner: Scanner) -> None:
        header = scanner.current()
        batch = scanner.batch()
        records = records_of(batch, header)
        kept: list[bytes] = []
        dropped: i64 = 0
        at: i64 = 0
        while at < len(records):
            end: i64 = at + 4 + u32(records, at)
            raw = records[at:end]
            if self.stays(decode(header, raw)[0]):
                kept.append(raw)
            else:
                dropped += 1
            at = end
        self.records_dropped += dropped
        if dropped == 0:
            group.add(header, batch)
        elif kept:
            group.add(header, rebuild(batch, header, kept))

    def stays(self, record: Record) -> bool:
        key = key_of(record)
        if key is None:
            return True
        latest = self.last.get(digest(key))
        if latest is not None and latest > record.offset:
            return False
        return not self.is_tombstone(record) or not self.is_over(record.offset)

    def is_tombstone(self, record: Record) -> bool:
        if isinstance(record, State):
            return not record.value
        assert isinstance(record, Messages)
        return self.tombstones.is_tombstone(record.run, record.run.spans[0])

    def is_over(self, offset: i64) -> bool:
        """Was this offset clean long enough ago?"""
        for mark in self.marks:
            if mark.upto > offset:
                return self.now_ms - mark.time_ms >= self.delete_retention_ms
        return False

    def end_group(self) -> bool:
        """Put the group in place. False, and everything ends, if some of its segments were deleted meanwhile."""
        group = self.group
        if group is None:
            return True
        self.group = None
        if not group.put_in_place():
            self.close()
            return False
        self.bytes_after += group.size
        return True

    def finish(self) -> None:
        self.phase = FINISHED
        for mark in self.marks:
            if self.now_ms - mark.time_ms >= self.delete_retention_ms:
                mark.time_ms = 0
        if self.last:
            self.marks.append(Mark(self.upto, self.now_ms))
        # Of those that are over, the last one says it all.
        while len(self.marks) > 1 and self.marks[1].time_ms == 0:
            self.marks.pop(0)
        if self.marks:
            replace_whole(self.disk, self.segments.folder, STATE_NAME, encode_marks(self.marks))

    # ---------------------------------------------------------------------------------------- the segment under work

    def enter_segment(self, segment: Segment) -> Scanner | None:
        """A scanner on it, or the one from the last step; None if the segment is gone."""
        scanner = self.scanner
        if scanner is None:
            file = self.segments.open(segment)
            if file is None:
                return None
            self.file = file
            scanner = Scanner(self.disk, file.fd, segment.path, 0, segment.written)
            self.scanner = scanner
        return scanner

    def leave_segment(self) -> None:
        file = self.file
        if file is not None:
            self.segments.files.release(file)
        self.file = None
        self.scanner = None


class Group:
    """Neighbouring segments that become one, on its way into `<base>.clean`."""

    def __init__(self, segments: SegmentList, first: Segment) -> None:
        self.segments: SegmentList = segments
        self.disk: Disk = segments.disk
        self.base: i64 = first.base
        self.path: str = clean_path(segments.folder, first.base)
        self.fd: int = self.disk.open(self.path, True)
        self.disk.truncate(self.fd, 0)
        self.old: list[Segment] = []
        self.index: Index = Index()
        self.indexed_at: i64 = -1
        self.size: i64 = 0
        self.end: i64 = first.base
        self.last_time_ms: i64 = 0

    def add(self, header: Header, batch: bytes) -> None:
        if self.indexed_at < 0 or self.size - self.indexed_at >= self.segments.index_interval_bytes:
            self.index.add(header.base, self.size, header.time_ms)
            self.indexed_at = self.size
        self.size = write_all(self.disk, self.fd, [batch], self.size)
        self.end = header.last + 1
        self.last_time_ms = header.time_ms

    def discard(self) -> None:
        self.disk.close(self.fd)
        unlink_if_there(self.disk, self.path)

    def put_in_place(self) -> bool:
        if self.size == 0:
            self.discard()
            if not self.segments.swap(self.old, None):
                return False
            for segment in self.old:
                remove_segment_files(self.disk, self.segments.files, segment)
            return True
        self.disk.fdatasync(self.fd)
        self.disk.close(self.fd)
        return self.replace()

    def replace(self) -> bool:
        segments = self.segments
        name = decide_swap(self.disk, segments.folder, self.base, self.old[len(self.old) - 1].end)
        segment = Segment(segments.folder, self.base)
        final_path = segment.path
        segment.path = f"{segments.folder}/{name}"
        segment.index = self.index
        segment.size = self.size
        segment.written = self.size
        segment.end = self.end
        segment.last_time_ms = self.last_time_ms
        segment.made = True
        if not segments.swap(self.old, segment):
            unlink_if_there(self.disk, segment.path)
            self.disk.fsync_dir(segments.folder)
            return False
        # From here on readers find the new segment, under the name that decided.
        for old in self.old:
            segments.files.forget(old.path)
        remove_replaced(self.disk, segments.folder, name)
        with segments.lock:
            put_in_place(self.disk, segments.folder, name)
            segments.files.forget(segment.path)
            segment.path = final_path
        self.disk.fsync_dir(segments.folder)
        write_whole(self.disk, segment.index_path, self.index.encode() + segment.end_entry())
        return True


def closed_segments(segments: SegmentList) -> list[Segment]:
    """Those that nothing is written to any more."""
    items = segments.items
    return [items[k] for k in range(len(items) - 1) if items[k + 1].made and items[k].written == items[k].size]


def key_of(record: Record) -> bytes | None:
    if isinstance(record, Messages):
        return record.run.key or record.run.routing_key
    if isinstance(record, State):
        return record.key
    return None


def digest(key: bytes) -> bytes:
    """Keys may be long; what is remembered of each is not."""
    return key if len(key) < DIGEST_BYTES else hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


def rebuild(batch: bytes, header: Header, kept: list[bytes]) -> bytes:
    """The same batch with fewer records: offsets, times, producer and origin stay."""
    records = b"".join(kept)
    if header.flags & CODEC_MASK == CODEC_ZSTD:
        records = pack_zstd(records)
    body_head = make_body_head(header.producer, header.producer_epoch, header.sequence, len(kept))
    crc: i64 = crc_extend(crc_value(body_head), records)
    return stamp(header.flags, len(body_head) + len(records), header.base, header.last - header.base, header.epoch, header.synced_to,
                 header.time_ms, u32(batch, 40), read_i64_be(batch, 44), u32(batch, 52), crc) + body_head + records


def encode_marks(marks: list[Mark]) -> bytes:
    w = BytesWriter()
    for mark in marks:
        write_i64_be(w, mark.upto)
        write_i64_be(w, mark.time_ms)
    crc: i64 = crc_value(w.getvalue())
    write_u32(w, crc)
    return w.getvalue()


def load_marks(disk: Disk, folder: str) -> list[Mark]:
    try:
        data = read_whole(disk, f"{folder}/{STATE_NAME}")
    except FileNotFoundError:
        return []
    n: i64 = len(data) - 4
    if n < 0 or n % 16 or crc_value(data[:n]) != u32(data, n):
        raise Corrupt(f"{folder}/{STATE_NAME} does not match its checksum")
    return [Mark(read_i64_be(data, at), read_i64_be(data, at + 8)) for at in range(0, n, 16)]
