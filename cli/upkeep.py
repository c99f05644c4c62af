"""What a node does by itself, at intervals: the core's housekeeping, and retention and compaction of topics."""

from __future__ import annotations

import asyncio
import threading

import structlog

from trilogue.config.model import Config
from trilogue.core.broker import Broker
from trilogue.core.entities import Topic
from trilogue.core.housekeeping import Housekeeping
from trilogue.core.message import Run
from trilogue.core.ports import Callback, Lens
from trilogue.core.topic import TopicPartition
from trilogue.settings import disk_low_bytes, store_settings
from trilogue.store.compaction import Compactor, Tombstones
from trilogue.store.log import PartitionLog
from trilogue.store.retention import outdated
from trilogue.store.worker import Post, Task, ThreadWorker

SWEEP_S = 10.0
TOMBSTONE_MS = 24 * 3_600_000

logger = structlog.get_logger("node")


class EmptyBodies(Tombstones):
    """In a compacted topic a message without a body deletes its key."""

    def __init__(self, lens: Lens) -> None:
        self.lens = lens

    def is_tombstone(self, run: Run, span: bytes) -> bool:
        return self.lens.is_empty(run.origin, span)


class CompactTask(Task):
    """Compacts one log in its own thread, step by step, until it is done or the node stops."""

    def __init__(self, upkeep: Upkeep, partition: int, compactor: Compactor) -> None:
        self.upkeep = upkeep
        self.partition = partition
        self.compactor = compactor
        self.error = ""

    def run(self) -> bool:
        try:
            while not self.upkeep.stopping.is_set() and not self.compactor.step():
                pass
        except Exception as error:
            self.error = str(error)
        finally:
            self.compactor.close()
            self.upkeep.post.post(Compacted(self))
        return True


class Compacted(Callback):
    def __init__(self, task: CompactTask) -> None:
        self.task = task

    def fire(self) -> None:
        self.task.upkeep.compacted(self.task)


class Upkeep:
    """Started and stopped by the node. Every part of it goes on by timers of the loop; compaction runs in a thread."""

    def __init__(self, broker: Broker, housekeeping: Housekeeping, loop: asyncio.AbstractEventLoop, post: Post, config: Config) -> None:
        self.broker = broker
        self.housekeeping = housekeeping
        self.loop = loop
        self.post = post
        self.worker = ThreadWorker("trilogue-compact")
        self.stopping = threading.Event()
        self.compacting: dict[int, int] = {}        # partition: end of its closed segments when it was last compacted
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.configure(config)

    def configure(self, config: Config) -> None:
        """These settings from now on."""
        self.config = config
        self.disk_low_bytes = disk_low_bytes(config)

    def start(self) -> None:
        self.tick()
        self.sweep()

    def stop(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.stopping.set()

    def close(self) -> None:
        self.stop()
        self.worker.close()

    def tick(self) -> None:
        self.timers["tick"] = self.loop.call_later(self.config.storage.checkpoint_interval_ms / 1000, self.tick)
        self.housekeeping.tick(self.disk_low_bytes)

    def sweep(self) -> None:
        self.timers["sweep"] = self.loop.call_later(SWEEP_S, self.sweep)
        for id, partitions in list(self.broker.topics.items()):
            topic = self.broker.catalog.by_id.get(id)
            if isinstance(topic, Topic):
                for partition in partitions:
                    if not partition.stopped:
                        self.sweep_partition(topic, partition)

    def sweep_partition(self, topic: Topic, partition: TopicPartition) -> None:
        log = partition.log
        options = topic.effective
        if options.segment_bytes > 0 and isinstance(log, PartitionLog):
            log.segment_bytes = options.segment_bytes
        if options.compact:
            if isinstance(log, PartitionLog):
                self.compact(partition, log)
            return
        storage = self.config.storage
        age_ms = options.max_age_ms if options.max_age_ms >= 0 else storage.topic_retention_ms
        size = options.max_bytes if options.max_bytes >= 0 else storage.topic_retention_bytes
        bases = outdated(log.segments(), self.broker.scheduler.now_ms(), age_ms, size)
        if bases:
            log.delete_segments(bases)

    def compact(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Compact whenever a segment was closed since the last time."""
        closed_to = int(log.segment_base())
        if closed_to > self.compacting.get(int(partition.id), 0):
            self.compacting[int(partition.id)] = closed_to
            compactor = Compactor(log.segment_list, EmptyBodies(self.broker.lens), self.broker.scheduler.now_ms(), TOMBSTONE_MS,
                                  store_settings(self.config).segment_bytes)
            self.worker.submit(CompactTask(self, int(partition.id), compactor))

    def compacted(self, task: CompactTask) -> None:
        if task.error:
            logger.error("compaction failed", partition=task.partition, error=task.error)
        else:
            logger.info("compacted", partition=task.partition, records_dropped=int(task.compactor.records_dropped))
