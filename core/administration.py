"""What users may change: exchanges, queues, topics, bindings. Authorised here, planned by the catalog, logged by the metadata partition.

Each call takes effect at once on this node; whoever must promise it to a client answers after `Broker.after`.
"""

from __future__ import annotations

from google_crc32c import value as crc_value
from mypy_extensions import i64

from trilogue.core import entities
from trilogue.core.access import CONFIGURE, READ, WRITE
from trilogue.core.broker import Broker
from trilogue.core.errors import AccessRefused, PreconditionFailed, Unavailable
from trilogue.core.record import QueueKeeps, Released, Rewound
from trilogue.core.session import Session


class Administration:
    def __init__(self, broker: Broker) -> None:
        self.broker: Broker = broker

    def change(self, change: bytes | None) -> bool:
        metadata = self.broker.metadata
        if metadata is None or metadata.stopped:
            raise Unavailable("metadata cannot be changed now")
        return metadata.change(change)

    def allow(self, session: Session, action: i64, kind: str, name: str, routing_key: str | None = None) -> None:
        self.broker.access.authorise(session.identity, action, session.vhost, kind, name, routing_key)

    # -------------------------------------------------------------------------------------------- exchanges

    def declare_exchange(self, session: Session, name: str, type: str, durable: bool, auto_delete: bool, internal: bool,
                         arguments: dict[str, object]) -> entities.Exchange:
        self.allow(session, CONFIGURE, "exchange", name)
        alternate = arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            self.allow(session, READ, "exchange", name)
            self.allow(session, WRITE, "exchange", alternate)
        catalog = self.broker.catalog
        self.change(catalog.plan_exchange(session.vhost, name, type, durable, auto_delete, internal, arguments, self.broker.epoch))
        return catalog.exchange(session.vhost, name)

    def delete_exchange(self, session: Session, name: str, if_unused: bool) -> None:
        self.allow(session, CONFIGURE, "exchange", name)
        self.change(self.broker.catalog.plan_delete_exchange(session.vhost, name, if_unused))

    # -------------------------------------------------------------------------------------------- queues and topics

    def declare_queue(self, session: Session, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: dict[str, object],
                      server_named: bool = False) -> entities.Destination:
        """Declare a queue, or with `x-queue-type: stream` a topic, and return it."""
        broker = self.broker
        self.allow(session, CONFIGURE, "queue", name)
        letters_to = arguments.get("x-dead-letter-exchange")
        if isinstance(letters_to, str):
            self.allow(session, READ, "queue", name)
            self.allow(session, WRITE, "exchange", letters_to)
        shard = self.place(name) if durable and not exclusive else self.transient_shard()
        self.change(broker.catalog.plan_queue(session.vhost, name, durable, exclusive, auto_delete, arguments, shard,
                                              session.id, broker.epoch, server_named))
        found = broker.catalog.destination(session.vhost, name)
        if isinstance(found, entities.Queue):
            queue = broker.queue(found.id)
            queue.used_ms = broker.scheduler.now_ms()
        return found

    def find_queue(self, session: Session, name: str) -> entities.Destination:
        """A passive declaration: does it exist, and may this connection use it?"""
        found = self.broker.catalog.destination(session.vhost, name)
        found.check_access(session.id, self.broker.epoch)
        return found

    def place(self, name: str) -> i64:
        """The shard that a new durable queue goes to."""
        shards = self.broker.shards
        return shards[i64(crc_value(name.encode())) % len(shards)].id

    def transient_shard(self) -> i64:
        transient = self.broker.transient
        assert transient is not None
        return transient.id

    def delete_queue(self, session: Session, name: str, if_unused: bool, if_empty: bool) -> i64:
        """Delete a queue or topic; returns how many messages it had. Missing is as good as deleted."""
        broker = self.broker
        self.allow(session, CONFIGURE, "queue", name)
        found = broker.catalog.find_destination(session.vhost, name)
        count: i64 = 0
        if isinstance(found, entities.Queue):
            found.check_access(session.id, broker.epoch)
            queue = broker.queue(found.id)
            count = queue.waiting()
            if if_unused and queue.consumers:
                raise PreconditionFailed(f"{found.where()} in use")
            if if_empty and count:
                raise PreconditionFailed(f"{found.where()} is not empty")
        self.change(broker.catalog.plan_delete_queue(session.vhost, name, session.id, broker.epoch))
        return count

    def purge_queue(self, session: Session, name: str) -> i64:
        self.allow(session, READ, "queue", name)
        entity = self.broker.queue_entity(session, name)
        return self.broker.queue(entity.id).purge()

    def rewind_queue(self, session: Session, name: str, time_ms: i64) -> i64:
        """Have everything waiting again that a keeping queue got since `time_ms`; returns how many messages that is."""
        self.allow(session, READ, "queue", name)
        entity = self.broker.queue_entity(session, name)
        queue = self.broker.queue(entity.id)
        if not queue.keeps:
            raise PreconditionFailed(f"{entity.where()} keeps nothing: it has no x-retention")
        shard = self.broker.shard_of(entity.id)
        offset = shard.log.offset_for_time(time_ms)
        before = queue.waiting()
        for lane in queue.lanes:
            shard.write_progress(lane)      # what was just acknowledged comes back too
            shard.append(Rewound(lane.chain.target, lane.ordinal_at(offset)))
        queue.lane_ready()
        return queue.waiting() - before

    # -------------------------------------------------------------------------------------------- bindings

    def bind(self, session: Session, source: str, destination: str, routing_key: str, arguments: dict[str, object], to_exchange: bool) -> None:
        self.allow_binding(session, source, destination, routing_key, to_exchange)
        self.change(self.broker.catalog.plan_bind(session.vhost, source, destination, routing_key, arguments, to_exchange,
                                                  session.id, self.broker.epoch))

    def unbind(self, session: Session, source: str, destination: str, routing_key: str, arguments: dict[str, object], to_exchange: bool) -> None:
        self.allow_binding(session, source, destination, routing_key, to_exchange)
        self.change(self.broker.catalog.plan_unbind(session.vhost, source, destination, routing_key, arguments, to_exchange,
                                                    session.id, self.broker.epoch))

    def allow_binding(self, session: Session, source: str, destination: str, routing_key: str, to_exchange: bool) -> None:
        if not source:
            raise AccessRefused("operation not permitted on the default exchange")
        self.allow(session, WRITE, "exchange" if to_exchange else "queue", destination)
        self.allow(session, READ, "exchange", source, routing_key)


def keep_up(broker: Broker, entity: entities.Queue) -> None:
    """Let the shard know whether a queue keeps what was consumed."""
    queue = broker.queue(entity.id)
    keeps = queue.options.retention_ms >= 0
    if keeps != queue.keeps:
        broker.shard_of(entity.id).append(QueueKeeps(entity.id, keeps))


def release_old(broker: Broker, now_ms: i64) -> None:
    """Release what keeping queues have kept long enough; replicas never decide that by their own clock (RULES 8)."""
    for shard in broker.shards:
        if shard.stopped:
            continue
        for queue in list(shard.queues.values()):
            if queue.keeps and queue.options.retention_ms >= 0:
                offset = shard.log.offset_for_time(now_ms - queue.options.retention_ms)
                for lane in queue.lanes:
                    upto = min(lane.ordinal_at(offset), lane.chain.floor)
                    if upto > lane.chain.released:
                        shard.append(Released(lane.chain.target, upto))


