"""One AMQP channel: publishes, consumes, acknowledges. A publisher to the core, and the holder of everything delivered and not answered for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64
from pamqp import commands

from trilogue.core.arguments import QUORUM
from trilogue.core.batch import write_u16, write_u32
from trilogue.core.connection import Connection
from trilogue.core.consumer import Consumer
from trilogue.core.errors import BrokerError
from trilogue.core.frontend import StreamFrontend
from trilogue.core.lane import Lane, LaneOwner, Piece
from trilogue.core.limits import CONSUMER
from trilogue.core.message import ORIGIN_AMQP, Run
from trilogue.core.publisher import Publisher
from trilogue.core.queue import Queue
from trilogue.core.unacked import Held, Unacked, hold
from trilogue.frontends.amqp.codec import BASIC, FRAME_END, FRAME_MAX, METHOD, ack_frame, encode_method, nack_frame, short
from trilogue.frontends.amqp.frames import got, write_span
from trilogue.frontends.amqp.patience import Patience
from trilogue.frontends.amqp.render import render

if TYPE_CHECKING:
    from trilogue.frontends.amqp.transaction import Transaction

UNLIMITED: Final = 1 << 40
CONSUMER_TIMEOUT_MS: Final = 1_800_000      # unless the queue or the listener says otherwise; 0: none

# What a transaction does to deliveries when it is committed.
SETTLED: Final = 0
RETURNED: Final = 1
REJECTED: Final = 2


class AmqpLink(Connection):
    """What a channel needs of its connection; implemented by `session.py`."""

    def __init__(self, frontend: StreamFrontend) -> None:
        super().__init__(frontend)
        self.frame_max: i64 = FRAME_MAX
        self.consumer_timeout_ms: i64 = CONSUMER_TIMEOUT_MS
        asked = self.context.options.get("consumer_timeout_ms")
        if isinstance(asked, int):
            self.consumer_timeout_ms = asked

    @abstractmethod
    def resume(self, reply: bytes) -> None:
        """Go on with what came in while the connection waited."""

    @abstractmethod
    def consumer_cancelled(self, channel: Channel, tag: str) -> None:
        """The broker took a consumer's queue away: tell the client, if it wants to know."""

    @abstractmethod
    def channel_error(self, number: i64, code: int, text: str, method: int) -> None:
        """Close a channel with a reply code."""


class Subscription(ABC):
    """What a consumer tag stands for: somebody who takes from a queue, from a stream, or the replies to this channel."""

    @abstractmethod
    def leave(self) -> None:
        """It gets nothing more. What it holds stays with the channel."""

    @abstractmethod
    def pump(self) -> None:
        """There may be room again."""


class Creditor(LaneOwner):
    """In a queue's place, for messages that nobody need give back: an answer only makes room for the next."""

    @abstractmethod
    def answered(self, count: i64) -> None: ...

    @abstractmethod
    def pump(self) -> None: ...

    def lane_ready(self) -> None:
        pass

    def lane_failed(self, error: Exception) -> None:
        pass


class AmqpConsumer(Consumer):
    """`basic.consume`: writes deliveries as they come."""

    def __init__(self, channel: Channel, tag: bytes, priority: i64, no_ack: bool, exclusive: bool, prefetch: i64) -> None:
        super().__init__(priority, no_ack, exclusive)
        self.channel: Channel = channel
        self.tag: bytes = tag
        self.prefetch: i64 = prefetch if prefetch > 0 else UNLIMITED
        self.held: i64 = 0                  # delivered to it and not answered for
        self.queue: Queue | None = None
        self.exchange: bytes = b"\0"        # of the deliveries that `before` and `after` were made for
        self.routing_key: bytes = b"\0"
        self.before: bytes = b""            # the deliver frame up to the delivery tag
        self.after: bytes = b""             # and from the redelivered bit on

    def room(self) -> i64:
        channel = self.channel
        if not channel.link.has_room() or not channel.flowing:
            return 0
        room = self.prefetch - self.held
        if channel.prefetch > 0 and not self.no_ack and room > channel.prefetch - channel.holding():
            room = channel.prefetch - channel.holding()
        return room

    def prepare(self, run: Run) -> None:
        """The parts of a deliver frame that all messages of an address share."""
        self.exchange = run.exchange
        self.routing_key = run.routing_key
        key = run.routing_key[:255]
        w = BytesWriter()
        w.append(METHOD)
        write_u16(w, self.channel.number)
        write_u32(w, 4 + 1 + len(self.tag) + 8 + 1 + 1 + len(run.exchange) + 1 + len(key))
        write_u16(w, BASIC)
        write_u16(w, 60)
        w.write(short(self.tag))
        self.before = w.getvalue()
        self.after = short(run.exchange) + short(key) + bytes([FRAME_END])

    def deliver(self, lane: Lane, piece: Piece, count: i64) -> None:
        channel = self.channel
        run = piece.run
        if run.exchange is not self.exchange or run.routing_key is not self.routing_key:
            self.prepare(run)
        if not self.no_ack:
            channel.unacked.add(hold(channel.tag + 1, lane, piece.ordinal, run, piece.start, count, self))
            self.held += count
        w = channel.link.w
        tag = channel.tag
        before = self.before
        after = (b"\x01" if piece.again else b"\x00") + self.after
        spans = run.spans
        counts = delivery_counts(lane)
        plain = run.origin == ORIGIN_AMQP and not run.notes and not counts
        k: i64 = piece.start
        stop: i64 = k + count
        while k < stop:
            tag += 1
            w.write(before)
            write_i64_be(w, tag)
            w.write(after)
            span = spans[k] if plain else render(run, k, counts.get(piece.ordinal + k - piece.start, 0), channel.link.frame_max)
            write_span(w, span, channel.number, channel.link.frame_max)
            k += 1
        channel.tag = tag
        channel.link.wrote()

    def cancelled(self) -> None:
        self.channel.consumer_gone(self.tag)


class FromQueue(Subscription):
    def __init__(self, consumer: AmqpConsumer) -> None:
        self.consumer: AmqpConsumer = consumer

    def leave(self) -> None:
        queue = self.consumer.queue
        if queue is not None:
            queue.detach(self.consumer)

    def pump(self) -> None:
        queue = self.consumer.queue
        if queue is not None:
            queue.pump()


NO_COUNTS: Final[dict[int, int]] = {}


def delivery_counts(lane: Lane) -> dict[int, int]:
    """Only quorum queues tell how often a message was tried."""
    queue = lane.owner
    return lane.chain.counts if isinstance(queue, Queue) and queue.options.type == QUORUM else NO_COUNTS


class Getter(Consumer):
    """`basic.get`: takes one message that is there."""

    def __init__(self, channel: Channel, queue: Queue, no_ack: bool) -> None:
        super().__init__(0, no_ack, False, True)
        self.channel: Channel = channel
        self.queue: Queue = queue
        self.done: bool = False

    def room(self) -> i64:
        return 0 if self.done else 1

    def deliver(self, lane: Lane, piece: Piece, count: i64) -> None:
        self.done = True
        channel = self.channel
        run = piece.run
        channel.tag += 1
        if not self.no_ack:
            channel.unacked.add(hold(channel.tag, lane, piece.ordinal, run, piece.start, 1, self))
        w = channel.link.w
        w.write(got(channel.number, channel.tag, piece.again, run, self.queue.ready()))
        span = render(run, piece.start, delivery_counts(lane).get(piece.ordinal, 0), channel.link.frame_max)
        write_span(w, span, channel.number, channel.link.frame_max)
        channel.link.wrote()
        channel.get_answered()

    def nothing(self) -> None:
        channel = self.channel
        channel.link.send(encode_method(commands.Basic.GetEmpty(), channel.number))
        channel.get_answered()

    def cancelled(self) -> None:
        self.nothing()


class Channel(Publisher):
    def __init__(self, link: AmqpLink, number: i64) -> None:
        super().__init__()
        self.link: AmqpLink = link
        self.number: i64 = number
        self.tag: i64 = 0                       # of the last delivery
        self.unacked: Unacked = Unacked()
        self.consumers: dict[str, Subscription] = {}
        self.consumer_prefetch: i64 = 0         # for consumers to come
        self.prefetch: i64 = 0                  # for all of them together
        self.flowing: bool = True
        self.confirming: bool = False
        self.named_upto: i64 = 0                # everything published up to here was confirmed or refused
        self.transaction: Transaction | None = None
        self.last_queue: str = ""               # what an empty name means
        self.closing: bool = False              # we closed it, and wait for the client to agree
        self.closed: bool = False
        self.getting: bool = False
        self.reply_name: str = ""               # what stands for this channel in the reply-to of its requests
        self.patience: Patience = Patience(self)

    # -------------------------------------------------------------------------------------------- publisher

    def confirmed(self, upto: i64) -> None:
        # One message is confirmed by its number alone: after a reconnect Bunny miscounts what `multiple` covers, and waits for ever.
        self.link.send(ack_frame(self.number, upto, upto != self.named_upto + 1))
        self.named_upto = upto

    def confirmed_only(self, first: i64, last: i64) -> None:
        if first == self.named_upto + 1:
            self.named_upto = last
        while first <= last:
            self.link.send(ack_frame(self.number, first, False))
            first += 1

    def refused(self, upto: i64, error: BrokerError) -> None:
        self.link.send(nack_frame(self.number, upto, True))

    def refused_only(self, first: i64, last: i64, error: BrokerError) -> None:
        if self.confirming:
            while first <= last:
                self.link.send(nack_frame(self.number, first, False))
                first += 1

    def hold(self) -> None:
        self.link.hold()

    def release(self) -> None:
        self.link.release()

    # -------------------------------------------------------------------------------------------- answers

    def settle(self, helds: list[Held]) -> None:
        if self.transaction is not None:
            self.transaction.postpone(SETTLED, helds)
            return
        for held in helds:
            queue = self.freed(held)
            if queue is not None:
                queue.settle(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
        self.pump_after(helds)

    def give_back(self, helds: list[Held], counted: bool) -> None:
        if self.transaction is not None:
            self.transaction.postpone(RETURNED, helds)
            return
        # From the last to the first: a queue that is pumped in between delivers what comes first, first.
        k: i64 = len(helds) - 1
        while k >= 0:
            held = helds[k]
            queue = self.freed(held)
            if queue is not None:
                queue.give_back(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count), counted)
            k -= 1
        self.pump_after(helds)

    def reject(self, helds: list[Held]) -> None:
        if self.transaction is not None:
            self.transaction.postpone(REJECTED, helds)
            return
        for held in helds:
            queue = self.freed(held)
            if queue is not None:
                queue.reject(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
        self.pump_after(helds)

    def freed(self, held: Held) -> Queue | None:
        """The queue that is to know what became of a message, if it came from one."""
        owner = held.owner
        if isinstance(owner, AmqpConsumer):
            owner.held -= held.count
        queue = held.lane.owner
        if isinstance(queue, Queue):
            return queue
        assert isinstance(queue, Creditor)
        queue.answered(held.count)
        return None

    def pump_after(self, helds: list[Held]) -> None:
        last: LaneOwner | None = None
        for held in helds:
            owner = held.lane.owner
            if owner is not last:
                last = owner
                if isinstance(owner, (Queue, Creditor)):
                    owner.pump()
        if self.prefetch > 0:
            self.pump()

    def pump(self) -> None:
        for subscription in list(self.consumers.values()):
            subscription.pump()

    def holding(self) -> i64:
        """How many deliveries count against the channel's prefetch."""
        transaction = self.transaction
        return self.unacked.count if transaction is None else self.unacked.count + transaction.postponed

    # -------------------------------------------------------------------------------------------- consumers

    def consumer_gone(self, tag: bytes) -> None:
        name = tag.decode("utf-8", "replace")
        if self.consumers.pop(name, None) is not None:
            self.give_quota()
            self.link.consumer_cancelled(self, name)

    def cancel(self, tag: str) -> None:
        """Stop a consumer; what it holds stays with the channel."""
        subscription = self.consumers.pop(tag, None)
        if subscription is not None:
            self.give_quota()
            subscription.leave()

    def give_quota(self) -> None:
        session = self.link.session
        if session is not None:
            session.quota.give(CONSUMER)

    def get_answered(self) -> None:
        """The connection's input waited for this."""
        self.getting = False
        self.link.resume(b"")

    def close(self) -> None:
        """The channel is gone: its consumers leave, and what it holds goes back to where it was."""
        self.closed = True
        for tag in list(self.consumers):
            self.cancel(tag)
        transaction = self.transaction
        self.transaction = None
        if transaction is not None:
            self.unacked.restore(transaction.take_back())
        self.give_back(self.unacked.take_all(), True)
        held = self.held
        self.link.context.broker.flusher.forget(self)
        if held:
            self.link.release()         # the flusher will not: it has forgotten the channel
