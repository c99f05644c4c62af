"""Segments: the files `<20-digit base offset>.log` that a partition's log consists of, and their list.

The list is replaced, never changed, so that the reading thread may walk it while the loop adds and removes; whoever replaces it holds
`lock`. A segment file comes into being only when everything before it is synced, so that only the last one can have a torn tail.
"""

from __future__ import annotations

import threading

from mypy_extensions import i64

from trilogue.core.errors import Corrupt
from trilogue.core.ports import SegmentInfo
from trilogue.store.disk import Disk, read_whole, unlink_if_there
from trilogue.store.files import File, Files
from trilogue.store.index import KIND_END, Index, decode_index, encode_entry
from trilogue.store.scan import HOP_BYTES, Scanner


class Segment:
    """Offsets [base, end) in `size` bytes, of which `written` are in the file. Changed by the loop only, but for `index`."""

    def __init__(self, folder: str, base: i64) -> None:
        self.base: i64 = base
        self.path: str = f"{folder}/{base:020d}.log"
        self.index_path: str = f"{folder}/{base:020d}.idx"
        self.end: i64 = base
        self.size: i64 = 0
        self.written: i64 = 0
        self.made: bool = False                 # its file exists, for good
        self.gone: bool = False                 # deleted or replaced; whoever still holds it looks at the list again
        self.first_time_ms: i64 = 0
        self.last_time_ms: i64 = 0
        self.index: Index | None = None         # None: not read from its file yet
        self.indexed_at: i64 = -1               # position of the last entry
        self.unsaved: list[bytes] = []          # entries that are not in the index file yet
        self.saved_bytes: i64 = 0               # of the index file
        self.saved_at: i64 = 0                  # position of the last entry in it
        self.dropped_to: i64 = 0                # the page cache was told to forget what is before this

    def info(self) -> SegmentInfo:
        return SegmentInfo(self.base, self.end, self.size, self.last_time_ms)

    def end_entry(self) -> bytes:
        return encode_entry(self.end, self.size, self.last_time_ms, KIND_END)


class SegmentList:
    """All segments of one log, oldest first, and what is needed to read them."""

    def __init__(self, disk: Disk, files: Files, folder: str, index_interval_bytes: i64) -> None:
        self.index_interval_bytes: i64 = index_interval_bytes
        self.disk: Disk = disk
        self.files: Files = files
        self.folder: str = folder
        self.items: list[Segment] = []
        self.lock: threading.Lock = threading.Lock()

    def find(self, items: list[Segment], offset: i64) -> i64:
        """The number of the segment that holds `offset`, or else of the first one after it."""
        a: i64 = 0
        z: i64 = len(items)
        while a < z:
            m: i64 = (a + z) >> 1
            if items[m].end <= offset:
                a = m + 1
            else:
                z = m
        return a

    def add(self, segment: Segment) -> None:
        with self.lock:
            self.items = [*self.items, segment]

    def remove(self, gone: list[Segment]) -> None:
        with self.lock:
            for segment in gone:
                segment.gone = True
            self.items = [segment for segment in self.items if not segment.gone]

    def swap(self, old: list[Segment], new: Segment | None) -> bool:
        """Put `new` where `old` were, if they are all still there."""
        with self.lock:
            for segment in old:
                if segment.gone:
                    return False
            at = self.items.index(old[0])
            for segment in old:
                segment.gone = True
            self.items = self.items[:at] + ([] if new is None else [new]) + self.items[at + len(old):]
            return True

    def open(self, segment: Segment) -> File | None:
        """The segment's file, pinned; None if the segment is gone, since its name may be another's now."""
        with self.lock:
            return None if segment.gone else self.files.acquire(segment.path)

    def find_entry(self, segment: Segment, scanner: Scanner, offset: i64) -> i64:
        """The position of the last indexed batch at or below `offset`, else 0. The scanner is on the segment's file."""
        index = self.index_of(segment, scanner)
        k = index.at_or_before(offset)
        if k >= 0 and not entry_holds(scanner, index.positions[k], index.offsets[k]):
            index = self.rebuild_index(segment, scanner)
            k = index.at_or_before(offset)
        return index.positions[k] if k >= 0 else 0

    def find_time_entry(self, segment: Segment, scanner: Scanner, time_ms: i64) -> i64:
        """The position of the last indexed batch from before `time_ms`, else 0."""
        index = self.index_of(segment, scanner)
        k = index.before_time(time_ms)
        if k >= 0 and not entry_holds(scanner, index.positions[k], index.offsets[k]):
            index = self.rebuild_index(segment, scanner)
            k = index.before_time(time_ms)
        return index.positions[k] if k >= 0 else 0

    def index_of(self, segment: Segment, scanner: Scanner) -> Index:
        """The segment's index, from memory, from its file, or rebuilt."""
        index = segment.index
        if index is None:
            index = load_index(self.disk, segment)
            if index is None:
                return self.rebuild_index(segment, scanner)
            segment.index = index
        return index

    def rebuild_index(self, segment: Segment, scanner: Scanner) -> Index:
        """An index file is never synced: after a crash it may be older than its segment. The segment decides."""
        hops = Scanner(self.disk, scanner.fd, scanner.name, 0, scanner.limit, HOP_BYTES)
        index = build_index(hops, self.index_interval_bytes)
        segment.index = index
        return index


def entry_holds(scanner: Scanner, position: i64, offset: i64) -> bool:
    """Does a batch with this base offset begin at this position?"""
    scanner.seek(position)
    try:
        return scanner.next() and scanner.current().base == offset
    except Corrupt:
        return False


def load_index(disk: Disk, segment: Segment) -> Index | None:
    """What the index file says; None if there is nothing usable."""
    try:
        data = read_whole(disk, segment.index_path)
    except FileNotFoundError:
        return None
    index = decode_index(data, segment.size)
    return index if index.count or not segment.size else None


def build_index(scanner: Scanner, interval_bytes: i64) -> Index:
    """An index from the headers alone."""
    index = Index()
    indexed_at: i64 = -interval_bytes
    expected: i64 = -1
    while scanner.next():
        header = scanner.current()
        if header.base < expected:
            raise scanner.corrupt(f"offset {header.base} comes after {expected - 1}")
        expected = header.last + 1
        if scanner.at - indexed_at >= interval_bytes:
            index.add(header.base, scanner.at, header.time_ms)
            indexed_at = scanner.at
    return index


def remove_segment_files(disk: Disk, files: Files, segment: Segment) -> None:
    """The index first: a crash in between then leaves a segment that can be deleted once more, not an index that belongs to nothing."""
    files.forget(segment.path)
    unlink_if_there(disk, segment.index_path)
    unlink_if_there(disk, segment.path)


def base_of(name: str) -> i64:
    """The base offset in a segment's file name; -1 if it is another kind of file."""
    if not name.endswith(".log"):
        return -1
    digits = name[:-4]
    if len(digits) != 20 or not digits.isdigit():
        raise Corrupt(f"{name} is not the name of a segment")
    return int(digits)
