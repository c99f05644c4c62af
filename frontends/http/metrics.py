"""Prometheus metrics, read from the core when they are asked for. Totals at /metrics, one line per queue and topic at /metrics/per-object.

Queues are visited a few at a time, with the loop serving clients in between; the text is made in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, fields

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from trilogue.core import entities
from trilogue.core.frontend import Context
from trilogue.core.queue import Queue

SLICE = 200                 # queues between two turns of the loop
GAUGE, COUNTER = "gauge", "counter"
HELP = {
    "ready": "Messages that wait to be delivered.",
    "unacknowledged": "Messages that were delivered and not answered for.",
    "bytes": "Bytes of messages that wait or are not answered for.",
    "consumers": "Consumers.",
    "published": "Messages that came into a queue.",
    "delivered": "Messages that went to consumers.",
    "redelivered": "Messages that went to consumers and may have been there before.",
    "acknowledged": "Messages that were acknowledged.",
}
GAUGES = ("ready", "unacknowledged", "bytes", "consumers")


@dataclass
class Numbers:
    """What there is to say about one queue, or about all."""

    ready: int = 0
    unacknowledged: int = 0
    bytes: int = 0
    consumers: int = 0
    published: int = 0
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0

    def add(self, other: Numbers) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Snapshot:
    """Finished metrics, in the form that prometheus-client collects from."""

    def __init__(self, metrics: list[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self.metrics)


class Metrics:
    def __init__(self, context: Context) -> None:
        self.context = context

    async def total(self, request: web.Request) -> web.Response:
        total = Numbers()
        count = 0
        async for _, numbers in self.queues():
            total.add(numbers)
            count += 1
        metrics = self.node_metrics()
        metrics.append(gauge("queues", "Queues.", count))
        # Counters of queues that were deleted are gone with them, so only what is there now can be summed up.
        metrics += [gauge(f"queue_{name}", HELP[name], getattr(total, name)) for name in GAUGES]
        return await rendered(metrics)

    async def per_object(self, request: web.Request) -> web.Response:
        families = {
            field.name: (GaugeMetricFamily if field.name in GAUGES else CounterMetricFamily)(
                f"trilogue_queue_{field.name}", HELP[field.name], labels=["vhost", "queue"])
            for field in fields(Numbers)}
        async for entity, numbers in self.queues():
            for name, family in families.items():
                family.add_metric([entity.vhost, entity.name], getattr(numbers, name))
        return await rendered([*families.values(), *self.topic_metrics()])

    async def queues(self) -> AsyncIterator[tuple[entities.Queue, Numbers]]:
        broker = self.context.broker
        at = 0
        for id in list(broker.catalog.by_id):
            entity = broker.catalog.by_id.get(id)
            if isinstance(entity, entities.Queue):
                yield entity, numbers_of(broker.queue(id))
            at += 1
            if at % SLICE == 0:
                await asyncio.sleep(0)

    def node_metrics(self) -> list[Metric]:
        broker = self.context.broker
        flusher = broker.flusher
        limits = broker.limits
        return [
            counter("messages_received", "Messages that publishers sent.", broker.received),
            counter("messages_unroutable", "Messages that matched no queue, topic or subscription.", broker.unroutable),
            counter("rounds", "Rounds of writing and syncing.", flusher.rounds),
            counter("connections_refused_descriptors", "Connections refused for want of descriptors.", self.context.door.refused),
            gauge("unsynced_bytes", "Bytes taken in that are not on disk yet.", flusher.unsynced),
            gauge("publishers_held", "Publishers that are not read because the disk cannot follow.", len(flusher.held)),
            gauge("publishers_blocked", "1 while all publishers are held: disk full, or nearly so.", int(bool(flusher.stalled or flusher.blocked))),
            gauge("connections", "Connections.", limits.connections),
            gauge("connections_without_login", "Connections that have not logged in yet.", limits.unauthenticated),
            gauge("sessions", "Connections that have logged in.", len(broker.sessions)),
            gauge("live_subscriptions", "Subscribers that are fed from memory.", len(broker.subscribers)),
            gauge("partitions", "Partitions that are open.", len(broker.partitions)),
            gauge("partitions_stopped", "Partitions that cannot be served.", sum(bool(one.stopped) for one in broker.partitions.values())),
            gauge("topics", "Topics.", len(broker.topics)),
            gauge("disk_free_bytes", "Free space on the data disk.", broker.journal.free_bytes()),
            gauge("epoch", "How often this node was started.", broker.epoch),
        ]

    def topic_metrics(self) -> list[Metric]:
        broker = self.context.broker
        start = GaugeMetricFamily("trilogue_topic_start_offset", "The lowest offset that may still be there.", labels=["vhost", "topic", "partition"])
        end = GaugeMetricFamily("trilogue_topic_end_offset", "The offset that comes next.", labels=["vhost", "topic", "partition"])
        for id, partitions in broker.topics.items():
            entity = broker.catalog.by_id[id]
            for number, partition in enumerate(partitions):
                start.add_metric([entity.vhost, entity.name, str(number)], int(partition.log.start_offset()))
                end.add_metric([entity.vhost, entity.name, str(number)], int(partition.next))
        return [start, end]


def numbers_of(queue: Queue) -> Numbers:
    return Numbers(
        ready=int(queue.ready()), unacknowledged=sum(int(lane.held) for lane in queue.lanes), bytes=int(queue.size()), consumers=len(queue.consumers),
        published=int(queue.published), delivered=int(queue.delivered), redelivered=int(queue.redelivered), acknowledged=int(queue.settled))


def gauge(name: str, help: str, value: int) -> Metric:
    return GaugeMetricFamily(f"trilogue_{name}", help, value=int(value))


def counter(name: str, help: str, value: int) -> Metric:
    return CounterMetricFamily(f"trilogue_{name}", help, value=int(value))


async def rendered(metrics: list[Metric]) -> web.Response:
    registry = CollectorRegistry()
    registry.register(Snapshot(metrics))
    text = await asyncio.to_thread(generate_latest, registry)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
