"""The broker: takes a message from publish to delivery.

Everything a frontend may do goes through here or through `core/administration.py`: it is authorised once, limited once, and becomes
records. A frontend never sees a log.
"""

from __future__ import annotations

from typing import Final

import cbor2
from google_crc32c import value as crc_value
from mypy_extensions import i64

from trilogue.core import entities
from trilogue.core.access import READ, WRITE, Access, Identity
from trilogue.core.arguments import DROP_HEAD, REJECT_PUBLISH_DLX
from trilogue.core.catalog import Catalog
from trilogue.core.consumer import Consumer
from trilogue.core.errors import AccessRefused, BrokerError, NotFound, NotSupported, Unavailable
from trilogue.core.flusher import Flusher
from trilogue.core.handoff import RETRY_S, Exchange, Outbox, Pair
from trilogue.core.limits import Limits, Quota
from trilogue.core.live import LiveSubscriber
from trilogue.core.message import PERSISTENT, Run
from trilogue.core.metadata import MetadataPartition
from trilogue.core.outcome import Outcome
from trilogue.core.partition import Partition
from trilogue.core.ports import TO_LIVE, TO_QUEUE, Callback, Journal, Lens, Promise, Router, Scheduler
from trilogue.core.publisher import Publisher
from trilogue.core.queue import Queue
from trilogue.core.retained import Retained
from trilogue.core.session import PATHS_MAX, Leg, Path, Session
from trilogue.core.shard import Route, Shard
from trilogue.core.topic import TopicPartition, TopicReader

TOPIC_EXCHANGE: Final = "amq.topic"
SPAN_OVERHEAD_MAX: Final = 256 << 10    # properties and framing; the frontends hold the body itself to the limit


class Retry(Callback):
    def __init__(self, outbox: Outbox, pair: Pair) -> None:
        self.outbox: Outbox = outbox
        self.pair: Pair = pair

    def fire(self) -> None:
        self.outbox.retry(self.pair)


class BrokerExchange(Exchange):
    """How partitions of this node find each other for hand-offs."""

    def __init__(self, broker: Broker) -> None:
        self.broker: Broker = broker

    def partition(self, id: i64) -> Partition | None:
        return self.broker.partitions.get(id)

    def retry_later(self, outbox: Outbox, pair: Pair) -> None:
        self.broker.scheduler.call_later(RETRY_S, Retry(outbox, pair))


class Broker:
    """Owned by the event loop. `core/startup.py` fills it from disk; `core/follower.py` keeps it in step with the catalog."""

    def __init__(self, scheduler: Scheduler, journal: Journal, router: Router, lens: Lens, catalog: Catalog, access: Access, limits: Limits,
                 unsynced_max: i64, epoch: i64) -> None:
        self.scheduler: Scheduler = scheduler
        self.journal: Journal = journal
        self.router: Router = router
        self.lens: Lens = lens
        self.catalog: Catalog = catalog
        self.access: Access = access
        self.limits: Limits = limits
        self.epoch: i64 = epoch
        self.flusher: Flusher = Flusher(journal, scheduler, unsynced_max)
        self.exchange: BrokerExchange = BrokerExchange(self)
        self.partitions: dict[int, Partition] = {}
        self.shards: list[Shard] = []
        self.transient: Shard | None = None
        self.metadata: MetadataPartition | None = None
        self.retained: Retained | None = None
        self.topics: dict[int, list[TopicPartition]] = {}       # topic id -> its partitions
        self.subscribers: dict[int, LiveSubscriber] = {}
        self.sessions: dict[int, Session] = {}
        self.failures: dict[int, str] = {}
        self.version: i64 = 0               # of everything that paths depend on beside routing and permissions
        self.next_session: i64 = 1
        self.next_subscriber: i64 = 1
        self.spread: i64 = 0                # for messages without a key: the next partition in turn
        self.draining: bool = False
        self.received: i64 = 0
        self.unroutable: i64 = 0

    # -------------------------------------------------------------------------------------------- sessions

    def arrive(self) -> Quota:
        """A connection was accepted. Its quota is closed with it, or with its session."""
        if self.draining:
            raise Unavailable("the broker is shutting down")
        return self.limits.arrive()

    def open(self, identity: Identity, vhost: str, quota: Quota, protocol: str, peer: str) -> Session:
        """Somebody has logged in."""
        self.access.enter(identity, vhost)
        quota.admit(identity.user, vhost)
        session = Session(self.next_session, identity, vhost, quota, protocol, peer)
        self.next_session += 1
        self.sessions[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """The connection is gone: its exclusive queues go with it. Consumers and publishers were taken leave of before."""
        if not session.closed:
            session.closed = True
            self.sessions.pop(session.id, None)
            session.quota.close()
            metadata = self.metadata
            if metadata is not None and not metadata.stopped:
                metadata.change(self.catalog.plan_end_connection(session.id, self.epoch))

    def after(self, promise: Promise) -> None:
        """Tell when everything done so far is on disk, or that it is not."""
        self.flusher.call_after(promise)

    # -------------------------------------------------------------------------------------------- publish

    def publish(self, session: Session, publisher: Publisher, run: Run, confirm: bool, topic: bytes = b"") -> bool:
        """Take a run in; false if it went nowhere. `topic` is the original slash-separated address, where there is one."""
        if len(run.spans) > 1 and self.router.reads_headers(session.vhost, run.exchange.decode("utf-8", "replace")):
            routed = True
            for k in range(len(run.spans)):
                routed = self.publish(session, publisher, run.part(k, k + 1), confirm, topic) and routed
            return routed
        return self.publish_by(self.path(session, run, topic), publisher, run, confirm)

    def path_of_keys(self, session: Session, run: Run, keys: list[bytes]) -> Path:
        """The way of a message that has more routing keys than its own: to each destination once."""
        found = list(self.path(session, run, b"").destinations)
        for key in keys:
            other = Run(run.exchange, key, run.origin, run.spans, run.size)
            for destination in self.path(session, other, b"").destinations:
                if destination not in found:
                    found.append(destination)
        return self.make_path(found, 0)

    def publish_by(self, path: Path, publisher: Publisher, run: Run, confirm: bool) -> bool:
        """Take a run in along a path that was just found."""
        count: i64 = len(run.spans)
        self.limits.check_message(longest(run) - SPAN_OVERHEAD_MAX)
        first: i64 = publisher.sequence + 1
        publisher.sequence += count
        self.received += count
        if not path.routed():
            self.unroutable += count
            if confirm:
                publisher.confirmed_only(first, publisher.sequence)
            return False
        outcome = Outcome(first, count)
        kept = run
        for leg in path.legs:
            if leg.shard.stopped:
                outcome.refuse_all(leg.shard)
            elif leg.limited:
                self.publish_limited(leg, publisher, run, outcome, confirm)
            else:
                if kept.offset >= 0:
                    kept = run.part(0, count)       # offset and time belong to one partition
                leg.shard.publish(kept, self.route(leg, run.priority))
                self.note(publisher, leg.shard, leg.shard.synced, run, confirm, outcome)
        for partitions in path.topics:
            partition = self.choose(partitions, run)
            if partition.stopped:
                outcome.refuse_all(partition)
                continue
            if kept.offset >= 0:
                kept = run.part(0, count)
            partition.publish(kept)
            self.note(publisher, partition, True, run, confirm, outcome)
        for subscriber in path.live:
            if subscriber.room():
                subscriber.deliver(run)
            else:
                subscriber.dropped += count
        outcome.tell(publisher, confirm)
        return True

    def note(self, publisher: Publisher, partition: Partition, synced: bool, run: Run, confirm: bool, outcome: Outcome) -> None:
        """Have the publisher wait for the disk, if there is a promise to keep."""
        if confirm and synced and run.flags & PERSISTENT:
            self.flusher.wait(publisher, partition, run.size)
            outcome.waits = True
        else:
            self.flusher.took(publisher, run.size)

    def publish_limited(self, leg: Leg, publisher: Publisher, run: Run, outcome: Outcome, confirm: bool) -> None:
        """Some queue does not take everything: message by message."""
        shard = leg.shard
        for k in range(len(run.spans)):
            one = run.part(k, k + 1)
            one.offset = -1
            taking: list[int] = []
            refused = False
            for id in leg.queues:
                queue = shard.queue(id)
                if queue.accepts(one) == 0:
                    refused = True
                    outcome.refuse(k, "a queue is full")
                    if queue.options.overflow == REJECT_PUBLISH_DLX:
                        shard.owner.pass_on(queue, one)
                elif shard.is_fresh(queue, one):
                    taking.append(self.target(id, run.priority))
            if taking:
                shard.publish(one, Route(taking))
            elif refused:
                continue
            else:
                self.flusher.need(shard)        # the confirm of a duplicate must not overtake the sync of what it repeats
            self.note(publisher, shard, shard.synced, one, confirm, outcome)

    def publish_delayed(self, session: Session, publisher: Publisher, run: Run, delay_ms: i64, confirm: bool,
                        keys: list[bytes] | None = None) -> None:
        """Keep a run and route it when it is due, also by further `keys`; message by message, since each is a record of its own."""
        self.limits.check_message(longest(run) - SPAN_OVERHEAD_MAX)
        self.allow_publish(session, run)
        shard = self.shards[i64(crc_value(run.routing_key)) % len(self.shards)]
        due: i64 = self.scheduler.now_ms() + delay_ms
        first: i64 = publisher.sequence + 1
        publisher.sequence += len(run.spans)
        self.received += len(run.spans)
        for k in range(len(run.spans)):
            one = run.part(k, k + 1)
            one.offset = -1
            one.time_ms = self.scheduler.now_ms()
            if one.ttl_ms >= 0:
                one.deadline_ms = due + one.ttl_ms
            one.notes = cbor2.dumps({"vhost": session.vhost, "delay": int(delay_ms), "keys": keys or []})
            shard.take_delayed(one, due)
        outcome = Outcome(first, len(run.spans))
        self.note(publisher, shard, True, run, confirm, outcome)
        outcome.tell(publisher, confirm)

    def allow_publish(self, session: Session, run: Run) -> entities.Exchange:
        name = run.exchange.decode("utf-8", "replace")
        exchange = self.catalog.exchange(session.vhost, name)
        self.access.authorise(session.identity, WRITE, session.vhost, "exchange", name, run.routing_key.decode("utf-8", "replace"))
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal {exchange.where()}")
        return exchange

    def path(self, session: Session, run: Run, topic: bytes) -> Path:
        version: i64 = self.version + self.router.version + self.access.version
        key = (run.exchange, run.routing_key, topic)
        path = session.paths.get(key)
        if path is not None and path.version == version:
            return path
        exchange = self.allow_publish(session, run)
        cacheable = not self.router.reads_headers(session.vhost, exchange.name)
        path = self.make_path(self.destinations(session.vhost, exchange.name, run, run.routing_key, topic), version)
        if cacheable:
            if len(session.paths) >= PATHS_MAX:
                session.paths = {}
            session.paths[key] = path
        return path

    def destinations(self, vhost: str, exchange: str, run: Run, routing_key: bytes, topic: bytes = b"") -> list[int]:
        """Where messages with this address go; `NotFound` if there is no such exchange."""
        headers: dict[str, object] = {}
        if self.router.reads_headers(vhost, exchange):
            headers = self.lens.headers(run.origin, run.spans[0])
        found = self.router.route(vhost, exchange, routing_key, headers)
        if exchange == TOPIC_EXCHANGE:
            for destination in self.router.route_topic(vhost, topic if topic else routing_key.replace(b".", b"/")):
                if destination not in found:
                    found.append(destination)
        return found

    def make_path(self, destinations: list[int], version: i64) -> Path:
        path = Path(version, destinations)
        by_shard: dict[int, Leg] = {}
        for destination in destinations:
            id = destination >> 2
            kind = destination & 3
            if kind == TO_LIVE:
                path.live.append(self.subscribers[id])
            elif kind == TO_QUEUE:
                shard = self.shard_of(id)
                leg = by_shard.get(shard.id)
                if leg is None:
                    leg = Leg(shard, [], False)
                    by_shard[shard.id] = leg
                    path.legs.append(leg)
                leg.queues.append(id)
                leg.limited = leg.limited or is_choosy(self.queue(id))
            else:
                path.topics.append(self.topics[id])
        return path

    def route(self, leg: Leg, priority: i64) -> Route:
        route = leg.routes.get(priority)
        if route is None:
            route = Route([self.target(id, priority) for id in leg.queues])
            leg.routes[priority] = route
        return route

    def target(self, queue_id: i64, priority: i64) -> i64:
        most: i64 = self.queue(queue_id).options.max_priority
        level: i64 = 0
        if most > 0:
            level = priority if priority < most else most
        return queue_id << 8 | level

    def choose(self, partitions: list[TopicPartition], run: Run) -> TopicPartition:
        """By key where there is one, else in turn."""
        n: i64 = len(partitions)
        if n == 1:
            return partitions[0]
        key = run.key if run.key else run.routing_key
        if key:
            return partitions[i64(crc_value(key)) % n]
        self.spread += 1
        return partitions[self.spread % n]

    # -------------------------------------------------------------------------------------------- consume

    def queue_entity(self, session: Session, name: str) -> entities.Queue:
        found = self.catalog.destination(session.vhost, name)
        found.check_access(session.id, self.epoch)
        if not isinstance(found, entities.Queue):
            raise NotSupported(f"{found.where()} is a topic")
        return found

    def consume(self, session: Session, name: str, consumer: Consumer) -> Queue:
        """Attach a consumer to a queue. Its answers go to the queue that is returned."""
        entity = self.queue_entity(session, name)
        self.access.authorise(session.identity, READ, session.vhost, "queue", name)
        queue = self.queue(entity.id)
        shard = self.shard_of(entity.id)
        if shard.stopped:
            raise Unavailable(f"{entity.where()} cannot be served: {shard.stopped}")
        try:
            queue.attach(consumer)
        except AccessRefused:
            raise AccessRefused(f"{entity.where()} in exclusive use") from None
        return queue

    def read_topic(self, session: Session, name: str, partition: i64, reader: TopicReader) -> TopicPartition:
        found = self.catalog.destination(session.vhost, name)
        if not isinstance(found, entities.Topic):
            raise NotSupported(f"{found.where()} is not a topic")
        self.access.authorise(session.identity, READ, session.vhost, "queue", name)
        partitions = self.topics[found.id]
        if not 0 <= partition < len(partitions):
            raise NotFound(f"no partition {partition} of {found.where()}")
        chosen = partitions[partition]
        if chosen.stopped:
            raise Unavailable(f"partition {partition} of {found.where()} cannot be served: {chosen.stopped}")
        chosen.attach(reader)
        return chosen

    def subscribe(self, session: Session, topic_filter: str, subscriber: LiveSubscriber) -> None:
        """Feed a live subscription with what matches a slash-separated filter."""
        self.access.authorise(session.identity, READ, session.vhost, "exchange", "amq.topic", topic_filter.replace("/", "."))
        self.enrol(subscriber)
        self.router.subscribe(session.vhost, topic_filter, subscriber.id << 2 | TO_LIVE)

    def unsubscribe(self, session: Session, topic_filter: str, subscriber: LiveSubscriber) -> None:
        self.router.unsubscribe(session.vhost, topic_filter, subscriber.id << 2 | TO_LIVE)

    def enrol(self, subscriber: LiveSubscriber) -> None:
        if subscriber.id == 0:
            subscriber.id = self.next_subscriber
            self.next_subscriber += 1
            self.subscribers[subscriber.id] = subscriber

    def listen(self, vhost: str, name: str, subscriber: LiveSubscriber) -> None:
        """Feed a live subscription with what is published to a name of its own, as if that were a queue's."""
        self.enrol(subscriber)
        self.router.add_destination(vhost, name, subscriber.id << 2 | TO_LIVE)

    def unlisten(self, vhost: str, name: str, subscriber: LiveSubscriber) -> None:
        self.router.remove_destination(vhost, name, subscriber.id << 2 | TO_LIVE)
        self.leave(subscriber)

    def leave(self, subscriber: LiveSubscriber) -> None:
        """The subscriber has unsubscribed from everything."""
        self.subscribers.pop(subscriber.id, None)

    def retain(self, session: Session, topic: str, run: Run, forget: bool) -> None:
        """Keep, or forget, the message that new subscribers of a topic get first. Whoever may publish there may do this."""
        self.allow_publish(session, run)
        retained = self.retained
        assert retained is not None
        if forget:
            retained.forget(session.vhost, topic)
        else:
            retained.retain(session.vhost, topic, run)

    # -------------------------------------------------------------------------------------------- queues

    def queue(self, id: i64) -> Queue:
        return self.shard_of(id).queue(id)

    def shard_of(self, queue_id: i64) -> Shard:
        entity = self.catalog.by_id[queue_id]
        assert isinstance(entity, entities.Queue)
        shard = self.partitions[entity.shard]
        assert isinstance(shard, Shard)
        return shard

    def queue_unused(self, queue: Queue) -> None:
        entity = self.catalog.by_id.get(queue.id)
        if isinstance(entity, entities.Queue) and entity.auto_delete and queue.had_consumer:
            self.delete_queue(entity)
        else:
            self.watch_expiry(queue)

    def delete_queue(self, entity: entities.Destination) -> None:
        metadata = self.metadata
        owner = entity.owner if isinstance(entity, entities.Queue) else i64(0)
        if metadata is not None and not metadata.stopped:
            metadata.change(self.catalog.plan_delete_queue(entity.vhost, entity.name, owner, self.epoch))

    def watch_expiry(self, queue: Queue) -> None:
        """Delete the queue when nobody has used it for as long as it asked. One timer per queue, however often this is called."""
        if queue.options.expires_ms < 0 or queue.expiring:
            return
        queue.expiring = True
        self.scheduler.call_later(float(queue.options.expires_ms) / 1000.0, Unused(self, queue))

    # -------------------------------------------------------------------------------------------- errors

    def check_serving(self) -> None:
        """Raises why the broker cannot keep its promises now, if it cannot."""
        for partition in self.partitions.values():
            if partition.stopped:
                raise Unavailable(f"partition {partition.id} is stopped: {partition.stopped}")
        if self.flusher.stalled or self.flusher.blocked:
            raise Unavailable(self.flusher.stalled or self.flusher.blocked)


class Unused(Callback):
    """The moment at which a queue that expires may have been unused long enough."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self.broker: Broker = broker
        self.queue: Queue = queue

    def fire(self) -> None:
        queue = self.queue
        queue.expiring = False
        entity = self.broker.catalog.by_id.get(queue.id)
        if entity is None or queue.consumers or queue.options.expires_ms < 0:
            return                      # a consumer that leaves starts the wait again
        idle: i64 = self.broker.scheduler.now_ms() - queue.used_ms
        if idle < queue.options.expires_ms:
            queue.expiring = True
            self.broker.scheduler.call_later(float(queue.options.expires_ms - idle) / 1000.0, self)
            return
        try:
            self.broker.delete_queue(entity)
        except BrokerError:
            self.broker.watch_expiry(queue)


def is_choosy(queue: Queue) -> bool:
    """May the queue not take a message?"""
    options = queue.options
    return options.deduplication or (options.overflow > DROP_HEAD and (options.max_length >= 0 or options.max_bytes >= 0))


def longest(run: Run) -> i64:
    if len(run.spans) == 1:
        return run.size
    most: i64 = 0
    for span in run.spans:
        if len(span) > most:
            most = len(span)
    return most
