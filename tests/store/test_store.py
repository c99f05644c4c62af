"""The whole store with its threads, on a real disk and a real loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.store.helpers import Fetched, append
from trilogue.core.batch import read_header
from trilogue.core.ports import CheckpointDone, RoundDone, RoundResult
from trilogue.store.log import PartitionLog
from trilogue.store.settings import StoreSettings
from trilogue.store.store import Store
from trilogue.store.worker import LoopPost

SETTINGS = StoreSettings(segment_bytes=200_000, index_interval_bytes=4_096)


class Waiter(RoundDone):
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.failed: list[tuple[int, str]] = []

    def round_done(self, result: RoundResult) -> None:
        self.failed += result.failed
        self.event.set()

    def round_stalled(self, reason: str) -> None:
        raise AssertionError(reason)

    async def wait(self) -> None:
        await asyncio.wait_for(self.event.wait(), 20)
        self.event.clear()


class Committed(CheckpointDone):
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def checkpoint_done(self, partition: int, error: Exception | None) -> None:
        assert error is None
        self.event.set()


class Reader(Fetched):
    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def batches(self, data: list[bytes], next_offset: int, error: Exception | None) -> None:
        super().batches(data, next_offset, error)
        self.event.set()


async def fetch_all(log: PartitionLog) -> int:
    count = 0
    offset = log.start_offset()
    while True:
        reader = Reader()
        log.fetch(offset, 50_000, reader)
        await asyncio.wait_for(reader.event.wait(), 20)
        assert reader.error is None
        if not reader.data:
            return count
        for data in reader.data:
            assert read_header(data, 0).base == offset
            offset += 1
            count += 1


async def first_life(path: str) -> None:
    store = Store(path, SETTINGS, LoopPost(asyncio.get_running_loop()))
    waiter = Waiter()
    store.journal.attach(waiter)
    logs = [store.journal.open(partition, synced=partition != 4) for partition in range(5)]
    for _ in range(30):
        for log in logs:
            assert isinstance(log, PartitionLog)
            for _ in range(20):
                append(log, b"y" * 500)
        store.journal.begin_round()
        await waiter.wait()
    assert waiter.failed == []
    for log in logs:
        assert isinstance(log, PartitionLog)
        assert await fetch_all(log) == 600
    committed = Committed()
    store.checkpoints.commit(1, [(b"k", b"v")], [], committed)
    await asyncio.wait_for(committed.event.wait(), 20)
    assert store.epoch == 1
    store.close()


async def second_life(path: str) -> None:
    store = Store(path, SETTINGS, LoopPost(asyncio.get_running_loop()))
    assert store.epoch == 2
    assert store.checkpoints.get(b"k") == b"v"
    for partition in range(5):
        log = store.journal.open(partition, synced=True)
        assert isinstance(log, PartitionLog)
        assert await fetch_all(log) == 600
    assert store.journal.recovered_bytes < 5 * 200_000
    store.close()


def test_two_lives(tmp_path: Path) -> None:
    asyncio.run(first_life(str(tmp_path)))
    asyncio.run(second_life(str(tmp_path)))
