"""One partition's log: what is staged for the next round, what is written, what is synced, and in which segments.

Owned by the loop. The journal takes what is staged as `Work`, has it written and synced elsewhere, and gives it back to `finish`; until
then nothing that the loop knows about the file changes. Offsets never repeat. The segment of the next batch is decided right after a
batch was staged, so that `segment_base` is never a guess.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.batch import RECORDS_AT, read_header, u32
from trilogue.core.errors import StoreError
from trilogue.core.ports import BatchReader, Log, SegmentInfo
from trilogue.store.files import File
from trilogue.store.index import KIND_BATCH, Index, encode_entry
from trilogue.store.reader import FetchTask, read_batches
from trilogue.store.scan import HOP_BYTES, Scanner
from trilogue.store.segment import Segment, SegmentList, base_of, remove_segment_files
from trilogue.store.worker import Post, Task, Worker

INDEX_ENTRIES_PER_WRITE: Final = 64
INDEX_BYTES_PER_WRITE: Final = 4 << 20       # of log: large batches make few entries, and a start reads from the last one that was saved


class Chunk:
    """Consecutive bytes for one segment."""

    def __init__(self, segment: Segment) -> None:
        self.segment: Segment = segment
        self.at: i64 = segment.size
        self.size: i64 = 0
        self.end: i64 = segment.end
        self.buffers: list[bytes] = []
        self.following: Segment | None = None       # this chunk closes its segment, and that one comes next
        self.index_at: i64 = 0
        self.index: bytes = b""             # what to add to the index file


class Work:
    """One log's part of a round. Belongs to the sync thread until the round has ended."""

    def __init__(self, log: PartitionLog, chunks: list[Chunk]) -> None:
        self.log: PartitionLog = log
        self.chunks: list[Chunk] = chunks
        self.synced: bool = log.synced_due
        self.done: i64 = 0                  # so many chunks are written
        self.files: list[File] = []         # pinned, waiting for the sync
        self.folders: list[str] = []        # have new entries that are not synced
        self.failed: str = ""


class Staging:
    """The logs that have something for the next round."""

    def __init__(self) -> None:
        self.logs: list[PartitionLog] = []


class PartitionLog(Log):
    def __init__(self, partition: i64, segments: SegmentList, staging: Staging, reader: Worker, sweeper: Worker, post: Post, synced_due: bool,
                 segment_bytes: i64, segment_ms: i64, index_interval_bytes: i64) -> None:
        self.partition: i64 = partition
        self.segment_list: SegmentList = segments
        self.staging: Staging = staging
        self.reader: Worker = reader
        self.sweeper: Worker = sweeper
        self.post: Post = post
        self.synced_due: bool = synced_due
        self.segment_bytes: i64 = segment_bytes
        self.segment_ms: i64 = segment_ms
        self.index_interval_bytes: i64 = index_interval_bytes
        self.failed: str = ""
        self.dropped: bool = False
        self.fetched: bool = False          # somebody read since the page cache was last trimmed
        self.on_disk: bool = len(segments.items) > 0        # has its folder been made?
        self.staged: list[Chunk] = []
        if not segments.items:
            segments.add(new_segment(segments.folder, 0))
        self.active: Segment = segments.items[len(segments.items) - 1]
        self.end: i64 = self.active.end
        self.written: i64 = self.end
        self.synced: i64 = self.end
        self.roll_if_full(self.active.last_time_ms)

    # ---------------------------------------------------------------------------------------- state

    def start_offset(self) -> i64:
        return self.segment_list.items[0].base

    def end_offset(self) -> i64:
        return self.end

    def written_offset(self) -> i64:
        return self.written

    def synced_offset(self) -> i64:
        return self.synced

    def segment_base(self) -> i64:
        return self.active.base

    def segments(self) -> list[SegmentInfo]:
        return [segment.info() for segment in self.segment_list.items]

    # ---------------------------------------------------------------------------------------- writing

    def stage(self, buffers: list[bytes], end_offset: i64, time_ms: i64) -> None:
        if self.failed:
            raise StoreError(self.failed)
        assert not self.dropped
        assert end_offset > self.end
        segment = self.active
        size: i64 = 0
        for buffer in buffers:
            size += len(buffer)
        assert size >= RECORDS_AT
        chunk = self.open_chunk()
        chunk.buffers.extend(buffers)
        chunk.size += size
        chunk.end = end_offset
        if segment.size == 0:
            segment.first_time_ms = time_ms
        if segment.indexed_at < 0 or segment.size - segment.indexed_at >= self.index_interval_bytes:
            self.index_batch(segment, self.end, segment.size, time_ms)
        if size >= 2 * self.index_interval_bytes:
            self.index_buffers(segment, buffers)
        segment.size += size
        segment.end = end_offset
        segment.last_time_ms = time_ms
        self.end = end_offset
        self.roll_if_full(time_ms)

    def open_chunk(self) -> Chunk:
        """The chunk for the active segment, which makes the log a part of the next round."""
        staged = self.staged
        if staged:
            chunk = staged[len(staged) - 1]
            if chunk.segment is self.active:
                return chunk
        else:
            self.staging.logs.append(self)
        chunk = Chunk(self.active)
        staged.append(chunk)
        return chunk

    def index_batch(self, segment: Segment, offset: i64, position: i64, time_ms: i64) -> None:
        index = segment.index
        assert index is not None
        index.add(offset, position, time_ms)
        segment.indexed_at = position
        segment.unsaved.append(encode_entry(offset, position, time_ms, KIND_BATCH))

    def index_buffers(self, segment: Segment, buffers: list[bytes]) -> None:
        """Entries inside one large flush, wherever a batch begins together with a buffer, as it usually does."""
        position: i64 = segment.size
        batch_at: i64 = position
        for buffer in buffers:
            n: i64 = len(buffer)
            i: i64 = batch_at - position
            while i < n:
                if n - i < RECORDS_AT:
                    return
                if position + i - segment.indexed_at >= self.index_interval_bytes:
                    header = read_header(buffer, i)
                    self.index_batch(segment, header.base, position + i, header.time_ms)
                i += 64 + u32(buffer, i + 4)
            position += n
            batch_at = position - n + i

    def roll_if_full(self, time_ms: i64) -> None:
        segment = self.active
        if segment.size >= self.segment_bytes or (segment.size and time_ms - segment.first_time_ms >= self.segment_ms):
            self.roll()

    def roll(self) -> None:
        """Close the active segment, unless it is empty; the next batch begins a new one."""
        if self.active.size == 0:
            return
        following = new_segment(self.segment_list.folder, self.end)
        self.open_chunk().following = following
        self.active = following
        self.segment_list.add(following)

    # ---------------------------------------------------------------------------------------- rounds

    def take(self) -> Work:
        """Everything staged, for a round."""
        chunks = self.staged
        self.staged = []
        for chunk in chunks:
            segment = chunk.segment
            if chunk.following is not None or is_index_due(segment):
                chunk.index_at = segment.saved_bytes
                if chunk.following is not None:
                    segment.unsaved.append(segment.end_entry())
                chunk.index = b"".join(segment.unsaved)
                segment.saved_bytes += len(chunk.index)
                segment.saved_at = segment.indexed_at
                segment.unsaved = []
        return Work(self, chunks)

    def finish(self, work: Work) -> None:
        """The round has ended."""
        if work.failed:
            self.failed = work.failed
            return
        for chunk in work.chunks:
            chunk.segment.written = chunk.at + chunk.size
            self.written = chunk.end
            if chunk.following is not None:
                chunk.following.made = True
        self.synced = self.written

    # ---------------------------------------------------------------------------------------- reading

    def fetch(self, offset: i64, bytes_max: i64, reader: BatchReader) -> None:
        self.fetched = True
        self.reader.submit(FetchTask(self.segment_list, offset, bytes_max, reader, self.post))

    def read(self, offset: i64, bytes_max: i64) -> list[bytes]:
        try:
            return read_batches(self.segment_list, offset, bytes_max).data
        except OSError as error:
            raise StoreError(f"{self.segment_list.folder} cannot be read: {error}") from error

    def offset_for_time(self, time_ms: i64) -> i64:
        for segment in self.segment_list.items:
            if segment.last_time_ms >= time_ms and segment.written:
                offset = self.find_time(segment, time_ms)
                if offset >= 0:
                    return offset
        # What is staged but not written was made after everything that is.
        if self.active.last_time_ms >= time_ms and self.written < self.end:
            return self.written
        return self.end

    def find_time(self, segment: Segment, time_ms: i64) -> i64:
        segments = self.segment_list
        file = segments.open(segment)
        if file is None:
            return -1
        try:
            scanner = Scanner(segments.disk, file.fd, segment.path, 0, segment.written, HOP_BYTES)
            scanner.seek(segments.find_time_entry(segment, scanner, time_ms))
            while scanner.next():
                if scanner.current().time_ms >= time_ms:
                    return scanner.current().base
        finally:
            segments.files.release(file)
        return -1

    # ---------------------------------------------------------------------------------------- removing

    def delete_segments(self, bases: list[int]) -> None:
        """One that is not closed on disk yet stays, and can be deleted after the next round."""
        gone: list[Segment] = []
        items = self.segment_list.items
        for k in range(len(items) - 1):
            if items[k].base in bases and items[k + 1].made:
                gone.append(items[k])
        if gone:
            self.segment_list.remove(gone)
            self.sweeper.submit(SweepTask(self.segment_list, gone))

    def truncate(self, offset: i64) -> None:
        """Cut off every batch that reaches `offset` or beyond; blocking, with nothing staged or under way.

        From the end backwards, each step synced, so that a crash on the way leaves a log that is merely longer.
        """
        assert not self.staged
        assert self.written == self.end
        segments = self.segment_list
        if offset >= self.end:
            return
        first: i64 = 0
        while first < len(segments.items) and segments.items[first].base < offset:
            first += 1
        if first == 0 or segments.items[first - 1].end < offset:
            # What was just below is deleted already. Its offsets are used up all the same, and the name of an empty segment keeps that.
            if segments.items[first].base != offset:
                self.make_empty(first, offset)
            first += 1
        for segment in reversed(segments.items[first:]):
            segments.remove([segment])
            remove_segment_files(segments.disk, segments.files, segment)
            if self.synced_due:
                segments.disk.fsync_dir(segments.folder)
        self.active = segments.items[len(segments.items) - 1]
        if self.active.written:
            self.cut_active(offset)
        self.end = self.active.end
        self.written = self.end
        self.synced = self.end

    def make_empty(self, at: i64, base: i64) -> None:
        segments = self.segment_list
        segment = new_segment(segments.folder, base)
        segment.made = True
        # A deleted segment would overlap with the new one if a crash brought it back: all of them go for good first.
        bases = [item.base for item in segments.items]
        for name in segments.disk.listdir(segments.folder):
            other = base_of(name)
            if other >= 0 and other not in bases:
                remove_segment_files(segments.disk, segments.files, Segment(segments.folder, other))
        segments.disk.fsync_dir(segments.folder)
        segments.files.release(segments.files.acquire(segment.path, True))
        if self.synced_due:
            segments.disk.fsync_dir(segments.folder)
        with segments.lock:
            segments.items = [*segments.items[:at], segment, *segments.items[at:]]

    def cut_active(self, offset: i64) -> None:
        segments = self.segment_list
        segment = self.active
        file = segments.files.acquire(segment.path)
        try:
            scanner = Scanner(segments.disk, file.fd, segment.path, 0, segment.written, HOP_BYTES)
            scanner.seek(segments.find_entry(segment, scanner, offset - 1))
            end: i64 = segment.base
            while scanner.next():
                header = scanner.current()
                if header.last >= offset:
                    end = min(header.base, offset)
                    break
                end = header.last + 1
                segment.last_time_ms = header.time_ms
            segments.disk.truncate(file.fd, scanner.at)
            segments.disk.fdatasync(file.fd)
            set_size(segment, segments.index_of(segment, scanner), scanner.at)
        finally:
            segments.files.release(file)
        segment.end = end


class SweepTask(Task):
    """Unlinking a large file takes long, so it is nobody's business who has to answer. A crash may bring the files back; that does no harm."""

    def __init__(self, segments: SegmentList, gone: list[Segment]) -> None:
        self.segments: SegmentList = segments
        self.gone: list[Segment] = gone

    def run(self) -> bool:
        for segment in self.gone:
            try:
                remove_segment_files(self.segments.disk, self.segments.files, segment)
            except OSError:
                continue
        return True


def new_segment(folder: str, base: i64) -> Segment:
    segment = Segment(folder, base)
    segment.index = Index()
    return segment


def is_index_due(segment: Segment) -> bool:
    """Is there enough that the index file does not have yet?"""
    return len(segment.unsaved) >= INDEX_ENTRIES_PER_WRITE or segment.indexed_at - segment.saved_at >= INDEX_BYTES_PER_WRITE


def set_size(segment: Segment, index: Index, size: i64) -> None:
    """The file now ends at `size`: bring the memory of a segment that is going to be written to into line."""
    segment.size = size
    segment.written = size
    segment.dropped_to = min(segment.dropped_to, size)
    index.cut(size)
    segment.index = index
    segment.indexed_at = index.positions[index.count - 1] if index.count else -1
    # Written anew as a whole at the next occasion: nobody knows how much of the file is still true.
    segment.unsaved = [index.encode()] if index.count else []
    segment.saved_bytes = 0
    segment.saved_at = 0

