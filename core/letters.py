"""Where messages go that leave a shard by themselves: dead letters, and delayed ones that are due. What shards ask the broker to decide."""

from __future__ import annotations

import cbor2
from mypy_extensions import i64

from trilogue.core.broker import Broker
from trilogue.core.deaths import add_death, goes_in_circles, rerouted
from trilogue.core.errors import NotFound
from trilogue.core.message import MORE_KEYS, Run
from trilogue.core.queue import Queue
from trilogue.core.record import REASON_OVERFLOW, REASON_REJECTED, Letter
from trilogue.core.shard import Route, Shard, ShardOwner
from trilogue.core.topic import TopicPartition


class LetterWriter(ShardOwner):
    def __init__(self, broker: Broker) -> None:
        self.broker: Broker = broker

    def letters(self, queue: Queue, run: Run, reason: i64) -> list[Letter]:
        broker = self.broker
        entity = broker.catalog.by_id.get(queue.id)
        options = queue.options
        exchange = options.dead_letter_exchange
        if entity is None or exchange is None:
            return []
        keys = self.keys_of(run)
        own_key = options.dead_letter_routing_key
        notes = add_death(run.notes, entity.name, reason, broker.scheduler.now_ms(), run.exchange, keys, own_key is not None)
        if own_key is not None:
            keys = [own_key.encode()]
        key = keys[0]
        try:
            found = self.destinations(entity.vhost, exchange, run, keys)
        except NotFound:
            return []
        if reason != REASON_REJECTED:
            found = [destination for destination in found if not goes_in_circles(notes, self.name_of(destination >> 2))]
        return self.letters_to(found, exchange.encode(), key, notes, run)

    def by_headers(self, queue: Queue) -> bool:
        entity = self.broker.catalog.by_id.get(queue.id)
        exchange = queue.options.dead_letter_exchange
        return entity is not None and exchange is not None and self.broker.router.reads_headers(entity.vhost, exchange)

    def keys_of(self, run: Run) -> list[bytes]:
        """All routing keys of a message; where there are more than one, it is its run's only one."""
        keys = [run.routing_key]
        if run.flags & MORE_KEYS and not rerouted(run.notes):
            keys.extend(self.broker.lens.keys(run.origin, run.spans[0]))
        return keys

    def destinations(self, vhost: str, exchange: str, run: Run, keys: list[bytes]) -> list[int]:
        """Under any of the keys, each once."""
        found = self.broker.destinations(vhost, exchange, run, keys[0])
        for key in keys[1:]:
            found = found + [destination for destination in self.broker.destinations(vhost, exchange, run, key) if destination not in found]
        return found

    def identity(self, queue: Queue, run: Run) -> bytes:
        return self.broker.lens.identity(run.origin, run.spans[0], queue.options.dedup_header or "")

    def pass_on(self, queue: Queue, run: Run) -> None:
        """Published, since there is nothing to hand off."""
        for letter in self.letters(queue, run, REASON_OVERFLOW):
            passed = Run(letter.exchange, letter.routing_key, run.origin, run.spans, run.size, run.flags, run.priority, -1, run.key, letter.notes)
            partition = self.broker.partitions[letter.partition]
            if partition.stopped:
                continue
            if isinstance(partition, Shard):
                partition.publish(passed, Route(letter.targets))
            elif isinstance(partition, TopicPartition):
                partition.publish(passed)

    def name_of(self, id: i64) -> str:
        entity = self.broker.catalog.by_id.get(id)
        return "" if entity is None else entity.name

    def route_delayed(self, run: Run) -> list[Letter]:
        kept = cbor2.loads(run.notes)
        try:
            found = self.destinations(kept["vhost"], run.exchange.decode("utf-8", "replace"), run, [run.routing_key, *kept["keys"]])
        except NotFound:
            return []
        return self.letters_to(found, run.exchange, run.routing_key, cbor2.dumps({"delay": kept["delay"]}), run)

    def letters_to(self, destinations: list[int], exchange: bytes, routing_key: bytes, notes: bytes, run: Run) -> list[Letter]:
        """A live subscription gets its copy at once; queues and topics by hand-off."""
        broker = self.broker
        path = broker.make_path(destinations, 0)
        letters: list[Letter] = []
        for leg in path.legs:
            letters.append(Letter(leg.shard.id, [broker.target(id, run.priority) for id in leg.queues], exchange, routing_key, notes))
        for partitions in path.topics:
            letters.append(Letter(broker.choose(partitions, run).id, [], exchange, routing_key, notes))
        for subscriber in path.live:
            if subscriber.room():
                subscriber.deliver(Run(exchange, routing_key, run.origin, run.spans, run.size, run.flags, run.priority, -1, run.key, notes))
            else:
                subscriber.dropped += len(run.spans)
        return letters

    def queue_unused(self, queue: Queue) -> None:
        self.broker.queue_unused(queue)

    def partition_failed(self, partition: i64, reason: str) -> None:
        self.broker.failures[partition] = reason
