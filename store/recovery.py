"""Opening a log that exists: finish what a crash interrupted, and decide whether a bad batch is a torn tail or corruption.

For a bad batch that begins with offset p, everything that shows that p was once synced makes it corruption: a later batch whose
`synced_to` is above p, a checkpoint, the mark of a clean shutdown. Then the log is refused with file, position and offset. Otherwise it
is a tail that never got to the disk: cut, and reported. (`synced_to` is an offset: the first one not known to be on disk.)

Only the last segment can have a torn tail (see `segment.py`), and of that only what lies above the last known `synced_to` is read.
A log that is never synced has no such knowledge: its last segment is read as a whole and cut at the first bad batch.
"""

from __future__ import annotations

from typing import Final

import structlog
from mypy_extensions import i64

from trilogue.core.batch import RECORDS_AT, Header, read_header
from trilogue.core.errors import Corrupt, StoreError
from trilogue.store.datadir import CleanMark
from trilogue.store.disk import Disk, read_exactly, read_whole, unlink_if_there
from trilogue.store.index import ENTRY_BYTES, KIND_BATCH, Index, decode_end, decode_index, encode_entry
from trilogue.store.scan import HOP_BYTES, Scanner
from trilogue.store.segment import Segment, SegmentList, base_of, build_index, entry_holds, remove_segment_files
from trilogue.store.swap import finish_swap
from trilogue.store.tail import put_back, rewrite_tail

MAGIC_BYTES: Final = b"\x54\x52"

logger = structlog.get_logger("store")


class Recovery:
    """What is known from elsewhere, and what came out. `recover` fills `segments`."""

    def __init__(self, segments: SegmentList, mark: CleanMark | None, checkpoint: i64, synced: bool) -> None:
        self.segments: SegmentList = segments
        self.disk: Disk = segments.disk
        self.mark: CleanMark | None = mark
        self.synced: bool = synced
        self.index_interval_bytes: i64 = segments.index_interval_bytes
        # Everything below this offset was on disk once, whatever the log itself says.
        self.proven: i64 = max(checkpoint, mark.end) if mark is not None else checkpoint
        self.bytes_read: i64 = 0
        self.bytes_cut: i64 = 0
        self.bytes_rewritten: i64 = 0


def recover(recovery: Recovery) -> None:
    """`Corrupt` if the log must not be used; `StoreError` if the disk does not let us look."""
    folder = recovery.segments.folder
    try:
        names = recovery.disk.listdir(folder)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error}") from error
    try:
        bases = finish_interrupted(recovery, names)
        end: i64 = recover_segments(recovery, bases) if bases else 0
    except OSError as error:
        raise StoreError(f"{folder} cannot be recovered: {error}") from error
    if end < recovery.proven:
        raise Corrupt(f"{folder} ends at offset {end}, but was on disk up to {recovery.proven}: messages are lost")


def finish_interrupted(recovery: Recovery, names: list[str]) -> list[int]:
    """Redo or undo what was under way; returns the base offsets of the segments, in order."""
    disk = recovery.disk
    folder = recovery.segments.folder
    for name in names:
        if name.endswith((".new", ".clean")):
            unlink_if_there(disk, f"{folder}/{name}")
        elif name.endswith(".tail"):
            put_back(disk, folder, name)
        elif name.endswith(".swap"):
            finish_swap(disk, folder, name)
    bases: list[int] = []
    for name in disk.listdir(folder) if names else names:
        base = base_of(name)
        if base >= 0:
            bases.append(int(base))
    return sorted(bases)


def recover_segments(recovery: Recovery, bases: list[int]) -> i64:
    """Describe the closed segments, recover the last one; returns the log's end."""
    folder = recovery.segments.folder
    last: i64 = len(bases) - 1
    k: i64 = 0
    while k < last:
        segment = Segment(folder, bases[k])
        try:
            describe_closed(recovery, segment, bases[k + 1])
        except Corrupt as error:
            if recovery.synced:
                raise
            # Nothing was promised: what comes after the first bad batch goes, as it would within one segment.
            logger.warning("unsynced log cut at a closed segment", reason=str(error), segments_deleted=int(last - k))
            while last > k:
                remove_segment_files(recovery.disk, recovery.segments.files, Segment(folder, bases[last]))
                last -= 1
            break
        recovery.segments.add(segment)
        k += 1
    segment = Segment(folder, bases[last])
    recover_last(recovery, segment)
    recovery.segments.add(segment)
    return segment.end


def describe_closed(recovery: Recovery, segment: Segment, next_base: i64) -> None:
    """End, size and time from the last entries of the index file, if the segment agrees, or else from all headers."""
    disk = recovery.disk
    fd = disk.open(segment.path, False)
    try:
        size: i64 = disk.size(fd)
        segment.size = size
        segment.written = size
        segment.made = True
        scanner = Scanner(disk, fd, segment.path, 0, size, HOP_BYTES)
        if not end_holds(segment, scanner, last_entries(disk, segment.index_path)):
            scanner.seek(0)
            segment.index = build_index(scanner, recovery.index_interval_bytes)
            find_end(segment, scanner)
        recovery.bytes_read += scanner.bytes_read
        if segment.end > next_base:
            raise Corrupt(f"{segment.path} ends at offset {segment.end}, but the next segment begins at {next_base}")
    finally:
        disk.close(fd)


def last_entries(disk: Disk, path: str) -> bytes:
    """The closing entry of an index file and the one before it."""
    try:
        fd = disk.open(path, False)
    except FileNotFoundError:
        return b""
    try:
        size = disk.size(fd)
        return read_exactly(disk, fd, 2 * ENTRY_BYTES, max(0, size - 2 * ENTRY_BYTES))
    finally:
        disk.close(fd)


def end_holds(segment: Segment, scanner: Scanner, entries: bytes) -> bool:
    """Walk from the last indexed batch: it must end as the closing entry says. (A crash may have brought back an older index file.)"""
    end = decode_end(entries[ENTRY_BYTES:])
    before = decode_index(entries[:ENTRY_BYTES], segment.size)
    if end is None or end.size != segment.size or before.count == 0 or not entry_holds(scanner, before.positions[0], before.offsets[0]):
        return False
    try:
        segment.end = scanner.current().last + 1
        segment.last_time_ms = scanner.current().time_ms
        while scanner.next():
            segment.end = scanner.current().last + 1
            segment.last_time_ms = scanner.current().time_ms
    except Corrupt:
        return False
    return segment.end == end.offset


def find_end(segment: Segment, scanner: Scanner) -> None:
    """End and last time of a closed segment whose index was just rebuilt: from its last indexed batch on."""
    index = segment.index
    assert index is not None
    segment.end = segment.base
    if index.count:
        scanner.seek(index.positions[index.count - 1])
        while scanner.next():
            segment.end = scanner.current().last + 1
            segment.last_time_ms = scanner.current().time_ms


# ------------------------------------------------------------------------------------------------ the last segment

def recover_last(recovery: Recovery, segment: Segment) -> None:
    disk = recovery.disk
    fd = disk.open(segment.path, False)
    try:
        size: i64 = disk.size(fd)
        scanner = Scanner(disk, fd, segment.path, 0, size)
        index = usable_index(disk, segment, scanner, size)
        mark = recovery.mark
        clean = mark is not None and mark.base == segment.base and mark.size == size
        start = start_of_scan(recovery, index, scanner, clean)
        tail = Tail(recovery, segment, index, start)
        tail.scan(scanner)
        if tail.reason:
            judge(recovery, segment, scanner, tail)
            disk.truncate(fd, tail.position)
            disk.fdatasync(fd)
        segment.size = tail.position
        segment.written = tail.position
        segment.made = True
        segment.end = tail.expected
        if recovery.synced and not clean and segment.end >= recovery.proven:
            make_safe(recovery, segment, fd, tail)
        segment.first_time_ms = first_time(disk, fd, segment)
        recovery.bytes_read += scanner.bytes_read
    finally:
        disk.close(fd)


def usable_index(disk: Disk, segment: Segment, scanner: Scanner, size: i64) -> Index:
    """What the index file says, as far as its last entry agrees with the segment."""
    try:
        index = decode_index(read_whole(disk, segment.index_path), size)
    except FileNotFoundError:
        index = Index()
    while index.count and not entry_holds(scanner, index.positions[index.count - 1], index.offsets[index.count - 1]):
        index.cut(index.positions[index.count - 1])
    segment.index = index
    segment.indexed_at = index.positions[index.count - 1] if index.count else -1
    segment.saved_bytes = index.count * ENTRY_BYTES
    segment.saved_at = max(0, segment.indexed_at)
    return index


def start_of_scan(recovery: Recovery, index: Index, scanner: Scanner, clean: bool) -> i64:
    """The number of the index entry to verify from; -1: from the beginning."""
    if index.count == 0 or not (clean or recovery.synced):
        return -1
    last = index.count - 1
    if clean:
        return last
    # `usable_index` has left the scanner on the batch of the last entry.
    k = index.at_or_before(max(scanner.current().synced_to, recovery.proven))
    return k if k < 0 or entry_holds(scanner, index.positions[k], index.offsets[k]) else -1


class Tail:
    """The end of the last segment while it is verified, batch by batch."""

    def __init__(self, recovery: Recovery, segment: Segment, index: Index, start: i64) -> None:
        self.segment: Segment = segment
        self.index: Index = index
        self.interval: i64 = recovery.index_interval_bytes
        self.start: i64 = index.positions[start] if start >= 0 else 0
        self.expected: i64 = index.offsets[start] if start >= 0 else segment.base
        self.position: i64 = self.start         # everything before it is good
        self.synced_to: i64 = 0                 # the highest that a good batch knows of
        self.reason: str = ""                   # why it ends at `position`, if the file does not

    def scan(self, scanner: Scanner) -> None:
        scanner.seek(self.start)
        try:
            while scanner.next():
                header = scanner.current()
                if header.base < self.expected:
                    raise scanner.corrupt(f"offset {header.base} comes after {self.expected - 1}")
                scanner.verify()
                self.add(scanner.at, header)
        except Corrupt as error:
            self.reason = str(error)

    def add(self, at: i64, header: Header) -> None:
        segment = self.segment
        if segment.indexed_at < 0 or at - segment.indexed_at >= self.interval:
            self.index.add(header.base, at, header.time_ms)
            segment.indexed_at = at
            segment.unsaved.append(encode_entry(header.base, at, header.time_ms, KIND_BATCH))
        segment.last_time_ms = header.time_ms
        self.expected = header.last + 1
        self.position = at + header.size
        if header.synced_to > self.synced_to:
            self.synced_to = header.synced_to


def judge(recovery: Recovery, segment: Segment, scanner: Scanner, tail: Tail) -> None:
    """A bad batch: raise if it was ever synced, else report what is going to be cut."""
    offset = tail.expected
    proof = recovery.proven
    if recovery.synced and proof <= offset:
        proof = later_synced_to(scanner, tail.position, offset)
    if proof > offset:
        raise Corrupt(f"{tail.reason} (offset {offset}); the log was on disk up to offset {proof}, so this is damage, not an unfinished write")
    recovery.bytes_cut = scanner.limit - tail.position
    logger.warning("torn tail cut off", file=segment.path, position=int(tail.position), offset=int(offset), bytes=int(recovery.bytes_cut),
                   reason=tail.reason)


def later_synced_to(scanner: Scanner, at: i64, offset: i64) -> i64:
    """The highest `synced_to` of a batch header found anywhere after the bad batch at `at`."""
    best: i64 = 0
    scanner.seek(after_bad(scanner, at))
    while scanner.at + RECORDS_AT <= scanner.limit:
        scanner.fill(RECORDS_AT)
        data = scanner.data
        i: i64 = data.find(MAGIC_BYTES, scanner.at - scanner.data_at)
        if i < 0:
            # All but the last byte, which may be the first of a magic number.
            scanner.at = scanner.data_at + len(data) - 1
            continue
        scanner.at = scanner.data_at + i
        if len(data) - i < RECORDS_AT:
            continue
        step: i64 = 1
        try:
            header = read_header(data, i)
            if header.base >= offset and header.synced_to <= header.base:
                best = max(best, header.synced_to)
                step = header.size
        except Corrupt:
            step = 1
        scanner.at += step
    return best


def after_bad(scanner: Scanner, at: i64) -> i64:
    """Where to look on: after the whole batch if only its body is bad, so that nothing inside a message is taken for a batch."""
    try:
        return at + read_header(read_exactly(scanner.disk, scanner.fd, RECORDS_AT, at), 0).size
    except Corrupt:
        return at + 1


def make_safe(recovery: Recovery, segment: Segment, fd: int, tail: Tail) -> None:
    """Write the tail above the last known `synced_to` once more (RULES 7)."""
    known = max(tail.synced_to, recovery.proven)
    if known >= segment.end:
        return
    scanner = Scanner(recovery.disk, fd, segment.path, tail.start, segment.size, HOP_BYTES)
    while scanner.next():
        if scanner.current().last >= known:
            break
    recovery.bytes_rewritten = segment.size - scanner.at
    if recovery.bytes_rewritten:
        rewrite_tail(recovery.disk, recovery.segments.folder, segment.base, fd, scanner.at, segment.size)


def first_time(disk: Disk, fd: int, segment: Segment) -> i64:
    scanner = Scanner(disk, fd, segment.path, 0, segment.size, HOP_BYTES)
    return scanner.current().time_ms if scanner.next() else 0
