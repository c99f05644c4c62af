"""Carrying forward: when little of a closed segment is still owed, that little is written again at the end, and the segment can go.

Identity, order, age and acknowledgements stay with the original; only the location changes. The segment itself goes when two checkpoints
know of that (RULES 1), which is the checkpointer's business.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.chain import Chain
from trilogue.core.handoff import message_at
from trilogue.core.ports import BatchReader
from trilogue.core.record import Carried
from trilogue.core.shard import Shard

LIVE_PERCENT: Final = 25
STEP: Final = 500               # messages carried before others have their turn
FETCH_BYTES: Final = 1 << 20
OWN: Final = -1                 # owner: the shard itself


class Straggler:
    """One message that is still owed: where it lies, and to whom it is."""

    def __init__(self, offset: i64) -> None:
        self.offset: i64 = offset
        self.original: i64 = offset
        self.owners: list[int] = []
        self.ordinals: list[int] = []


class CarryRead(BatchReader):
    def __init__(self, carrier: Carrier) -> None:
        self.carrier: Carrier = carrier

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.carrier.read(data, next_offset, error)


class Carrier:
    def __init__(self, shard: Shard) -> None:
        self.shard: Shard = shard
        self.base: i64 = -1             # the segment that is being emptied
        self.end: i64 = -1
        self.todo: list[Straggler] = []
        self.reading: bool = False
        self.carried: i64 = 0           # messages, ever

    def begin(self) -> None:
        """Carry on with a segment, or choose one that is nearly dead."""
        if self.reading or self.shard.stopped or not self.shard.leading:
            return
        if not self.todo:
            self.choose()
        self.fetch()

    def choose(self) -> None:
        live = self.shard.liveness.live
        for info in self.shard.log.segments():
            if info.base >= self.shard.segment:
                return
            owed = live.get(info.base, 0)
            if 0 < owed and owed * 100 < (info.end - info.base) * LIVE_PERCENT:
                self.base = info.base
                self.end = info.end
                self.find_stragglers()
                return

    def find_stragglers(self) -> None:
        found: dict[int, Straggler] = {}
        for queue in self.shard.queues.values():
            for lane in queue.lanes:
                self.find_in(lane.chain, found)
                if len(found) >= STEP:
                    break
        outbox = self.shard.outbox
        for source in outbox.sources() + list(self.shard.delays.due):
            offset = outbox.located(source)
            if self.base <= offset < self.end:
                straggler = found.setdefault(offset, Straggler(offset))
                straggler.original = source
                if not straggler.owners or straggler.owners[len(straggler.owners) - 1] != OWN:
                    straggler.owners.append(OWN)
                    straggler.ordinals.append(-1)
        self.todo = [found[offset] for offset in sorted(found)]

    def find_in(self, chain: Chain, found: dict[int, Straggler]) -> None:
        """What a chain owes in this segment, as far as it was not carried into another."""
        for ordinal, offset in chain.moved.items():
            if self.base <= offset < self.end:
                self.add(found, offset, chain.target, ordinal)
        for k in range(len(chain.seg_base)):
            if chain.seg_base[k] != self.base:
                continue
            lo: i64 = chain.seg_first[k]
            hi: i64 = chain.seg_first[k + 1] if k + 1 < len(chain.seg_first) else chain.next
            for a, z in chain.live_ranges(lo, hi):
                for ordinal in range(a, z):
                    if ordinal not in chain.moved:
                        offset, _ = chain.extent(ordinal, self.shard.source.store, self.shard.source.prefix)
                        self.add(found, offset, chain.target, ordinal)
                    if len(found) >= STEP:
                        return

    def add(self, found: dict[int, Straggler], offset: i64, target: i64, ordinal: i64) -> None:
        straggler = found.setdefault(offset, Straggler(offset))
        straggler.owners.append(target)
        straggler.ordinals.append(ordinal)

    def fetch(self) -> None:
        if self.todo:
            self.reading = True
            self.shard.log.fetch(self.todo[0].offset, FETCH_BYTES, CarryRead(self))

    def read(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.reading = False
        if error is not None:
            self.shard.failed(str(error))
            return
        if self.shard.stopped or not data:
            self.todo = []
            return
        k: i64 = 0
        for straggler in self.todo:
            if straggler.offset >= next_offset:
                break
            run = message_at(data, straggler.offset)
            if run is not None:
                self.shard.append(Carried(straggler.original, straggler.owners, straggler.ordinals, run))
                self.carried += 1
            k += 1
        del self.todo[:k if k else 1]
        self.fetch()
