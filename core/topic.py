"""A topic's partition: a log that is read by offset, as often as anybody likes.

Readers see only what is on disk, or a crash could reuse an offset that somebody has remembered. The newest runs stay in memory, so
that those who are up to date need not read the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import read_header
from trilogue.core.checkpoint import Checkpointed
from trilogue.core.decoding import decode
from trilogue.core.errors import Corrupt, Unavailable
from trilogue.core.flusher import Flusher
from trilogue.core.lane import run_of
from trilogue.core.message import Run
from trilogue.core.partition import Head
from trilogue.core.ports import BatchReader, Log, Scheduler
from trilogue.core.record import HandedIn, Record, route_part
from trilogue.core.snapshot import copy_number, known_number

RECENT_BYTES: Final = 1 << 20
FETCH_BYTES: Final = 1 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class Unpacker(ABC):
    """Gives back the records of a stored batch, whatever codec it was compressed with; implemented by `store/codec.py`."""

    @abstractmethod
    def records(self, batch: bytes) -> bytes: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicReader(ABC):
    """Somebody who reads a partition from `position` on. Frontends subclass it."""

    def __init__(self, position: i64) -> None:
        self.position: i64 = position
        self.reading: bool = False
        self.closed: bool = False

    @abstractmethod
    def room(self) -> i64: ...

    @abstractmethod
    def deliver(self, partition: TopicPartition, run: Run, start: i64, count: i64) -> None:
        """Messages `run[start:start + count]`; their offsets are `run.offset + start` and following."""

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """The topic is gone (None) or cannot be read."""


class ReaderFetch(BatchReader):
    """A read of everything below `limit`, which is on disk."""

    def __init__(self, partition: TopicPartition, reader: TopicReader, limit: i64) -> None:
        self.partition: TopicPartition = partition
        self.reader: TopicReader = reader
        self.limit: i64 = limit

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        if not data and error is None and self.reader.position < self.limit:
            self.reader.position = self.limit       # nothing is left there
        self.partition.fetched(self.reader, data, error)


class TopicPartition(Checkpointed):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64, unpacker: Unpacker) -> None:
        super().__init__(id, log, scheduler, flusher, epoch)
        self.unpacker: Unpacker = unpacker
        self.readers: list[TopicReader] = []
        self.head: Head = Head(route_part([], -1))
        self.fresh: list[Run] = []              # in the batch that is being collected
        self.flying: list[Run] = []
        self.recent: list[Run] = []             # on disk, and in memory without a gap
        self.recent_bytes: i64 = 0

    def publish(self, run: Run) -> None:
        self.append_messages(run, [], -1, self.head)

    def apply(self, record: Record, segment: i64) -> None:
        if isinstance(record, HandedIn):
            self.marks[record.source] = record.number
            record.run.offset = record.offset
        run = run_of(record)
        if run is not None and self.readers:
            self.fresh.append(run)

    # -------------------------------------------------------------------------------------------- reading

    def attach(self, reader: TopicReader) -> None:
        self.readers.append(reader)
        self.pump(reader)

    def detach(self, reader: TopicReader) -> None:
        reader.closed = True
        if reader in self.readers:
            self.readers.remove(reader)

    def flush(self) -> None:
        super().flush()
        self.flying.extend(self.fresh)
        self.fresh = []

    def flushed(self) -> None:
        super().flushed()
        for run in self.flying:
            last = self.recent[len(self.recent) - 1] if self.recent else None
            if last is not None and last.offset + len(last.spans) != run.offset:
                self.recent = []
                self.recent_bytes = 0
            self.recent.append(run)
            self.recent_bytes += run.size
        self.flying = []
        k: i64 = 0
        while self.recent_bytes > RECENT_BYTES and k < len(self.recent) - 1:
            self.recent_bytes -= self.recent[k].size
            k += 1
        del self.recent[:k]
        for reader in list(self.readers):
            self.pump(reader)

    def readable_to(self) -> i64:
        """The first offset that may not be read yet."""
        synced = self.log.synced_offset()
        written = self.log.written_offset()
        return synced if synced < written else written

    def pump(self, reader: TopicReader) -> None:
        """Give the reader what is there, from memory if possible, until it has no room."""
        while not reader.closed and not reader.reading and reader.room() > 0 and reader.position < self.readable_to():
            run = self.recent_run(reader.position)
            if run is None:
                reader.reading = True
                self.log.fetch(reader.position, FETCH_BYTES, ReaderFetch(self, reader, self.readable_to()))
                return
            self.hand_out(reader, run)

    def recent_run(self, position: i64) -> Run | None:
        for run in self.recent:
            if run.offset <= position < run.offset + len(run.spans):
                return run
        return None

    def hand_out(self, reader: TopicReader, run: Run) -> None:
        start: i64 = reader.position - run.offset
        if start < 0:
            start = 0
        count: i64 = len(run.spans) - start
        room = reader.room()
        if count > room:
            count = room
        if count > 0:
            reader.position = run.offset + start + count
            reader.deliver(self, run, start, count)

    def fetched(self, reader: TopicReader, data: list[bytes], error: Exception | None) -> None:
        reader.reading = False
        if reader.closed:
            return
        if error is None:
            try:
                self.hand_out_batches(reader, data)
            except Corrupt as e:
                error = e
        if error is not None:
            self.detach(reader)
            reader.ended(error)
            return
        self.pump(reader)

    def hand_out_batches(self, reader: TopicReader, data: list[bytes]) -> None:
        limit = self.readable_to()
        for batch in data:
            header = read_header(batch, 0)
            if header.base >= limit:
                return
            for record in decode(header, self.unpacker.records(batch)):
                run = run_of(record)
                if run is None or record.offset + len(run.spans) <= reader.position:
                    continue
                run.offset = record.offset
                self.hand_out(reader, run)
                if reader.position < record.offset + len(run.spans):
                    return              # no room
            if reader.position <= header.last:
                reader.position = header.last + 1

    def failed(self, reason: str) -> None:
        super().failed(reason)
        self.fresh = []
        readers = self.readers
        self.readers = []
        for reader in readers:
            reader.closed = True
            reader.ended(Unavailable(f"partition {self.id} is stopped: {reason}"))

    def close(self) -> None:
        readers = self.readers
        self.readers = []
        for reader in readers:
            reader.closed = True
            reader.ended(None)

    # -------------------------------------------------------------------------------------------- checkpoint

    def take_loose(self) -> list[bytes]:
        return []

    def take_tight(self) -> list[bytes]:
        return []

    def copy_item(self, key: bytes, extra: list[tuple[bytes, bytes]]) -> bytes | None:
        return None

    def copy_head(self) -> dict[str, Any]:
        return {"marks": {source: copy_number(number) for source, number in self.marks.items()}}

    def take_garbage(self) -> list[bytes]:
        return []

    def restore(self, head: dict[str, Any], items: list[tuple[bytes, bytes]]) -> None:
        for source, number in head["marks"].items():
            self.marks[source] = known_number(number)

    def stored(self) -> None:
        pass

    def dead_segments(self) -> list[int]:
        """Retention decides about a topic's segments, not what is owed in them."""
        return []


