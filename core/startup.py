"""From disk to a broker that serves: open the partitions, restore and replay each, and reconcile the shards with the catalog."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from trilogue.core.arguments import OS
from trilogue.core.broker import Broker
from trilogue.core.checkpoint import Checkpointed, Checkpointer, proven_offset
from trilogue.core.entities import Queue, Topic
from trilogue.core.errors import Corrupt, StoreError
from trilogue.core.letters import LetterWriter
from trilogue.core.metadata import MetadataPartition
from trilogue.core.ports import Checkpoints, Log
from trilogue.core.record import QueueGone
from trilogue.core.refused import RefusedLog
from trilogue.core.retained import Retained
from trilogue.core.shard import Shard
from trilogue.core.topic import TopicPartition, Unpacker
from trilogue.core.window import Budget

METADATA_ID: Final = 1
RETAINED_ID: Final = 2
SHARD_ID: Final = 16            # the first of them
TRANSIENT_ID: Final = 1 << 40   # plus the broker's epoch: it never outlives that (RULES 10)


def prefix_of(partition: i64) -> bytes:
    w = BytesWriter()
    write_i64_be(w, partition)
    return w.getvalue()


class PartitionOpener:
    """Opens partitions, whatever their kind, and keeps the checkpointer of each."""

    def __init__(self, broker: Broker, store: Checkpoints, unpacker: Unpacker) -> None:
        self.broker: Broker = broker
        self.store: Checkpoints = store
        self.unpacker: Unpacker = unpacker
        self.checkpointers: dict[int, Checkpointer] = {}
        self.replayed_bytes: i64 = 0

    def log(self, id: i64, synced: bool = True) -> Log:
        """The log must reach at least as far as the newest checkpoint says, or something was lost (RULES 4)."""
        self.broker.journal.expect(id, proven_offset(self.store, prefix_of(id)))
        return self.broker.journal.open(id, synced)

    def recover(self, partition: Checkpointed) -> None:
        checkpointer = Checkpointer(partition, self.store, prefix_of(partition.id))
        start = checkpointer.load()
        self.replayed_bytes += partition.replay(start)
        self.checkpointers[partition.id] = checkpointer
        self.broker.partitions[partition.id] = partition

    def open_topic(self, topic: Topic) -> None:
        """Open those of its partitions that are not open yet."""
        broker = self.broker
        opened = broker.topics.setdefault(topic.id, [])
        for id in topic.partitions[len(opened):]:
            try:
                partition = self.topic_partition(id, self.log(id, topic.effective.durability != OS))
                self.recover(partition)
            except (Corrupt, StoreError) as error:
                partition = self.refuse(id, str(error))
            opened.append(partition)

    def topic_partition(self, id: i64, log: Log) -> TopicPartition:
        broker = self.broker
        return TopicPartition(id, log, broker.scheduler, broker.flusher, broker.epoch, self.unpacker)

    def refuse(self, id: i64, reason: str) -> TopicPartition:
        """One bad log must not take the others down: it stays as it is, is served to nobody, and whoever asks is told why."""
        partition = self.topic_partition(id, RefusedLog(reason))
        partition.stopped = reason
        self.broker.partitions[id] = partition
        self.broker.failures[id] = reason
        return partition

    def close_partition(self, partition: TopicPartition) -> None:
        self.checkpointers.pop(partition.id, None)
        self.broker.failures.pop(partition.id, None)
        self.broker.journal.drop(partition.id)
        self.store.erase(prefix_of(partition.id))


class Startup:
    def __init__(self, broker: Broker, opener: PartitionOpener, shards: i64, budget: Budget, retained_count_max: i64,
                 retained_bytes_max: i64) -> None:
        self.broker: Broker = broker
        self.opener: PartitionOpener = opener
        self.shards: i64 = shards
        self.budget: Budget = budget
        self.retained_count_max: i64 = retained_count_max
        self.retained_bytes_max: i64 = retained_bytes_max
        self.letters: LetterWriter = LetterWriter(broker)

    def open_partitions(self) -> None:
        """Everything but topics, which the catalog names. What belonged to connections of an earlier run is gone with them."""
        broker = self.broker
        opener = self.opener
        metadata = MetadataPartition(METADATA_ID, opener.log(METADATA_ID), broker.scheduler, broker.flusher, broker.epoch, broker.catalog)
        opener.recover(metadata)
        broker.metadata = metadata
        retained = Retained(RETAINED_ID, opener.log(RETAINED_ID), broker.scheduler, broker.flusher, broker.epoch,
                            self.retained_count_max, self.retained_bytes_max)
        opener.recover(retained)
        broker.retained = retained
        for k in range(self.shard_count()):
            shard = self.shard(SHARD_ID + k, opener.log(SHARD_ID + k), True)
            opener.recover(shard)
            broker.shards.append(shard)
        for id in broker.journal.partitions():
            if id > TRANSIENT_ID:
                broker.journal.drop(id)
        id = TRANSIENT_ID + broker.epoch
        transient = self.shard(id, broker.journal.open(id, False), False)
        transient.leading = True
        broker.partitions[id] = transient
        broker.transient = transient
        metadata.change(broker.catalog.plan_keep_epochs({int(broker.epoch)}))

    def shard_count(self) -> i64:
        """More shards than before are welcome; fewer only if no queue lives in those that would go."""
        count = self.shards
        for found in self.broker.catalog.by_id.values():
            if isinstance(found, Queue) and SHARD_ID + count <= found.shard < TRANSIENT_ID:
                count = found.shard - SHARD_ID + 1
        return count

    def shard(self, id: i64, log: Log, synced: bool) -> Shard:
        broker = self.broker
        return Shard(id, log, broker.scheduler, broker.flusher, broker.epoch, self.opener.store, prefix_of(id), self.budget,
                     self.letters, broker.exchange, synced)

    def lead(self) -> None:
        """The catalog has the last word on which queues there are; then every shard begins to decide."""
        for shard in self.broker.shards:
            for id in list(shard.queues):
                if id not in self.broker.catalog.by_id:
                    shard.append(QueueGone(id))
            shard.lead()
        for shard in self.broker.shards:
            shard.begin_deciding()
