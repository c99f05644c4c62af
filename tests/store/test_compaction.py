"""Compaction keeps the last record of every key at its offset, and no crash on the way loses one."""

from __future__ import annotations

import random

import pytest
from librt.strings import BytesWriter

from tests.faults.simdisk import PowerLoss, SimDisk
from tests.store.helpers import Node
from trilogue.core.batch import read_header, seal
from trilogue.core.decoding import decode
from trilogue.core.message import Run
from trilogue.core.record import Messages, Metadata, State, message_head, route_part, write_messages, write_record
from trilogue.store.codec import pack_zstd, records_of
from trilogue.store.compaction import Compactor, Tombstones, closed_segments, digest, load_marks
from trilogue.store.log import PartitionLog
from trilogue.store.settings import StoreSettings

SETTINGS = StoreSettings(segment_bytes=4_096, index_interval_bytes=512)
RETENTION_MS = 1_000


class EmptyBody(Tombstones):
    def is_tombstone(self, run: Run, span: bytes) -> bool:
        return not span


def put(log: PartitionLog, pairs: list[tuple[bytes, bytes]], packed: bool = False) -> None:
    """One batch of messages, each with its key."""
    base = log.end_offset()
    w = BytesWriter()
    for delta, (key, value) in enumerate(pairs):
        run = Run(b"", b"rk", 0, [value], len(value), key=key)
        write_messages(w, delta, message_head(run, 0, route_part([], -1)), [value])
    stage(log, w.getvalue(), base, len(pairs), packed)


def stage(log: PartitionLog, records: bytes, base: int, count: int, packed: bool = False) -> None:
    records = pack_zstd(records) if packed else records
    head = seal(records, base, base + count - 1, 3, log.synced_offset(), 1_000, count, flags=1 if packed else 0, producer=9, sequence=4)
    log.stage([head, records], base + count, 1_000)


def contents(log: PartitionLog) -> list[tuple[int, bytes, bytes]]:
    """(offset, key, value) of every message, in order."""
    out: list[tuple[int, bytes, bytes]] = []
    offset = log.start_offset()
    while True:
        data = log.read(offset, 2_000)
        if not data:
            return out
        for item in data:
            header = read_header(item, 0)
            count = 0
            for record in decode(header, records_of(item, header)):
                if isinstance(record, Messages):
                    for j, span in enumerate(record.run.spans):
                        out.append((record.offset + j, record.run.key, span))
                count += record.span_count()
            assert header.count == count
            offset = header.last + 1


def compactor(log: PartitionLog, now_ms: int = 10_000, keys_max: int = 1_000, step_bytes: int = 700) -> Compactor:
    return Compactor(log.segment_list, EmptyBody(), now_ms, RETENTION_MS, SETTINGS.segment_bytes, keys_max, step_bytes)


def expected(before: list[tuple[int, bytes, bytes]], upto: int) -> list[tuple[int, bytes, bytes]]:
    last = {key: offset for offset, key, _ in before if offset < upto}
    return [row for row in before if row[0] >= upto or last[row[1]] == row[0]]


def filled(node: Node, rng: random.Random, batches: int = 60, packed: bool = False) -> PartitionLog:
    log = node.open()
    for _ in range(batches):
        put(log, [(b"key%d" % rng.randrange(12), rng.randbytes(rng.randrange(1, 60))) for _ in range(rng.randrange(1, 8))], packed)
        node.round()
    return log


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("keys_max", [5, 1_000])
def test_the_last_value_of_each_key_stays_at_its_offset(packed: bool, keys_max: int) -> None:
    node = Node("/data", SETTINGS, SimDisk())
    log = filled(node, random.Random(1), packed=packed)
    end = log.end_offset()
    for _ in range(20):
        before = contents(log)
        work = compactor(log, keys_max=keys_max)
        work.run()
        assert contents(log) == expected(before, work.upto)
        if work.upto == closed_segments(log.segment_list)[-1].end:
            break
    assert work.bytes_after < work.bytes_before or keys_max == 5
    assert log.end_offset() == end
    assert len({key for offset, key, _ in contents(log) if offset < work.upto}) == sum(offset < work.upto for offset, _, _ in contents(log))
    assert len(log.segments()) < 5, "small neighbours become one segment"
    after = contents(log)
    for offset, key, value in after:
        assert (offset, key, value) in [row for item in [log.read(offset, 1)] for row in rows(item)]
    node.close()
    node = Node("/data", SETTINGS, node.disk)
    assert contents(node.open()) == after


def rows(data: list[bytes]) -> list[tuple[int, bytes, bytes]]:
    header = read_header(data[0], 0)
    return [(record.offset + j, record.run.key, span) for record in decode(header, records_of(data[0], header)) if isinstance(record, Messages)
            for j, span in enumerate(record.run.spans)]


def test_batches_keep_what_identifies_them() -> None:
    node = Node("/data", SETTINGS, SimDisk())
    log = node.open()
    put(log, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    log.roll()
    node.round()
    compactor(log).run()
    header = read_header(log.read(0, 1)[0], 0)
    assert (header.base, header.last, header.epoch, header.producer, header.sequence, header.count) == (0, 2, 3, 9, 4, 2)


def test_a_tombstone_lives_for_its_time_after_the_first_cleaning() -> None:
    node = Node("/data", SETTINGS, SimDisk())
    log = node.open()
    put(log, [(b"a", b"1"), (b"b", b"2")])
    put(log, [(b"a", b"")])
    log.roll()
    node.round()
    compactor(log, now_ms=10_000).run()
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"")]
    compactor(log, now_ms=10_999).run()
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"")]
    compactor(log, now_ms=11_000).run()
    assert contents(log) == [(1, b"b", b"2")]
    assert [(mark.upto, mark.time_ms) for mark in load_marks(log.segment_list.disk, log.segment_list.folder)] == [(3, 0)]
    idle = compactor(log, now_ms=20_000)
    idle.run()
    assert idle.bytes_before == 0, "nothing is rewritten for nothing"


def test_states_have_keys_and_other_records_stay() -> None:
    node = Node("/data", SETTINGS, SimDisk())
    log = node.open()
    for records in ([State(b"s", b"1"), Metadata(b"m1"), State(b"s", b"2"), State(b"t", b"")], [Metadata(b"m1")]):
        w = BytesWriter()
        for delta, record in enumerate(records):
            write_record(w, delta, 0, record)
        stage(log, w.getvalue(), log.end_offset(), len(records))
    log.roll()
    node.round()
    compactor(log).run()
    offsets = [record.offset for item in log.read(0, 10_000) for record in decode(read_header(item, 0), item[84:])]
    assert offsets == [1, 2, 3, 4]
    compactor(log, now_ms=50_000).run()
    offsets = [record.offset for item in log.read(0, 10_000) for record in decode(read_header(item, 0), item[84:])]
    assert offsets == [1, 2, 4]


def test_segments_of_which_nothing_stays_go() -> None:
    node = Node("/data", SETTINGS, SimDisk())
    log = node.open()
    for _ in range(40):
        put(log, [(b"same", b"v" * 300)])
    log.roll()
    node.round()
    compactor(log).run()
    assert contents(log) == [(39, b"same", b"v" * 300)]
    assert len(log.segments()) == 2


def test_a_segment_deleted_meanwhile_ends_the_work_without_harm() -> None:
    for steps in range(1, 60):
        node = Node("/data", SETTINGS, SimDisk())
        log = filled(node, random.Random(3), 40)
        work = compactor(log)
        for _ in range(steps):
            work.step()
        first = log.segments()[0]
        log.delete_segments([first.base])
        rest = [row for row in contents(log) if row[0] >= first.end]
        work.run()
        last = {key: offset for offset, key, _ in rest}
        found = contents(log)
        assert {row for row in rest if last[row[1]] == row[0]} <= set(found)
        assert found == sorted(found)
        names = node.disk.listdir(log.segment_list.folder)
        assert not [name for name in names if name.endswith((".clean", ".swap"))]


def test_a_crash_anywhere_loses_no_last_value() -> None:
    swaps = 0
    for point in range(1, 120):
        disk = SimDisk()
        node = Node("/data", SETTINGS, disk)
        log = filled(node, random.Random(7), 30)
        before = contents(log)
        disk.operations = 0
        disk.crash_at = point
        try:
            compactor(log).run()
        except PowerLoss:
            swaps += any(name.endswith(".swap") for name in disk.listdir(log.segment_list.folder))
        node = Node("/data", SETTINGS, disk.crash(random.Random(point)))
        log = node.open()
        found = contents(log)
        last = {key: offset for offset, key, _ in before}
        assert set(found) <= set(before)
        assert found == sorted(found)
        assert {row for row in before if last[row[1]] == row[0]} <= set(found)
        assert log.end_offset() == before[-1][0] + 1
    assert swaps > 3, "the interesting points were met"


def test_short_keys_and_digests_cannot_be_confused() -> None:
    assert digest(b"x" * 15) == b"x" * 15
    assert len(digest(b"x" * 16)) == 16
    assert digest(digest(b"some long key of a client")) != digest(b"some long key of a client")
