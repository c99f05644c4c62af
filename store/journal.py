"""All logs of a node, and the rounds that write and sync them.

A round takes everything staged, for all logs. The sync thread writes it, syncs it, and answers once; meanwhile the next round collects.
What it may rely on, and keeps true:

* A segment file is made only when everything before it in its log is synced, so that only the last segment can have a torn tail.
* A full disk (or quota, or descriptor table) is waited out: the file is cut back to its last good length and the same bytes are written
  again, every 250 ms, until they are taken (RULES 6).
* Any other error, and every error of a sync, stops the logs that it concerns and no others (RULES 7). Nothing is retried as if it were safe.
"""

from __future__ import annotations

from typing import Final

import structlog
from mypy_extensions import i64

from trilogue.core.ports import Callback, Journal, Log, RoundDone, RoundResult
from trilogue.store.datadir import CleanMark, DataDir
from trilogue.store.disk import NO_DESCRIPTOR, WAITABLE, Disk, write_all
from trilogue.store.files import File, Files
from trilogue.store.log import Chunk, PartitionLog, Staging, Work
from trilogue.store.recovery import Recovery, recover
from trilogue.store.segment import Segment, SegmentList
from trilogue.store.settings import FSYNC, StoreSettings
from trilogue.store.worker import Post, Task, Worker

FILES_SYNCED_SINGLY_MAX: Final = 2
CACHE_STEP_BYTES: Final = 32 << 20
CACHE_BEHIND_BYTES: Final = 64 << 20

logger = structlog.get_logger("store")


class DiskJournal(Journal):
    """Owned by the loop; `Round` runs in the sync thread (`writer`). `attach` the receiver of answers before the first round."""

    def __init__(self, disk: Disk, datadir: DataDir, settings: StoreSettings, post: Post, writer: Worker, reader: Worker, sweeper: Worker) -> None:
        self.disk: Disk = disk
        self.datadir: DataDir = datadir
        self.settings: StoreSettings = settings
        self.post: Post = post
        self.writer: Worker = writer
        self.reader: Worker = reader
        self.sweeper: Worker = sweeper
        self.files: Files = Files(disk, settings.descriptors_max)
        self.staging: Staging = Staging()
        self.logs: dict[int, PartitionLog] = {}
        self.expected: dict[int, int] = {}
        self.receiver: RoundDone | None = None
        self.flying: Round | None = None
        self.recovered_bytes: i64 = 0       # read from logs while opening them
        # Write-back errors are reported to descriptors opened before they happened, so this one lives as long as the journal.
        self.root_fd: int = disk.open_dir(datadir.path)
        self.syncfs_usable: bool = disk.syncfs_reports()

    def attach(self, receiver: RoundDone) -> None:
        self.receiver = receiver

    # ---------------------------------------------------------------------------------------- logs

    def expect(self, partition: i64, offset: i64) -> None:
        """A checkpoint proves that the log was on disk up to `offset`: opening it will insist (RULES 4)."""
        if offset > self.expected.get(partition, 0):
            self.expected[partition] = offset

    def open(self, partition: i64, synced: bool) -> Log:
        log = self.logs.get(partition)
        if log is not None:
            return log
        synced_due = synced and self.settings.durability == FSYNC
        segments = SegmentList(self.disk, self.files, self.datadir.folder_of(partition), self.settings.index_interval_bytes)
        recovery = Recovery(segments, self.datadir.mark_of(partition), self.expected.get(partition, 0), synced_due)
        recover(recovery)
        self.recovered_bytes += recovery.bytes_read
        log = PartitionLog(partition, segments, self.staging, self.reader, self.sweeper, self.post, synced_due, self.settings.segment_bytes,
                           self.settings.segment_ms, self.settings.index_interval_bytes)
        self.logs[partition] = log
        return log

    def partitions(self) -> list[int]:
        """All that have a folder, open or not."""
        return self.datadir.partitions()

    def drop(self, partition: i64) -> None:
        log = self.logs.pop(partition, None)
        self.expected.pop(partition, None)
        if log is not None:
            log.dropped = True
            log.staged = []
            if log in self.staging.logs:
                self.staging.logs.remove(log)
        self.writer.submit(DropTask(self.datadir, self.files, partition, self.sweeper))

    def free_bytes(self) -> i64:
        return self.disk.free_bytes(self.datadir.path)

    # ---------------------------------------------------------------------------------------- rounds

    def dirty(self) -> bool:
        return len(self.staging.logs) > 0

    def begin_round(self) -> None:
        assert self.flying is None, "one round at a time"
        works: list[Work] = []
        for log in self.staging.logs:
            works.append(log.take())
        self.staging.logs = []
        flying = Round(self, works)
        self.flying = flying
        self.writer.submit(flying)

    def finish(self, ended: Round) -> None:
        failed: list[tuple[int, str]] = []
        for work in ended.works:
            work.log.finish(work)
            if work.failed and not work.log.dropped:
                failed.append((int(work.log.partition), work.failed))
        self.flying = None
        receiver = self.receiver
        assert receiver is not None
        receiver.round_done(RoundResult(failed))

    def stalled(self, reason: str) -> None:
        receiver = self.receiver
        assert receiver is not None
        receiver.round_stalled(reason)

    def close(self) -> None:
        """Stop the threads, finish what is under way, and leave the mark of a clean shutdown for every log that is whole."""
        self.reader.close()
        self.writer.close()
        self.sweeper.close()
        marks: dict[int, CleanMark] = {}
        unsynced_marked = self.sync_unsynced()
        for partition, log in self.logs.items():
            whole = not log.failed and not log.staged and log.written == log.end
            if whole and log.on_disk and (log.synced_due or unsynced_marked):
                segment = log.active
                marks[partition] = CleanMark(log.end, segment.base, segment.size)
                save_index(self.disk, segment.index_path, segment.saved_bytes, b"".join(segment.unsaved))
        self.files.close()
        self.disk.close(self.root_fd)
        self.datadir.close(marks)

    def sync_unsynced(self) -> bool:
        """At a clean end even logs that are never synced become so, by one call for all."""
        if all(log.synced_due for log in self.logs.values()):
            return True
        try:
            self.disk.syncfs(self.root_fd)
        except OSError:
            return False
        return self.syncfs_usable


class Round(Task):
    """The work of one round. `run` goes on where it had to stop."""

    def __init__(self, journal: DiskJournal, works: list[Work]) -> None:
        self.journal: DiskJournal = journal
        self.disk: Disk = journal.disk
        self.files: Files = journal.files
        self.works: list[Work] = works
        self.at: i64 = 0                # so many works are written
        self.has_stalled: bool = False

    def run(self) -> bool:
        n: i64 = len(self.works)
        while self.at < n:
            if not self.write(self.works[self.at]):
                return False
            self.at += 1
        if not self.sync():
            return False
        for work in self.works:
            self.let_go(work)
        self.journal.post.post(RoundEnd(self))
        return True

    def stall(self, reason: str) -> bool:
        """Have the round called again; the receiver is told once."""
        if not self.has_stalled:
            self.has_stalled = True
            self.journal.post.post(RoundStalled(self.journal, reason))
        return False

    # ---------------------------------------------------------------------------------------- write

    def write(self, work: Work) -> bool:
        while work.done < len(work.chunks) and not work.failed:
            chunk = work.chunks[work.done]
            following = chunk.following
            try:
                self.write_chunk(work, chunk)
                if following is not None:
                    if work.synced and not self.sync_work(work):
                        return False
                    if not work.failed:
                        self.make(work, following)
            except OSError as error:
                if error.errno in WAITABLE:
                    return self.stall(str(error))
                work.failed = f"writing failed: {error}"
            work.done += 1
        return True

    def write_chunk(self, work: Work, chunk: Chunk) -> None:
        segment = chunk.segment
        folder = work.log.segment_list.folder
        begins = chunk.at == 0
        if begins and not work.log.on_disk:
            self.disk.mkdir(folder)
            work.log.on_disk = True
            work.folders.append(self.journal.datadir.logs_path)
        if begins:
            self.make(work, segment)
        file = self.file_of(work, segment.path)
        # Before the write: a failed one leaves pages to be written back too.
        file.dirty = work.synced
        try:
            write_all(self.disk, file.fd, chunk.buffers, chunk.at)
        except OSError:
            self.cut_back(file, chunk.at)
            raise
        save_index(self.disk, segment.index_path, chunk.index_at, chunk.index)

    def make(self, work: Work, segment: Segment) -> None:
        """Have the segment's file. It is made with the end of the segment before it: its name keeps the log's end when that one is deleted."""
        self.file_of(work, segment.path)
        folder = work.log.segment_list.folder
        if folder not in work.folders:
            work.folders.append(folder)

    def file_of(self, work: Work, path: str) -> File:
        """Pinned until the log is synced; a repeated attempt finds it pinned already."""
        for file in work.files:
            if file.path == path:
                return file
        file = self.files.acquire(path, True)
        work.files.append(file)
        return file

    def cut_back(self, file: File, size: i64) -> None:
        try:
            self.disk.truncate(file.fd, size)
        except OSError as error:
            # The next attempt writes over it; only a crash in between would have to cut it as a torn tail.
            logger.warning("could not cut back", file=file.path, error=str(error))

    # ---------------------------------------------------------------------------------------- sync

    def sync(self) -> bool:
        due: list[Work] = []
        count: i64 = 0
        for work in self.works:
            if work.synced and not work.failed:
                due.append(work)
                count += len(work.files)
        if count > FILES_SYNCED_SINGLY_MAX and self.journal.syncfs_usable and self.sync_at_once(due):
            return True
        return all(self.sync_work(work) for work in due)

    def sync_at_once(self, due: list[Work]) -> bool:
        try:
            self.disk.syncfs(self.journal.root_fd)
        except OSError as error:
            logger.error("syncfs failed; every file is synced on its own", error=str(error), logs=len(due))
            return False
        for work in due:
            self.trim_cache(work)
            self.let_go(work)
        return True

    def sync_work(self, work: Work) -> bool:
        """Everything of this log that is written so far, and the folders that name it. False: no descriptor to be had, try again."""
        try:
            while work.folders:
                self.disk.fsync_dir(work.folders[len(work.folders) - 1])
                work.folders.pop()
            for file in work.files:
                self.disk.fdatasync(file.fd)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                self.files.give_back()
                return self.stall(str(error))
            work.failed = f"sync failed: {error}"
            return True
        self.trim_cache(work)
        self.let_go(work)
        return True

    def let_go(self, work: Work) -> None:
        for file in work.files:
            # A failed log is never written again; its descriptor has told its error and need not be kept.
            file.dirty = False
            self.files.release(file)
        work.files = []
        work.folders = []

    def trim_cache(self, work: Work) -> None:
        """Drop the page cache behind the tail, where the live end is served from memory (HOTPATH rule 10)."""
        if not self.journal.settings.drop_cache or not work.files:
            return
        chunk = work.chunks[min(work.done, len(work.chunks) - 1)]
        segment = chunk.segment
        end: i64 = chunk.at + chunk.size
        while end - segment.dropped_to >= CACHE_BEHIND_BYTES + CACHE_STEP_BYTES:
            if not work.log.fetched:
                self.disk.forget_pages(work.files[len(work.files) - 1].fd, segment.dropped_to, CACHE_STEP_BYTES)
            work.log.fetched = False
            segment.dropped_to += CACHE_STEP_BYTES


class RoundEnd(Callback):
    def __init__(self, ended: Round) -> None:
        self.ended: Round = ended

    def fire(self) -> None:
        self.ended.journal.finish(self.ended)


class RoundStalled(Callback):
    def __init__(self, journal: DiskJournal, reason: str) -> None:
        self.journal: DiskJournal = journal
        self.reason: str = reason

    def fire(self) -> None:
        self.journal.stalled(self.reason)


class DropTask(Task):
    """Runs in the sync thread, so that no round is writing to the folder: takes it out of the way at once, and has it emptied elsewhere."""

    def __init__(self, datadir: DataDir, files: Files, partition: i64, sweeper: Worker) -> None:
        self.datadir: DataDir = datadir
        self.files: Files = files
        self.partition: i64 = partition
        self.sweeper: Worker = sweeper

    def run(self) -> bool:
        folder = self.datadir.folder_of(self.partition)
        for path in list(self.files.open_files):
            if path.startswith(folder + "/"):
                self.files.forget(path)
        try:
            self.datadir.disk.rename(folder, folder + ".gone")
        except OSError:
            return True
        self.sweeper.submit(EmptyTask(self.datadir))
        return True


class EmptyTask(Task):
    def __init__(self, datadir: DataDir) -> None:
        self.datadir: DataDir = datadir

    def run(self) -> bool:
        self.datadir.empty_gone()
        return True


def save_index(disk: Disk, path: str, at: i64, entries: bytes) -> None:
    """Best effort: an index can be rebuilt, so no round fails, waits or syncs for it."""
    if not entries:
        return
    try:
        fd = disk.open(path, True)
        try:
            disk.truncate(fd, at)
            write_all(disk, fd, [entries], at)
        finally:
            disk.close(fd)
    except OSError as error:
        logger.warning("index not saved", file=path, error=str(error))
