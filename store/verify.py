"""What `trilogue log verify`, `dump` and `reindex` do with a data directory that no broker is using.

`verify` and `dump` change nothing. `reindex` rewrites the index files, and only those.
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from trilogue.core.decoding import decode
from trilogue.core.errors import Corrupt, DataDirInUse, StoreError
from trilogue.core.record import (
    CARRIED,
    DELAYED,
    HANDED_IN,
    HANDED_OVER,
    MESSAGE,
    METADATA,
    PROGRESS,
    QUEUE_GONE,
    QUEUE_KEEPS,
    RELEASED,
    REMOVED,
    RETURNED,
    REWOUND,
    ROUTE,
    STATE,
    Messages,
    Metadata,
    Progress,
    Record,
    State,
)
from trilogue.store.codec import records_of
from trilogue.store.datadir import check_format, partitions_in
from trilogue.store.disk import Disk, write_whole
from trilogue.store.index import KIND_END, encode_entry
from trilogue.store.recovery import later_synced_to
from trilogue.store.scan import HOP_BYTES, Scanner
from trilogue.store.segment import Segment, base_of, build_index

KIND_NAMES: dict[int, str] = {
    MESSAGE: "message", ROUTE: "route", PROGRESS: "progress", RETURNED: "returned", REMOVED: "removed", QUEUE_GONE: "queue-gone",
    HANDED_IN: "handed-in", HANDED_OVER: "handed-over", CARRIED: "carried", METADATA: "metadata", DELAYED: "delayed", RELEASED: "released",
    STATE: "state", QUEUE_KEEPS: "queue-keeps", REWOUND: "rewound",
}


class Report:
    """What one partition's log turned out to be."""

    def __init__(self, partition: int) -> None:
        self.partition: int = partition
        self.segments: i64 = 0
        self.batches: i64 = 0
        self.records: i64 = 0
        self.bytes: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self.problems: list[str] = []       # damage: the broker would refuse the partition
        self.notes: list[str] = []          # what a start would put right by itself

    def line(self) -> str:
        state = "damaged" if self.problems else "ok"
        return (f"{self.partition:016x} {state}: offsets {self.start} to {self.end}, {self.records} records in {self.batches} batches, "
                f"{self.bytes} bytes in {self.segments} segments")


class HeldDir:
    """The lock on the data directory, held without changing it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk: Disk = disk
        self.fd: int = -1
        try:
            check_exists(disk, path)
            fd = disk.open(f"{path}/lock", False)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"data directory {path} cannot be read: {error}") from error
        if not disk.lock(fd):
            pid = disk.pread(fd, 20, 0).decode("ascii", "replace").strip()
            disk.close(fd)
            raise DataDirInUse(f"data directory {path} is in use by process {pid or 'unknown'}")
        self.fd = fd

    def release(self) -> None:
        if self.fd >= 0:
            self.disk.close(self.fd)


def check_exists(disk: Disk, path: str) -> None:
    try:
        disk.listdir(f"{path}/logs")
    except FileNotFoundError:
        raise StoreError(f"{path} is not a data directory: it has no logs") from None
    check_format(disk, path)


# ------------------------------------------------------------------------------------------------ verify

def verify(disk: Disk, path: str) -> Iterator[Report]:
    """Every batch and every record of every partition."""
    held = HeldDir(disk, path)
    try:
        for partition in partitions_in(disk, f"{path}/logs"):
            yield verify_partition(disk, f"{path}/logs/{partition:016x}", partition)
    finally:
        held.release()


def verify_partition(disk: Disk, folder: str, partition: int) -> Report:
    report = Report(partition)
    bases = bases_in(disk, folder, report)
    if bases:
        report.start = bases[0]
    for k in range(len(bases)):
        verify_segment(disk, Segment(folder, bases[k]), report, k == len(bases) - 1)
    return report


def bases_in(disk: Disk, folder: str, report: Report) -> list[int]:
    bases: list[int] = []
    for name in disk.listdir(folder):
        try:
            base = base_of(name)
        except Corrupt as error:
            report.problems.append(f"{folder}: {error}")
            continue
        if base >= 0:
            bases.append(int(base))
        elif not name.endswith(".idx") and name != "compaction":
            report.notes.append(f"{folder}/{name} is left from an interrupted operation, which the next start finishes")
    return sorted(bases)


def verify_segment(disk: Disk, segment: Segment, report: Report, is_last: bool) -> None:
    fd = disk.open(segment.path, False)
    try:
        size: i64 = disk.size(fd)
        report.segments += 1
        report.bytes += size
        scanner = Scanner(disk, fd, segment.path, 0, size)
        expected = max(segment.base, report.end)
        if segment.base < report.end:
            report.problems.append(f"{segment.path} begins before offset {report.end}, where the segment before it ends")
        try:
            while scanner.next():
                header = scanner.current()
                if header.base < expected:
                    raise scanner.corrupt(f"offset {header.base} comes after {expected - 1}")
                records = decode(header, records_of(scanner.batch(), header))
                expected = header.last + 1
                report.batches += 1
                for record in records:
                    report.records += record.span_count()
        except Corrupt as error:
            judge(report, scanner, is_last, expected, str(error))
        report.end = expected
    finally:
        disk.close(fd)


def judge(report: Report, scanner: Scanner, is_last: bool, offset: i64, reason: str) -> None:
    at = scanner.at
    where = reason if reason.startswith(scanner.name) else f"{scanner.name} at byte {at}: {reason}"
    if is_last and later_synced_to(scanner, at, offset) <= offset:
        report.notes.append(f"{where} (offset {offset}); nothing shows that it was ever synced: a start cuts it off as an unfinished write")
    else:
        report.problems.append(f"{where} (offset {offset})")


# ------------------------------------------------------------------------------------------------ dump

def dump(disk: Disk, path: str, partition: int = -1) -> Iterator[str]:
    """One line per record; of one partition, or of all."""
    held = HeldDir(disk, path)
    try:
        for number in partitions_in(disk, f"{path}/logs"):
            if partition in (-1, number):
                yield from dump_partition(disk, f"{path}/logs/{number:016x}", number)
    finally:
        held.release()


def dump_partition(disk: Disk, folder: str, partition: int) -> Iterator[str]:
    for base in bases_in(disk, folder, Report(partition)):
        segment = Segment(folder, base)
        fd = disk.open(segment.path, False)
        try:
            scanner = Scanner(disk, fd, segment.path, 0, disk.size(fd))
            while scanner.next():
                header = scanner.current()
                for record in decode(header, records_of(scanner.batch(), header)):
                    yield from record_lines(partition, header.epoch, header.time_ms, record)
        except Corrupt as error:
            yield f"{partition:016x} damaged: {error}"
        finally:
            disk.close(fd)


def record_lines(partition: int, epoch: i64, time_ms: i64, record: Record) -> Iterator[str]:
    kind = KIND_NAMES.get(record.kind, str(record.kind))
    head = f"{partition:016x} epoch={epoch}"
    if isinstance(record, Messages):
        run = record.run
        route = f"route={record.route}" if record.route >= 0 else f"targets={record.targets}"
        address = f"exchange={text(run.exchange)} routing_key={text(run.routing_key)} key={text(run.key)}"
        about = f"time={run.time_ms} {kind} origin={run.origin} {address} {route}"
        for j in range(len(run.spans)):
            yield f"{head} offset={record.offset + j} {about} bytes={len(run.spans[j])}"
        return
    line = f"{head} offset={record.offset} time={time_ms} {kind}"
    if isinstance(record, State):
        line += f" key={text(record.key)} bytes={len(record.value)}"
    elif isinstance(record, Metadata):
        line += f" bytes={len(record.change)}"
    elif isinstance(record, Progress):
        line += f" target={record.target} delivered_to={record.delivered_to} settled={list(zip(record.lo, record.hi, strict=True))}"
    yield line


def text(data: bytes) -> str:
    """Bytes that somebody chose, safe for a terminal."""
    return ascii(data.decode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------------ reindex

def reindex(disk: Disk, path: str, interval_bytes: i64) -> Iterator[str]:
    """Write the index file of every segment anew, from its headers; one line for each."""
    held = HeldDir(disk, path)
    try:
        for partition in partitions_in(disk, f"{path}/logs"):
            folder = f"{path}/logs/{partition:016x}"
            bases = bases_in(disk, folder, Report(partition))
            for k in range(len(bases)):
                yield reindex_segment(disk, Segment(folder, bases[k]), interval_bytes, k < len(bases) - 1)
    finally:
        held.release()


def reindex_segment(disk: Disk, segment: Segment, interval_bytes: i64, closed: bool) -> str:
    fd = disk.open(segment.path, False)
    try:
        size: i64 = disk.size(fd)
        try:
            index = build_index(Scanner(disk, fd, segment.path, 0, size, HOP_BYTES), interval_bytes)
            entries = index.encode()
            if closed and index.count:
                scanner = Scanner(disk, fd, segment.path, index.positions[index.count - 1], size, HOP_BYTES)
                end: i64 = segment.base
                time_ms: i64 = 0
                while scanner.next():
                    end = scanner.current().last + 1
                    time_ms = scanner.current().time_ms
                entries += encode_entry(end, size, time_ms, KIND_END)
        except Corrupt as error:
            return f"{segment.path} not indexed: {error}"
    finally:
        disk.close(fd)
    write_whole(disk, segment.index_path, entries)
    return f"{segment.index_path} written: {index.count} entries"
