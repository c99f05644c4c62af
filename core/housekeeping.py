"""What a node does by itself every second: checkpoints, carrying stragglers forward, releasing what was kept long enough."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.administration import release_old
from trilogue.core.broker import Broker
from trilogue.core.carry import Carrier
from trilogue.core.startup import PartitionOpener


class Housekeeping:
    def __init__(self, broker: Broker, opener: PartitionOpener) -> None:
        self.broker: Broker = broker
        self.opener: PartitionOpener = opener
        self.carriers: dict[int, Carrier] = {int(shard.id): Carrier(shard) for shard in broker.shards}

    def tick(self, disk_low_bytes: i64) -> None:
        """Call about once a second."""
        broker = self.broker
        for checkpointer in list(self.opener.checkpointers.values()):
            checkpointer.begin()
        release_old(broker, broker.scheduler.now_ms())
        for carrier in self.carriers.values():
            carrier.begin()
        transient = broker.transient
        if transient is not None and not transient.stopped:
            dead = transient.dead_segments()
            if dead:
                transient.forget_segments(dead)
                transient.log.delete_segments(dead)
        self.watch_disk(disk_low_bytes)

    def watch_disk(self, low_bytes: i64) -> None:
        flusher = self.broker.flusher
        free = self.broker.journal.free_bytes()
        if free < low_bytes and not flusher.blocked:
            flusher.block(f"the disk has {free} bytes left, and publishing stops below {low_bytes}")
        elif flusher.blocked and free >= low_bytes:
            flusher.unblock()
