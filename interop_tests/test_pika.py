"""pika's blocking connection, as scripts and web applications use it."""

from __future__ import annotations

import datetime
import decimal
import signal
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from interop_tests.broker import PATIENCE_S, Broker, eventually
from interop_tests.wire import Wire

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(port: int, **options: object) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, **options))


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    connection = connect(broker.port)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[bytes, bool]]:
    """The next messages and whether they were delivered before; each is acknowledged."""
    got = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"{len(got)} of {count} came"
        channel.basic_ack(method.delivery_tag)
        got.append((body, method.redelivered))
        if len(got) == count:
            break
    channel.cancel()
    return got


def test_declare(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic", durable=True)
    assert channel.queue_declare(name, durable=True, arguments={"x-max-length": 3}).method.message_count == 0
    channel.queue_bind(name, name, "a.#")
    channel.confirm_delivery()
    for key in ("a", "b", "a.b.c"):
        channel.basic_publish(name, key, key.encode())
    assert channel.queue_declare(name, passive=True).method.message_count == 2
    assert channel.queue_purge(name).method.message_count == 2
    channel.queue_unbind(name, name, "a.#")
    channel.basic_publish(name, "a", b"nobody is there")
    assert channel.queue_delete(name).method.message_count == 0
    channel.exchange_delete(name)


def test_server_named_queue(channel: BlockingChannel) -> None:
    named = channel.queue_declare("", exclusive=True).method.queue
    assert named.startswith("amq.gen-")
    channel.basic_publish("", named, b"hello")
    assert channel.basic_get(named, auto_ack=True)[2] == b"hello"
    assert channel.basic_get(named) == (None, None, None)


def test_confirms(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    for number in range(100):
        channel.basic_publish("", name, b"%d" % number, PERSISTENT)
    assert take(channel, name, 100) == [(b"%d" % number, False) for number in range(100)]


def test_refused_by_a_full_queue(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", name, b"fits")
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"does not")


def test_prefetch(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    got: list[int] = []
    channel.basic_consume(name, lambda _channel, method, _properties, _body: got.append(method.delivery_tag))
    channel.connection.process_data_events(0.2)
    assert got == [1, 2]
    channel.basic_ack(2, multiple=True)
    while len(got) < 4:
        channel.connection.process_data_events(PATIENCE_S)
    channel.connection.process_data_events(0.1)
    assert got == [1, 2, 3, 4]


def test_nack_and_reject(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"first")
    channel.basic_publish("", name, b"second")
    method, _, _ = channel.basic_get(name)
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert take(channel, name, 2) == [(b"first", True), (b"second", False)]
    channel.basic_publish("", name, b"third")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert channel.basic_get(name)[0] is None


def test_dead_letter(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(f"{name}-dead")
    channel.queue_declare(name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    channel.basic_publish("", name, b"unwanted", pika.BasicProperties(headers={"mine": 1}))
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    _, properties, body = next(channel.consume(f"{name}-dead", inactivity_timeout=PATIENCE_S))
    assert body == b"unwanted"
    assert properties.headers["mine"] == 1
    assert properties.headers["x-first-death-reason"] == "rejected"
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"], death["routing-keys"]) == (name, "rejected", 1, [name])


def test_properties_round_trip(channel: BlockingChannel, name: str) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="utf-8", delivery_mode=1, priority=3, correlation_id="c", reply_to="r", expiration="60000",
        message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="a",
        headers={"text": "ü", "long": 1 << 40, "negative": -1, "flag": True, "none": None, "list": [1, "two", False], "table": {"deep": {"er": 1}},
                 "decimal": decimal.Decimal("3.14"), "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "bytes": "x" * 300})
    channel.queue_declare(name)
    channel.basic_publish("", name, b"", sent)
    _, got, body = channel.basic_get(name, auto_ack=True)
    assert body == b""
    assert vars(got) == vars(sent)


def test_large_body(channel: BlockingChannel, name: str) -> None:
    body = bytes(range(256)) * 12_000
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, body, PERSISTENT)
    assert take(channel, name, 1) == [(body, False)]


def test_small_frames(broker: Broker, name: str) -> None:
    body = bytes(range(256)) * 100
    connection = connect(broker.port, frame_max=4_096)
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_publish("", name, body)
    assert channel.basic_get(name, auto_ack=True)[2] == body
    connection.close()


def test_redelivery_after_a_lost_connection(broker: Broker, wire: Wire, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    for body in (b"one", b"two", b"three"):
        channel.basic_publish("", name, body)
    losing = connect(wire.port)
    holding = losing.channel()
    holding.basic_ack(holding.basic_get(name)[0].delivery_tag)
    assert holding.basic_get(name)[2] == b"two"
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    wire.cut()
    eventually(lambda: channel.queue_declare(name, passive=True).method.message_count == 2, "the message goes back")
    with pytest.raises(AMQPConnectionError):
        losing.process_data_events(PATIENCE_S)
    assert take(channel, name, 2) == [(b"two", True), (b"three", False)]


def test_returned(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as error:
        channel.basic_publish("", name, b"to nobody", mandatory=True)
    returned = error.value.messages[0]
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (312, "NO_ROUTE", b"to nobody")


def test_cancelled_when_the_queue_goes(channel: BlockingChannel, broker: Broker, name: str) -> None:
    channel.queue_declare(name)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(name, lambda *_: None)
    other = connect(broker.port)
    other.channel().queue_delete(name)
    while not cancelled:
        channel.connection.process_data_events(PATIENCE_S)
    assert cancelled == [tag]
    other.close()


def test_transaction(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.tx_select()
    channel.basic_publish("", name, b"taken back")
    channel.tx_rollback()
    channel.basic_publish("", name, b"meant")
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.tx_commit()
    assert channel.basic_get(name)[2] == b"meant"


def test_direct_reply_to(channel: BlockingChannel, broker: Broker, name: str) -> None:
    channel.queue_declare(name)
    server = connect(broker.port)
    answering = server.channel()
    replies = channel.consume("amq.rabbitmq.reply-to", auto_ack=True, inactivity_timeout=PATIENCE_S)
    channel.connection.process_data_events(0)
    assert next(channel.consume("amq.rabbitmq.reply-to", auto_ack=True, inactivity_timeout=0.01)) == (None, None, None)
    channel.basic_publish("", name, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    eventually(lambda: channel.queue_declare(name, passive=True).method.message_count == 1, "the question arrives")
    _, properties, _ = answering.basic_get(name, auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    answering.basic_publish("", properties.reply_to, b"answer")
    assert next(replies)[2] == b"answer"
    server.close()


def test_errors_have_their_codes(broker: Broker, name: str) -> None:
    connection = connect(broker.port)
    owner = connect(broker.port)
    owner.channel().queue_declare(f"{name}-mine", exclusive=True)
    connection.channel().queue_declare(name, durable=True)
    wrong: list[tuple[int, Callable[[BlockingChannel], object]]] = [
        (404, lambda channel: channel.queue_declare("not-there", passive=True)),
        (406, lambda channel: channel.queue_declare(name, durable=False)),
        (405, lambda channel: channel.queue_declare(f"{name}-mine", passive=True)),
        (405, lambda channel: channel.queue_declare(name, durable=True, exclusive=True)),
        (403, lambda channel: channel.queue_declare("amq.mine")),
    ]
    for code, action in wrong:
        with pytest.raises(ChannelClosedByBroker) as error:
            action(connection.channel())
        assert error.value.reply_code == code
    with pytest.raises(ConnectionClosedByBroker) as fatal:
        connection.channel().basic_qos(prefetch_size=1)
    assert fatal.value.reply_code == 540
    owner.close()


def test_who_may_come_in(broker: Broker) -> None:
    with pytest.raises(ProbableAuthenticationError, match="403"):
        connect(broker.port, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(ProbableAccessDeniedError, match="530"):
        connect(broker.port, virtual_host="nowhere")


def test_restart(broker: Broker, name: str, ending: signal.Signals) -> None:
    connection = connect(broker.port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name)
    for number in range(20):
        channel.basic_publish(name, "", b"%d" % number, PERSISTENT)
    assert take(channel, name, 5) == [(b"%d" % number, False) for number in range(5)]
    channel.basic_get(name)
    # Acknowledgements are written with the next change, so this makes sure of them.
    channel.basic_publish(name, "", b"20", PERSISTENT)
    broker.restart(ending)
    with pytest.raises(AMQPConnectionError) as error:
        while True:
            connection.process_data_events(PATIENCE_S)
    if ending == signal.SIGTERM:
        assert isinstance(error.value, ConnectionClosedByBroker)
        assert error.value.reply_code == 320
    connection = connect(broker.port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish(name, "", b"21", PERSISTENT)
    assert [body for body, _ in take(channel, name, 17)] == [b"%d" % number for number in range(5, 22)]
    connection.close()
