"""`basic.consume` on a topic: reads it from some offset on, all partitions side by side, as far as the prefetch allows.

Nothing is ever taken out of a topic, so an acknowledgement only makes room for the next delivery, and so does a rejection. Each delivery says in its
headers where it lies, so that a client can come back to it: `x-stream-offset`, and `x-stream-partition` where there are several.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from trilogue.core.arguments import Unacceptable, age
from trilogue.core.broker import Broker
from trilogue.core.chain import Chain, Liveness
from trilogue.core.entities import Topic
from trilogue.core.errors import BrokerError, NotSupported, PreconditionFailed
from trilogue.core.lane import Lane
from trilogue.core.message import Run
from trilogue.core.session import Session
from trilogue.core.topic import TopicPartition, TopicReader
from trilogue.core.unacked import hold
from trilogue.frontends.amqp.channel import Channel, Creditor, Subscription
from trilogue.frontends.amqp.codec import short
from trilogue.frontends.amqp.frames import delivered, write_span
from trilogue.frontends.amqp.render import render, with_headers

OFFSET: Final = b"x-stream-offset"
PARTITION: Final = b"x-stream-partition"
LONG: Final = 0x6C


class StreamConsumer(Creditor):
    """What one consumer reads; the readers of its partitions share its credit, and take turns."""

    def __init__(self, channel: Channel, tag: bytes, prefetch: i64, several: bool) -> None:
        self.channel: Channel = channel
        self.tag: bytes = tag
        self.prefetch: i64 = prefetch
        self.held: i64 = 0
        self.several: bool = several
        transient = channel.link.context.broker.transient
        assert transient is not None
        self.lane: Lane = Lane(Chain(0, Liveness()), transient.source, self)      # empty: the place of a queue in what the channel holds
        self.readers: list[PartitionReader] = []
        self.turn: i64 = 0

    def room(self) -> i64:
        channel = self.channel
        if not channel.flowing or not channel.link.has_room():
            return 0
        room = self.prefetch - self.held
        if channel.prefetch > 0 and room > channel.prefetch - channel.holding():
            room = channel.prefetch - channel.holding()
        return room

    def answered(self, count: i64) -> None:
        self.held -= count

    def pump(self) -> None:
        n: i64 = len(self.readers)
        self.turn += 1
        for k in range(n):
            reader = self.readers[(self.turn + k) % n]
            partition = reader.partition
            if partition is not None:
                partition.pump(reader)

    def deliver(self, number: i64, run: Run, start: i64, count: i64) -> None:
        channel = self.channel
        frame_max = channel.link.frame_max
        channel.unacked.add(hold(channel.tag + 1, self.lane, 0, run, start, count, self))
        self.held += count
        w = channel.link.w
        k: i64 = start
        while k < start + count:
            channel.tag += 1
            w.write(delivered(channel.number, self.tag, channel.tag, False, run))
            write_span(w, with_headers(render(run, k, 0, frame_max), self.place(number, run.offset + k), frame_max), channel.number, frame_max)
            k += 1
        channel.link.wrote()

    def place(self, number: i64, offset: i64) -> bytes:
        """The headers that tell where a message lies, as they stand in a table."""
        w = BytesWriter()
        w.write(short(OFFSET))
        w.append(LONG)
        write_i64_be(w, offset)
        if self.several:
            w.write(short(PARTITION))
            w.append(LONG)
            write_i64_be(w, number)
        return w.getvalue()

    def leave(self) -> None:
        readers = self.readers
        self.readers = []
        for reader in readers:
            if reader.partition is not None:
                reader.partition.detach(reader)


class PartitionReader(TopicReader):
    def __init__(self, consumer: StreamConsumer, number: i64, position: i64) -> None:
        super().__init__(position)
        self.consumer: StreamConsumer = consumer
        self.number: i64 = number
        self.partition: TopicPartition | None = None

    def room(self) -> i64:
        return self.consumer.room()

    def deliver(self, partition: TopicPartition, run: Run, start: i64, count: i64) -> None:
        self.consumer.deliver(self.number, run, start, count)

    def ended(self, error: Exception | None) -> None:
        consumer = self.consumer
        if consumer.readers:
            consumer.leave()
            consumer.channel.consumer_gone(consumer.tag)


class FromStream(Subscription):
    def __init__(self, consumer: StreamConsumer) -> None:
        self.consumer: StreamConsumer = consumer

    def leave(self) -> None:
        self.consumer.leave()

    def pump(self) -> None:
        self.consumer.pump()


def check_stream(topic: Topic, channel: Channel, no_ack: bool) -> None:
    """What a consumer of a stream must have said before."""
    if channel.consumer_prefetch == 0 and channel.prefetch == 0:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {topic.where()}")
    if no_ack:
        raise NotSupported(f"automatic acknowledgement not supported by stream {topic.where()}")


def start_reading(broker: Broker, session: Session, topic: Topic, consumer: StreamConsumer, spec: object) -> None:
    """Attach a reader to every partition, from where `spec` (`x-stream-offset`) says. All of them or none."""
    partitions = broker.topics[topic.id]
    positions = [position_of(partition, spec, broker.scheduler.now_ms(), topic) for partition in partitions]
    consumer.readers = [PartitionReader(consumer, k, positions[k]) for k in range(len(partitions))]
    try:
        for k, reader in enumerate(list(consumer.readers)):
            reader.partition = partitions[k]
            broker.read_topic(session, topic.name, k, reader)
    except BrokerError:
        consumer.leave()
        raise


def position_of(partition: TopicPartition, spec: object, now_ms: i64, topic: Topic) -> i64:
    """The offset to begin with; one that is not there is moved to the nearest that is."""
    first = partition.log.start_offset()
    end = partition.next
    if spec is None or spec == "next":
        return end
    if spec == "first":
        return first
    if spec == "last":
        last = partition.readable_to() - 1
        return last if last > first else first
    if isinstance(spec, datetime):
        return clamped(partition.log.offset_for_time(i64(int(spec.timestamp() * 1000))), first, end)
    if isinstance(spec, int) and not isinstance(spec, bool) and 0 <= spec < 1 << 62:
        return clamped(spec, first, end)
    if isinstance(spec, str):
        try:
            interval = age(spec)
            assert isinstance(interval, int)
            return clamped(partition.log.offset_for_time(now_ms - interval), first, end)
        except Unacceptable:
            pass
    raise PreconditionFailed(f"invalid arg 'x-stream-offset' for {topic.where()}: {spec!r} is none of first, last, next, an offset, "
                             "a timestamp or an interval")


def clamped(offset: i64, first: i64, end: i64) -> i64:
    return first if offset < first else end if offset > end else offset
