"""Batches to fill a log with, and receivers that remember what they were told."""

from __future__ import annotations

from trilogue.core.batch import HEADER_BYTES, check_body, read_header, seal
from trilogue.core.ports import BatchReader, Callback, CheckpointDone, RoundDone, RoundResult
from trilogue.store.datadir import DataDir
from trilogue.store.disk import Disk, OsDisk
from trilogue.store.journal import DiskJournal
from trilogue.store.log import PartitionLog
from trilogue.store.settings import StoreSettings
from trilogue.store.worker import DirectPost, InlineWorker, Post

SMALL = StoreSettings(segment_bytes=4_096, index_interval_bytes=512)
ROOMY = StoreSettings(index_interval_bytes=512)


class Answers(RoundDone):
    def __init__(self) -> None:
        self.results: list[RoundResult] = []
        self.stalls: list[str] = []

    def round_done(self, result: RoundResult) -> None:
        self.results.append(result)

    def round_stalled(self, reason: str) -> None:
        self.stalls.append(reason)


class Commits(CheckpointDone):
    def __init__(self) -> None:
        self.commits: list[tuple[int, Exception | None]] = []

    def checkpoint_done(self, partition: int, error: Exception | None) -> None:
        self.commits.append((partition, error))


class Fetched(BatchReader):
    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.next_offset = -1
        self.error: Exception | None = None
        self.calls = 0

    def batches(self, data: list[bytes], next_offset: int, error: Exception | None) -> None:
        self.data, self.next_offset, self.error = data, next_offset, error
        self.calls += 1


class Later(Post):
    """Keeps callbacks until the test lets the loop turn."""

    def __init__(self) -> None:
        self.waiting: list[Callback] = []

    def post(self, callback: Callback) -> None:
        self.waiting.append(callback)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback.fire()


class Node:
    """A journal without threads."""

    def __init__(self, path: object, settings: StoreSettings = SMALL, disk: Disk | None = None, post: Post | None = None) -> None:
        self.disk = disk or OsDisk()
        self.datadir = DataDir(self.disk, str(path))
        self.writer = InlineWorker()
        self.answers = Answers()
        self.journal = DiskJournal(self.disk, self.datadir, settings, post or DirectPost(), self.writer, InlineWorker(), InlineWorker())
        self.journal.attach(self.answers)

    def open(self, partition: int = 1, synced: bool = True) -> PartitionLog:
        log = self.journal.open(partition, synced)
        assert isinstance(log, PartitionLog)
        return log

    def round(self) -> RoundResult:
        self.journal.begin_round()
        return self.answers.results[-1]

    def close(self) -> None:
        self.journal.close()

    def crash(self) -> None:
        """As after kill -9: whatever was written stays, nothing is tidied up."""
        self.journal.files.close()
        self.disk.close(self.journal.root_fd)
        self.disk.close(self.datadir.lock_fd)


def batch(base: int, payload: bytes = b"x" * 100, count: int = 1, synced_to: int = 0, time_ms: int = 1_000, **more: int) -> bytes:
    """A batch whose records are not records: the store never looks inside."""
    return seal(payload, base, base + count - 1, 1, synced_to, time_ms, count, **more) + payload


def append(log: PartitionLog, payload: bytes = b"x" * 100, count: int = 1, time_ms: int = 1_000) -> bytes:
    """Stage one batch as a partition would, with the log's own `synced_to`."""
    base = log.end_offset()
    data = batch(base, payload, count, log.synced_offset(), time_ms)
    log.stage([data[:HEADER_BYTES + 20], data[HEADER_BYTES + 20:]], base + count, time_ms)
    return data


def read_all(log: PartitionLog, bytes_max: int = 1_000) -> list[bytes]:
    """Every batch, each checked once more."""
    out: list[bytes] = []
    offset = log.start_offset()
    while True:
        data = log.read(offset, bytes_max)
        if not data:
            return out
        for item in data:
            header = read_header(item, 0)
            check_body(item, 0, header)
            offset = header.last + 1
        out.extend(data)
