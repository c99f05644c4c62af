"""The power goes at any moment: what a round has answered is there afterwards, in order, and nothing else is.

The store is the real one on a simulated disk. The last test takes the sync away, and then the same check must find losses: otherwise
it would prove nothing.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.faults.simdisk import PowerLoss, SimDisk
from tests.store.helpers import Node, append, read_all
from trilogue.core.batch import read_header
from trilogue.core.errors import Corrupt
from trilogue.store.log import PartitionLog
from trilogue.store.settings import StoreSettings

SETTINGS = StoreSettings(segment_bytes=4_096, index_interval_bytes=512, descriptors_max=8)
SEEDS = int(os.environ.get("POINTS", "400"))         # each has one to three crashes
LIVES = 3


class Lost(AssertionError):
    """The check of this test found something missing or wrong."""


class Model:
    """What one log must contain: everything answered, then a beginning of what was staged since."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.answered = 0
        self.optional: list[tuple[int, int]] = []       # offsets that deleted segments had

    def is_optional(self, data: bytes, end: int) -> bool:
        """Deleted; but the log's end has to remember even that."""
        header = read_header(data, 0)
        return header.last < end and any(lo <= header.base < hi for lo, hi in self.optional)

    def check(self, log: PartitionLog) -> None:
        found = read_all(log)
        at = 0
        missing_from = len(self.written)
        for number, data in enumerate(self.written):
            if at < len(found) and found[at] == data:
                if number > missing_from:
                    raise Lost(f"batch {number} is there, but {missing_from} is not")
                at += 1
            elif not self.is_optional(data, log.end_offset()):
                if number < self.answered:
                    raise Lost(f"batch {number} of {self.answered} answered ones is missing")
                missing_from = min(missing_from, number)
        if at != len(found):
            raise Lost("something is there that was never written, or in another order")
        self.written = self.written[:missing_from]
        self.answered = len(self.written)
        end = read_header(self.written[-1], 0).last + 1 if self.written else 0
        # An end inside what was deleted lies where it was truncated to.
        if log.end_offset() < end or (log.end_offset() > end and not any(lo <= log.end_offset() <= hi for lo, hi in self.optional)):
            raise Lost(f"the log ends at {log.end_offset()}, its last batch at {end}")
        self.end_at(log.end_offset())

    def end_at(self, end: int) -> None:
        """Offsets from here on are given out anew."""
        self.optional = [(lo, min(hi, end)) for lo, hi in self.optional if lo < end]


def live(node: Node, models: dict[int, Model], rng: random.Random) -> None:
    """Open the logs, check them, and use them in every way until the power goes."""
    logs = {partition: node.open(partition) for partition in models}
    for partition, model in models.items():
        model.check(logs[partition])
    for _ in range(rng.randrange(5, 60)):
        action = rng.random()
        partition = rng.choice(list(models))
        log, model = logs[partition], models[partition]
        if action < 0.75:
            for other in rng.sample(list(models), rng.randrange(1, len(models) + 1)):
                for _ in range(rng.randrange(1, 5)):
                    models[other].written.append(append(logs[other], rng.randbytes(rng.choice([20, 300, 1_500])), rng.randrange(1, 4)))
            node.round()
            for other_model in models.values():
                other_model.answered = len(other_model.written)
        elif action < 0.82:
            log.roll()
        elif action < 0.9:
            infos = [info for info in log.segments()[:-1] if rng.random() < 0.5]
            model.optional += [(info.base, info.end) for info in infos]
            log.delete_segments([info.base for info in infos])
        elif not log.staged:
            offset = rng.randrange(log.start_offset(), log.end_offset() + 1)
            kept = [data for data in model.written if read_header(data, 0).last < offset]
            model.answered = len(kept)
            log.truncate(offset)
            model.written = kept
            model.end_at(log.end_offset())


def run(seed: int, ignores_sync: bool) -> int:
    """Several lives of one node, each ended by a power loss (or, sometimes, properly); returns how many crashes there were."""
    rng = random.Random(seed)
    disk = SimDisk()
    models = {partition: Model() for partition in range(1, rng.randrange(2, 6))}
    crashes = 0
    for _ in range(LIVES):
        disk.ignores_sync = ignores_sync
        disk.reports_syncfs = rng.random() < 0.7
        disk.crash_at = rng.randrange(1, 250)
        disk.write_bytes_max = rng.choice([1 << 40, 700])
        try:
            node = Node("/data", SETTINGS, disk)
            live(node, models, rng)
            if rng.random() < 0.5:
                node.close()
                disk.killed()
                continue
        except PowerLoss:
            pass
        crashes += 1
        disk = disk.crash(rng)
    disk.crash_at = -1
    node = Node("/data", SETTINGS, disk)
    for partition, model in models.items():
        model.check(node.open(partition))
    return crashes


@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_what_was_answered_survives(start: int) -> None:
    assert sum(run(seed, ignores_sync=False) for seed in range(start, start + 50)) > 50


def test_without_the_sync_losses_are_found() -> None:
    losses = 0
    for seed in range(40):
        try:
            run(seed, ignores_sync=True)
        except (Lost, Corrupt):
            losses += 1
    assert losses > 20
