"""Does the broker still do what it is for? A record is appended, synced and read back, in a partition that exists for nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import RECORDS_AT, read_header
from trilogue.core.broker import Broker
from trilogue.core.decoding import decode
from trilogue.core.errors import BrokerError, Corrupt
from trilogue.core.flusher import Flusher
from trilogue.core.ports import BatchReader, Log, Promise, Scheduler
from trilogue.core.record import State
from trilogue.core.states import StatePartition

HEALTH_ID: Final = 4
KEY: Final = b"probe"
FETCH_BYTES: Final = 65_536


@mypyc_attr(allow_interpreted_subclasses=True)
class HealthDone(ABC):
    @abstractmethod
    def healthy(self, reason: str) -> None:
        """The probe ended; `reason` says what is wrong, if anything is. Called on the loop, once; never while the disk does not answer."""


class HealthPartition(StatePartition):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64) -> None:
        super().__init__(id, log, scheduler, flusher, epoch)
        self.begin_empty()


class Written(Promise):
    def __init__(self, health: Health, probe: State) -> None:
        self.health: Health = health
        self.probe: State = probe

    def kept(self) -> None:
        self.health.read_back(self.probe)

    def broken(self, reason: str) -> None:
        self.kept()         # says why itself, if the health partition is concerned


class ProbeReader(BatchReader):
    def __init__(self, health: Health, probe: State) -> None:
        self.health: Health = health
        self.probe: State = probe

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.health.finish(str(error) if error is not None else compare(data, self.probe))


class Health:
    """One probe at a time: whoever asks while one is under way gets its result."""

    def __init__(self, broker: Broker, partition: HealthPartition) -> None:
        self.broker: Broker = broker
        self.partition: HealthPartition = partition
        self.count: i64 = 0
        self.waiting: list[HealthDone] = []

    def check(self, done: HealthDone) -> None:
        self.waiting.append(done)
        if len(self.waiting) > 1:
            return
        self.count += 1
        w = BytesWriter()
        write_i64_be(w, self.broker.epoch)
        write_i64_be(w, self.count)
        probe = State(KEY, w.getvalue())
        try:
            self.broker.check_serving()
            self.partition.append(probe)
        except BrokerError as error:
            self.finish(str(error))
            return
        self.broker.after(Written(self, probe))

    def read_back(self, probe: State) -> None:
        if self.partition.stopped:
            self.finish(f"writing failed: {self.partition.stopped}")
        else:
            self.partition.log.fetch(probe.offset, FETCH_BYTES, ProbeReader(self, probe))

    def finish(self, reason: str) -> None:
        waiting = self.waiting
        self.waiting = []
        for done in waiting:
            done.healthy(reason)


def compare(data: list[bytes], probe: State) -> str:
    try:
        for batch in data:
            for record in decode(read_header(batch, 0), batch[RECORDS_AT:]):
                if record.offset == probe.offset and isinstance(record, State):
                    return "" if record.value == probe.value else "what was read back is not what was written"
    except Corrupt as error:
        return str(error)
    return "what was written could not be read back"
