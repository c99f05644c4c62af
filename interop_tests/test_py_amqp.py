"""py-amqp, the library below kombu and Celery, used directly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import amqp
import pytest

from interop_tests.broker import PATIENCE_S, Broker, eventually
from interop_tests.wire import Wire


def connect(port: int, **options: Any) -> amqp.Connection:
    connection = amqp.Connection(f"127.0.0.1:{port}", **{"confirm_publish": True, "connect_timeout": PATIENCE_S, **options})
    connection.connect()
    return connection


@pytest.fixture
def connection(broker: Broker) -> Iterator[amqp.Connection]:
    made = connect(broker.port)
    yield made
    if made.connected:
        made.close()


def persistent(body: bytes) -> amqp.Message:
    return amqp.Message(body, delivery_mode=2)


def count(connection: amqp.Connection, queue: str) -> int:
    with connection.channel() as channel:
        messages: int = channel.queue_declare(queue, passive=True).message_count
        return messages


def consumed(connection: amqp.Connection, channel: amqp.Channel, queue: str, wanted: int) -> list[amqp.Message]:
    got: list[amqp.Message] = []
    tag = channel.basic_consume(queue, callback=got.append)
    while len(got) < wanted:
        connection.drain_events(PATIENCE_S)
    channel.basic_cancel(tag)
    return got


def test_what_the_broker_says_it_is(connection: amqp.Connection) -> None:
    properties = connection.server_properties
    assert properties["product"] == "RabbitMQ"
    assert properties["capabilities"]["publisher_confirms"] is True
    assert properties["capabilities"]["connection.blocked"] is True


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_login(broker: Broker, method: str) -> None:
    connect(broker.port, login_method=method).close()
    with pytest.raises(amqp.AccessRefused):
        connect(broker.port, login_method=method, password="wrong")


def test_declare_and_publish_with_confirms(connection: amqp.Connection, name: str) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "fanout", durable=True, auto_delete=False)
    channel.exchange_declare(f"{name}-behind", "direct", auto_delete=False)
    channel.exchange_bind(f"{name}-behind", name, "")
    channel.queue_declare(name, durable=True, auto_delete=False)
    channel.queue_bind(name, f"{name}-behind", "key")
    for number in range(20):
        channel.basic_publish(persistent(b"%d" % number), name, "key")
    channel.basic_publish(persistent(b"another key"), name, "other")
    assert count(connection, name) == 20
    channel.exchange_unbind(f"{name}-behind", name, "")
    channel.basic_publish(persistent(b"no longer bound"), name, "key")
    assert channel.queue_purge(name) == 20


def test_prefetch_and_acks(connection: amqp.Connection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=False)
    for number in range(6):
        channel.basic_publish(persistent(b"%d" % number), "", name)
    channel.basic_qos(0, 3, False)
    got: list[amqp.Message] = []
    channel.basic_consume(name, callback=got.append)
    while len(got) < 3:
        connection.drain_events(PATIENCE_S)
    with pytest.raises(TimeoutError):
        connection.drain_events(0.1)
    channel.basic_ack(got[1].delivery_tag)
    connection.drain_events(PATIENCE_S)
    channel.basic_ack(got[3].delivery_tag, multiple=True)
    while len(got) < 6:
        connection.drain_events(PATIENCE_S)
    assert [message.body for message in got] == [b"%d" % number for number in range(6)]


def test_priorities(connection: amqp.Connection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=False, arguments={"x-max-priority": 9})
    for priority in (0, 5, 9, 5):
        channel.basic_publish(amqp.Message(b"%d" % priority, priority=priority), "", name)
    assert [message.body for message in consumed(connection, channel, name, 4)] == [b"9", b"5", b"5", b"0"]


def test_redelivery_after_a_lost_connection(connection: amqp.Connection, wire: Wire, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=False)
    channel.basic_publish(persistent(b"one"), "", name)
    losing = connect(wire.port)
    assert losing.channel().basic_get(name).body == b"one"
    assert count(connection, name) == 0
    wire.cut()
    with pytest.raises(OSError):
        losing.drain_events(PATIENCE_S)
    eventually(lambda: count(connection, name) == 1, "the message goes back")
    assert channel.basic_get(name).delivery_info["redelivered"] is True


def test_returned(connection: amqp.Connection, name: str) -> None:
    channel = connection.channel()
    returned: list[tuple[Any, ...]] = []
    channel.events["basic_return"].add(lambda *what: returned.append(what))
    channel.basic_publish(persistent(b"to nobody"), "", name, mandatory=True)
    error, exchange, key, message = returned[0]
    assert (error.reply_code, exchange, key, message.body) == (312, "", name, b"to nobody")


def test_errors_have_their_codes(connection: amqp.Connection, name: str) -> None:
    with pytest.raises(amqp.NotFound) as missing:
        connection.channel().queue_declare(name, passive=True)
    assert missing.value.reply_code == 404
    with pytest.raises(amqp.PreconditionFailed, match="unknown delivery tag 7"):
        channel = connection.channel()
        channel.basic_ack(7)
        channel.queue_declare(name)
    with pytest.raises(amqp.AccessRefused):
        connection.channel().exchange_declare("amq.mine", "direct")
    with pytest.raises(amqp.NotAllowed) as fatal:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.basic_consume(name, consumer_tag="same")
        channel.basic_consume(name, consumer_tag="same")
    assert fatal.value.reply_code == 530


def test_heartbeats(broker: Broker, name: str) -> None:
    """Both sides beat: an idle connection stays for longer than its interval."""
    connection = connect(broker.port, heartbeat=1)
    assert connection.heartbeat == 1
    until = connection.bytes_recv + 3
    while connection.bytes_recv < until:
        connection.heartbeat_tick()
        with pytest.raises(TimeoutError):
            connection.drain_events(0.3)
    assert connection.channel().queue_declare(name).message_count == 0
    connection.close()


def test_transaction(broker: Broker, name: str) -> None:
    connection = connect(broker.port, confirm_publish=False)
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=False)
    channel.tx_select()
    channel.basic_publish(persistent(b"taken back"), "", name)
    channel.tx_rollback()
    channel.basic_publish(persistent(b"meant"), "", name)
    channel.tx_commit()
    channel.basic_ack(channel.basic_get(name).delivery_tag)
    channel.tx_rollback()
    connection.close()
    other = connect(broker.port)
    assert other.channel().basic_get(name).body == b"meant"
    other.close()


def test_restart(broker: Broker, name: str, ending: signal.Signals) -> None:
    connection = connect(broker.port)
    channel = connection.channel()
    channel.queue_declare(name, durable=True, auto_delete=False)
    for number in range(30):
        channel.basic_publish(persistent(b"%d" % number), "", name)
    assert consumed(connection, channel, name, 30)
    broker.restart(ending)
    with pytest.raises((OSError, amqp.ConnectionForced)) as error:
        connection.drain_events(PATIENCE_S)
    if ending == signal.SIGTERM:
        assert isinstance(error.value, amqp.ConnectionForced)
    connection = connect(broker.port)
    channel = connection.channel()
    channel.basic_publish(persistent(b"30"), "", name)
    assert [message.body for message in consumed(connection, channel, name, 31)] == [b"%d" % number for number in range(31)]
    connection.close()
