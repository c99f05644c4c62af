"""Messages that become due later. The shard keeps them in its log; here is only when, and where."""

from __future__ import annotations

from abc import abstractmethod
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from trilogue.core.handoff import Outbox, message_at
from trilogue.core.message import Run
from trilogue.core.ports import BatchReader, Callback
from trilogue.core.queue import Home
from trilogue.core.record import Due, Letter

AGAIN_MS: Final = 10            # a message that is due before it is in the file is asked for again


class DelayHome(Home):
    """What delays need of their shard, beside what queues need."""

    outbox: Outbox

    @abstractmethod
    def route_delayed(self, run: Run) -> list[Letter]: ...


class DueRead(BatchReader):
    """Fetches a message that is due."""

    def __init__(self, delays: Delays, source: i64) -> None:
        self.delays: Delays = delays
        self.source: i64 = source

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.delays.read(self.source, data, error)


class DueTimer(Callback):
    def __init__(self, delays: Delays) -> None:
        self.delays: Delays = delays

    def fire(self) -> None:
        self.delays.armed_for = 0
        self.delays.check()


class Delays:
    def __init__(self, home: DelayHome) -> None:
        self.home: DelayHome = home
        self.due: dict[int, int] = {}               # offset -> ms
        self.heap: list[tuple[int, int]] = []       # (ms, offset); entries that are no longer in `due` are skipped
        self.changed: set[int] = set()              # since the last checkpoint
        self.armed_for: i64 = 0
        self.reading: i64 = -1

    # -------------------------------------------------------------------------------------------- apply

    def add(self, due_ms: i64, offset: i64) -> None:
        self.due[offset] = due_ms
        self.changed.add(offset)
        heappush(self.heap, (due_ms, offset))

    def remove(self, offset: i64) -> bool:
        self.changed.add(offset)
        return self.due.pop(offset, -1) >= 0

    # -------------------------------------------------------------------------------------------- lead

    def next_due(self) -> tuple[int, int] | None:
        while self.heap:
            due_ms, offset = self.heap[0]
            if self.due.get(offset, -1) == due_ms:
                return due_ms, offset
            heappop(self.heap)
        return None

    def arm(self) -> None:
        """One timer, for the first that is due."""
        first = self.next_due()
        if first is None or self.reading >= 0 or (self.armed_for and self.armed_for <= first[0]):
            return
        self.armed_for = first[0]
        wait: i64 = first[0] - self.home.scheduler.now_ms()
        self.home.scheduler.call_later(float(wait) / 1000.0 if wait > 0 else 0.0, DueTimer(self))

    def check(self) -> None:
        first = self.next_due()
        if first is None or self.home.stopped or self.reading >= 0:
            return
        if first[0] > self.home.scheduler.now_ms():
            self.arm()
            return
        self.reading = first[1]
        self.home.log.fetch(self.home.outbox.located(first[1]), 1, DueRead(self, first[1]))

    def read(self, source: i64, data: list[bytes], error: Exception | None) -> None:
        self.reading = -1
        if self.home.stopped:
            return
        if error is not None:
            self.home.failed(str(error))
            return
        run = message_at(data, self.home.outbox.located(source))
        if run is None:
            self.armed_for = self.home.scheduler.now_ms() + AGAIN_MS
            self.home.scheduler.call_later(AGAIN_MS / 1000.0, DueTimer(self))
            return
        if source in self.due:
            record = Due(source, self.home.route_delayed(run))
            record.run = run
            self.home.append(record)
        self.check()
