"""A frontend as a third party would write it: one command a line, uncompiled, made of nothing but the core's public classes.

LOGIN user password        OK | ERR reason, and the end
DECLARE queue [durable]    OK when that is on disk
TOPIC name [partitions]    OK when that is on disk
BIND exchange queue key    OK when that is on disk
PUB exchange key body      OK n: everything up to the n-th message is safe; ERR n reason: it is not ("-" is the default exchange)
SUB queue [prefetch]       OK, then MSG tag again body
READ topic offset          OK, then REC offset body (of partition 0)
LIVE filter                OK, then TOP key body
ACK tag, NACK tag, REJECT tag
"""

from __future__ import annotations

from trilogue.core.connection import Connection
from trilogue.core.consumer import Consumer
from trilogue.core.errors import BrokerError, InvalidArgument
from trilogue.core.frontend import Peer, StreamFrontend
from trilogue.core.lane import Lane, Piece
from trilogue.core.limits import CONSUMER
from trilogue.core.live import LiveSubscriber
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.ports import Callback, Promise
from trilogue.core.publisher import Publisher
from trilogue.core.queue import Queue
from trilogue.core.session import Session
from trilogue.core.topic import TopicPartition, TopicReader
from trilogue.core.unacked import Held, Unacked, hold

LINE_BYTES_MAX = 1 << 20
PUBLISHES = b"PUB "


class LineFrontend(StreamFrontend):
    def connection(self) -> Peer:
        return LineConnection(self)


class LineConnection(Connection):
    def __init__(self, frontend: LineFrontend) -> None:
        super().__init__(frontend)
        self.rest = bytearray()
        self.publisher = LinePublisher(self)
        self.unacked = Unacked()
        self.tag = 0
        self.consumers: list[LineConsumer] = []
        self.readers: list[LineReader] = []
        self.subscriber = LineSubscriber(self)
        self.filters: list[str] = []

    # ---------------------------------------------------------------- in

    def received(self, data: bytes) -> None:
        self.rest += data
        self.take_lines()

    def take_lines(self) -> None:
        start = 0
        while not self.verifying and not self.closed:
            end = self.rest.find(b"\n", start)
            if end < 0:
                break
            line = bytes(self.rest[start:end]).rstrip(b"\r")
            start = end + 1
            if self.must_park() and line.startswith(PUBLISHES):
                self.park(line, len(line))
            else:
                self.obey(line)
        del self.rest[:start]
        if len(self.rest) > LINE_BYTES_MAX:
            self.say("ERR - line too long")
            self.close()

    def unpark(self, item: object) -> None:
        assert isinstance(item, bytes)
        self.obey(item)

    def obey(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        command = getattr(self, "do_" + word.decode("ascii", "replace").lower(), None)
        try:
            if command is None or (self.session is None and word != b"LOGIN"):
                raise InvalidArgument("what?")
            try:
                command(*rest.decode().split(" ", 2 if word == b"PUB" else -1))
            except (TypeError, ValueError):
                raise InvalidArgument("what?") from None
        except BrokerError as error:
            self.say(f"ERR - {error}")

    def do_login(self, user: str, password: str) -> None:
        if self.session is not None:
            raise InvalidArgument("twice")
        self.log_in(user, password, self.context.vhost, "line")

    def logged_in(self, session: Session) -> None:
        self.say("OK")
        self.take_lines()

    def login_failed(self, error: BrokerError) -> None:
        self.say(f"ERR {error}")
        self.close()

    def turned_away(self, error: BrokerError) -> None:
        self.say(f"ERR {error}")

    def do_declare(self, queue: str, durable: str = "") -> None:
        self.context.administration.declare_queue(self.session, queue, durable == "durable", False, False, {})
        self.context.broker.after(Said(self))

    def do_topic(self, name: str, partitions: str = "1") -> None:
        arguments: dict[str, object] = {"x-queue-type": "stream", "x-partitions": int(partitions)}
        self.context.administration.declare_queue(self.session, name, True, False, False, arguments)
        self.context.broker.after(Said(self))

    def do_bind(self, exchange: str, queue: str, key: str) -> None:
        self.context.administration.bind(self.session, exchange, queue, key, {}, False)
        self.context.broker.after(Said(self))

    def do_pub(self, exchange: str, key: str, body: str) -> None:
        self.context.broker.limits.check_message(len(body))
        span = native_span(b"", body.encode())
        run = Run(b"" if exchange == "-" else exchange.encode(), key.encode(), ORIGIN_NATIVE, [span], len(span), PERSISTENT)
        self.context.broker.publish(self.session, self.publisher, run, True)

    def do_sub(self, queue: str, prefetch: str = "10") -> None:
        assert self.session is not None
        self.context.administration.find_queue(self.session, queue)
        self.session.quota.take(CONSUMER)
        consumer = LineConsumer(self, int(prefetch))
        self.say("OK")
        consumer.queue = self.context.broker.consume(self.session, queue, consumer)
        self.consumers.append(consumer)

    def do_read(self, topic: str, offset: str) -> None:
        reader = LineReader(self, int(offset))
        self.say("OK")
        reader.partition = self.context.broker.read_topic(self.session, topic, 0, reader)
        self.readers.append(reader)

    def do_live(self, topic_filter: str) -> None:
        self.context.broker.subscribe(self.session, topic_filter, self.subscriber)
        self.filters.append(topic_filter)
        self.say("OK")

    def do_ack(self, tag: str) -> None:
        for held in self.answered(int(tag)):
            queue_of(held).settle(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))

    def do_nack(self, tag: str) -> None:
        for held in self.answered(int(tag)):
            queue_of(held).give_back(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))

    def do_reject(self, tag: str) -> None:
        for held in self.answered(int(tag)):
            queue_of(held).reject(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))

    def answered(self, tag: int) -> list[Held]:
        """The delivery under `tag`; whoever it went to has room for another afterwards."""
        found = self.unacked.take(tag, tag)
        if found is None:
            raise InvalidArgument(f"unknown tag {tag}")
        for held in found:
            held.owner.held -= 1
        self.context.broker.scheduler.call_soon(Pump([queue_of(held) for held in found]))
        return found

    # ---------------------------------------------------------------- out

    def say(self, text: str) -> None:
        self.send(text.encode() + b"\n")

    def room_again(self) -> None:
        for consumer in self.consumers:
            consumer.queue.pump()
        for reader in self.readers:
            reader.partition.pump(reader)

    def unacknowledged(self) -> int:
        return int(self.unacked.count)

    def lost(self) -> None:
        broker = self.context.broker
        broker.flusher.forget(self.publisher)
        for consumer in self.consumers:
            consumer.queue.detach(consumer)
        queues = []
        for held in self.unacked.take_all():
            queue_of(held).give_back(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
            queues.append(queue_of(held))
        for queue in queues:
            queue.pump()
        for reader in self.readers:
            reader.partition.detach(reader)
        for topic_filter in self.filters:
            broker.unsubscribe(self.session, topic_filter, self.subscriber)
        broker.leave(self.subscriber)


class LinePublisher(Publisher):
    def __init__(self, connection: LineConnection) -> None:
        super().__init__()
        self.connection = connection

    def confirmed(self, upto: int) -> None:
        self.connection.say(f"OK {upto}")

    def confirmed_only(self, first: int, last: int) -> None:
        self.connection.say(f"OK {last}")

    def refused(self, upto: int, error: BrokerError) -> None:
        self.connection.say(f"ERR {upto} {error}")

    def refused_only(self, first: int, last: int, error: BrokerError) -> None:
        self.connection.say(f"ERR {last} {error}")

    def hold(self) -> None:
        self.connection.hold()

    def release(self) -> None:
        self.connection.release()


class LineConsumer(Consumer):
    queue: Queue

    def __init__(self, connection: LineConnection, prefetch: int) -> None:
        super().__init__()
        self.connection = connection
        self.prefetch = prefetch
        self.held = 0

    def room(self) -> int:
        return self.prefetch - self.held if self.connection.has_room() else 0

    def deliver(self, lane: Lane, piece: Piece, count: int) -> None:
        connection = self.connection
        connection.unacked.add(hold(connection.tag + 1, lane, piece.ordinal, piece.run, piece.start, count, self))
        self.held += count
        for span in piece.run.spans[piece.start:piece.start + count]:
            connection.tag += 1
            connection.say(f"MSG {connection.tag} {int(piece.again)} {text_of(span)}")

    def cancelled(self) -> None:
        self.connection.say("ERR - cancelled")


class LineReader(TopicReader):
    partition: TopicPartition

    def __init__(self, connection: LineConnection, position: int) -> None:
        super().__init__(position)
        self.connection = connection

    def room(self) -> int:
        return 100 if self.connection.has_room() else 0

    def deliver(self, partition: TopicPartition, run: Run, start: int, count: int) -> None:
        for k in range(start, start + count):
            self.connection.say(f"REC {run.offset + k} {text_of(run.spans[k])}")

    def ended(self, error: Exception | None) -> None:
        self.connection.say(f"ERR - {error or 'the topic is gone'}")


class LineSubscriber(LiveSubscriber):
    def __init__(self, connection: LineConnection) -> None:
        super().__init__()
        self.connection = connection

    def room(self) -> bool:
        return bool(self.connection.has_room())

    def deliver(self, run: Run) -> None:
        for span in run.spans:
            self.connection.say(f"TOP {run.routing_key.decode()} {text_of(span)}")


class Said(Promise):
    """OK, now that it is on disk."""

    def __init__(self, connection: LineConnection) -> None:
        self.connection = connection

    def kept(self) -> None:
        self.connection.say("OK")

    def broken(self, reason: str) -> None:
        self.connection.say(f"ERR - {reason}")


class Pump(Callback):
    def __init__(self, queues: list[Queue]) -> None:
        self.queues = queues

    def fire(self) -> None:
        for queue in self.queues:
            queue.pump()


def queue_of(held: Held) -> Queue:
    queue = held.lane.owner
    assert isinstance(queue, Queue)
    return queue


def text_of(span: bytes) -> str:
    return span[4 + int.from_bytes(span[:4], "big"):].decode("utf-8", "replace")
