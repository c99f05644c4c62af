"""kombu: its messaging layer, its pools, its control broadcasts, and a consumer that survives whatever happens to the broker."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest
from kombu import Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError, OperationalError
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox
from kombu.pools import producers

from interop_tests.broker import PATIENCE_S, Broker, eventually
from interop_tests.wire import Wire

CONFIRMS = {"confirm_publish": True}


@pytest.fixture
def connection(broker: Broker) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker.url, transport_options=CONFIRMS) as made:
        yield made


def count(connection: kombu.Connection, queue: Queue) -> int:
    with connection.channel() as channel:
        messages: int = queue(channel).queue_declare(passive=True).message_count
        return messages


def drain(connection: kombu.Connection, until: Callable[[], object]) -> None:
    while not until():
        connection.drain_events(timeout=PATIENCE_S)


def test_declare_and_publish_with_confirms(connection: kombu.Connection, name: str) -> None:
    exchange = Exchange(name, "topic", durable=True)
    queue = Queue(name, exchange, "news.#", max_length=100, message_ttl=60.0, expires=60.0)
    with producers[connection].acquire(block=True) as producer:
        for serializer, body in (("json", {"by": "json"}), ("raw", b"raw"), ("pickle", {"by": "pickle"})):
            producer.publish(body, exchange=exchange, routing_key="news.today", declare=[queue], serializer=serializer, retry=True)
        producer.publish({"compressed": "x" * 10_000}, exchange=exchange, routing_key="news", compression="zlib")
        producer.publish({}, exchange=exchange, routing_key="weather")
    assert count(connection, queue) == 4
    got: list[Any] = []
    accept = ["json", "application/data", "pickle"]
    with Consumer(connection.channel(), [queue], callbacks=[lambda body, message: (got.append(body), message.ack())], accept=accept):
        drain(connection, lambda: len(got) == 4)
    assert got == [{"by": "json"}, b"raw", {"by": "pickle"}, {"compressed": "x" * 10_000}]
    queue(connection.channel()).delete()


def test_prefetch_and_acks(connection: kombu.Connection, name: str) -> None:
    queue = Queue(name, durable=False)
    with Producer(connection.channel()) as producer:
        for number in range(8):
            producer.publish(number, routing_key=name, declare=[queue])
    got: list[kombu.Message] = []
    with Consumer(connection.channel(), [queue], on_message=got.append, prefetch_count=3):
        drain(connection, lambda: len(got) == 3)
        assert count(connection, queue) == 5
        got[0].reject()
        got[1].requeue()
        got[2].ack()
        drain(connection, lambda: len(got) == 6)
        # The first answer makes room, so that the next message may come before the one that was given back.
        assert sorted((message.payload, message.delivery_info["redelivered"]) for message in got[3:]) == [(1, True), (3, False), (4, False)]


def test_prefetch_may_grow_while_consuming(connection: kombu.Connection, name: str) -> None:
    """Celery raises the prefetch for every task that it keeps for later, which only a prefetch of the whole channel allows."""
    queue = Queue(name, durable=False)
    with Producer(connection.channel()) as producer:
        for number in range(4):
            producer.publish(number, routing_key=name, declare=[queue])
    got: list[kombu.Message] = []
    channel = connection.channel()
    channel.basic_qos(0, 1, True)
    with Consumer(channel, [queue], on_message=got.append) as consumer:
        drain(connection, lambda: got)
        assert count(connection, queue) == 3
        consumer.qos(prefetch_count=3, apply_global=True)
        drain(connection, lambda: len(got) == 3)
        assert count(connection, queue) == 1


def test_simple_queue(connection: kombu.Connection, name: str) -> None:
    with connection.SimpleQueue(name) as simple:
        for number in range(3):
            simple.put({"number": number})
        assert simple.qsize() == 3
        for number in range(3):
            message = simple.get(block=True, timeout=PATIENCE_S)
            assert message.payload == {"number": number}
            message.ack()
        with pytest.raises(simple.Empty):
            simple.get(block=False)


def test_redelivery_after_a_lost_connection(connection: kombu.Connection, wire: Wire, name: str) -> None:
    queue = Queue(name, durable=True)
    with Producer(connection.channel()) as producer:
        producer.publish("once", routing_key=name, declare=[queue])
    got: list[kombu.Message] = []
    with kombu.Connection(wire.url) as losing, Consumer(losing.channel(), [queue], on_message=got.append, auto_declare=False):
        drain(losing, lambda: got)
        wire.cut()
        with pytest.raises(losing.connection_errors):
            losing.drain_events(timeout=PATIENCE_S)
    eventually(lambda: count(connection, queue) == 1, "the message goes back")
    message = queue(connection.channel()).get()
    assert message.payload == "once"
    assert message.delivery_info["redelivered"]


def test_returned(connection: kombu.Connection, name: str) -> None:
    returned: list[tuple[Any, ...]] = []
    with Producer(connection.channel(), on_return=lambda *what: returned.append(what)) as producer:
        producer.publish("to nobody", routing_key=name, mandatory=True)
    exception, exchange, key, _ = returned[0]
    assert (exception.reply_code, exchange, key) == (312, "", name)


def test_errors_have_their_codes(connection: kombu.Connection, name: str) -> None:
    with pytest.raises(ChannelError) as missing:
        Queue(name)(connection.channel()).queue_declare(passive=True)
    assert missing.value.reply_code == 404
    Queue(name, durable=True)(connection.channel()).declare()
    with pytest.raises(connection.channel_errors) as other:
        Queue(name, durable=False)(connection.channel()).declare()
    assert other.value.reply_code == 406


def test_broadcast(broker: Broker, connection: kombu.Connection, name: str) -> None:
    """What Celery's remote control is made of: a fanout to queues that go away with their consumers, and answers in another one."""
    mailbox = Mailbox(name, type="fanout", accept=["json"])
    listening, done = threading.Event(), threading.Event()

    def serve() -> None:
        with kombu.Connection(broker.url) as own:
            node = mailbox(own).Node("node", state={}, handlers={"add": lambda _state, a, b: a + b})
            node.channel = own.channel()
            with node.listen(callback=node.handle_message):
                listening.set()
                while not done.is_set():
                    with contextlib.suppress(TimeoutError):
                        own.drain_events(timeout=0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert listening.wait(PATIENCE_S)
        assert mailbox(connection).call(["node"], "add", {"a": 3, "b": 4}, timeout=PATIENCE_S) == [{"node": 7}]
        assert mailbox(connection).multi_call("add", {"a": 1, "b": 1}, timeout=PATIENCE_S, limit=1) == [{"node": 2}]
    finally:
        done.set()
        thread.join(PATIENCE_S)


class Worker(ConsumerMixin):
    """kombu's own loop for a consumer that reconnects."""

    def __init__(self, connection: kombu.Connection, queue: Queue) -> None:
        self.connection = connection
        self.queue = queue
        self.got: list[int] = []
        self.retries = 0

    def get_consumers(self, consumer: type[Consumer], channel: Any) -> list[Consumer]:
        return [consumer([self.queue], callbacks=[self.on_message], prefetch_count=5)]

    def on_message(self, body: int, message: kombu.Message) -> None:
        self.got.append(body)
        message.ack()

    def on_connection_error(self, exc: Exception, interval: float) -> None:
        self.retries += 1


def test_restart(broker: Broker, name: str, ending: signal.Signals) -> None:
    queue = Queue(name, durable=True)
    with kombu.Connection(broker.url, transport_options=CONFIRMS) as publishing, kombu.Connection(broker.url) as consuming:
        producer = Producer(publishing, auto_declare=False)
        for number in range(20):
            producer.publish(number, routing_key=name, declare=[queue], delivery_mode=2)
        worker = Worker(consuming, queue)
        steps = worker.consume(limit=None, timeout=PATIENCE_S)
        while len(worker.got) < 10:
            next(steps)
        # Acknowledgements are written with the next change, so this makes sure of them.
        producer.publish(20, routing_key=name, delivery_mode=2)
        broker.restart(ending)
        policy = {"interval_start": 0.1, "max_retries": 50}
        producer.publish(21, routing_key=name, delivery_mode=2, retry=True, retry_policy=policy)
        with pytest.raises(consuming.connection_errors):
            while True:
                next(steps)
        steps = worker.consume(limit=None, timeout=PATIENCE_S)
        while 21 not in worker.got:
            next(steps)
        assert sorted(set(worker.got)) == list(range(22))


def test_nobody_there() -> None:
    with kombu.Connection("amqp://127.0.0.1:1", connect_timeout=1) as connection, pytest.raises(OperationalError):
        connection.ensure_connection(max_retries=1, interval_start=0)
