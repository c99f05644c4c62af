"""Keeps the router, the shards and the topics in step with the catalog."""

from __future__ import annotations

from trilogue.core.administration import keep_up
from trilogue.core.broker import Broker
from trilogue.core.entities import Binding, Destination, Exchange, Queue, Topic, Vhost
from trilogue.core.observer import CatalogObserver
from trilogue.core.record import QueueGone
from trilogue.core.shard import Shard
from trilogue.core.startup import PartitionOpener


class Follower(CatalogObserver):
    def __init__(self, broker: Broker, opener: PartitionOpener) -> None:
        self.broker: Broker = broker
        self.opener: PartitionOpener = opener

    def catch_up(self) -> None:
        """Learn everything the catalog has, before following its changes."""
        catalog = self.broker.catalog
        for vhost in catalog.vhosts.values():
            self.vhost_added(vhost)
            for exchange in vhost.exchanges.values():
                self.exchange_added(exchange)
            for destination in vhost.destinations.values():
                self.destination_added(destination)
        for vhost in catalog.vhosts.values():
            for exchange in vhost.exchanges.values():
                for binding in exchange.outgoing.values():
                    self.bound(binding)
        catalog.watch(self)

    def vhost_added(self, vhost: Vhost) -> None:
        self.broker.router.add_vhost(vhost.name)

    def vhost_removed(self, vhost: Vhost) -> None:
        self.broker.router.remove_vhost(vhost.name)

    def exchange_added(self, exchange: Exchange) -> None:
        if exchange.name:
            self.broker.router.add_exchange(exchange.vhost, exchange.name, exchange.routing_type(), exchange.arguments)
            self.exchange_changed(exchange)

    def exchange_removed(self, exchange: Exchange) -> None:
        self.broker.router.remove_exchange(exchange.vhost, exchange.name)

    def exchange_changed(self, exchange: Exchange) -> None:
        self.broker.router.set_alternate(exchange.vhost, exchange.name, exchange.alternate)

    def destination_added(self, destination: Destination) -> None:
        if isinstance(destination, Queue):
            self.queue_added(destination)
        elif isinstance(destination, Topic):
            self.topic_added(destination)

    def queue_added(self, queue: Queue) -> None:
        self.broker.router.add_destination(queue.vhost, queue.name, queue.target())
        made = self.broker.queue(queue.id)
        made.used_ms = self.broker.scheduler.now_ms()
        self.queue_changed(queue)

    def queue_changed(self, queue: Queue) -> None:
        self.broker.version += 1
        made = self.broker.queue(queue.id)
        made.changed(queue.effective)
        self.broker.watch_expiry(made)
        keep_up(self.broker, queue)

    def queue_removed(self, queue: Queue) -> None:
        self.broker.router.remove_destination(queue.vhost, queue.name, queue.target())
        shard = self.broker.partitions[queue.shard]
        if not shard.stopped:
            if isinstance(shard, Shard):
                shard.seen.forget(queue.id)
            shard.append(QueueGone(queue.id))

    def topic_added(self, topic: Topic) -> None:
        self.broker.router.add_destination(topic.vhost, topic.name, topic.target())
        self.topic_changed(topic)

    def topic_changed(self, topic: Topic) -> None:
        self.broker.version += 1
        self.opener.open_topic(topic)

    def topic_removed(self, topic: Topic) -> None:
        self.broker.version += 1
        self.broker.router.remove_destination(topic.vhost, topic.name, topic.target())
        for partition in self.broker.topics.pop(topic.id, []):
            partition.close()
            partition.failed("its topic was deleted")
            self.broker.partitions.pop(partition.id, None)
            self.opener.close_partition(partition)

    def bound(self, binding: Binding) -> None:
        router = self.broker.router
        if binding.to_exchange:
            router.bind_exchange(binding.vhost, binding.source, binding.destination, binding.routing_key, binding.arguments)
        else:
            router.bind(binding.vhost, binding.source, binding.target, binding.routing_key, binding.arguments)

    def unbound(self, binding: Binding) -> None:
        router = self.broker.router
        if binding.to_exchange:
            router.unbind_exchange(binding.vhost, binding.source, binding.destination, binding.routing_key, binding.arguments)
        else:
            router.unbind(binding.vhost, binding.source, binding.target, binding.routing_key, binding.arguments)
