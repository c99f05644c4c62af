"""pika's asyncio adapter: callbacks on an event loop, without a thread of its own for heartbeats or reconnecting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from interop_tests.broker import PATIENCE_S, Broker
from interop_tests.wire import Wire

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Client:
    """A connection and a channel, with futures where pika has callbacks."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def open(self, port: int) -> Client:
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.connection = AsyncioConnection(pika.ConnectionParameters("127.0.0.1", port), on_open_callback=opened.set_result,
                                            on_open_error_callback=lambda _, error: opened.set_exception(error),
                                            on_close_callback=lambda _, error: self.lost.set_result(error))
        await opened
        self.channel: Channel = await self.ask(lambda callback: self.connection.channel(on_open_callback=callback))
        self.channel.add_on_close_callback(lambda _, error: self.closed.set_result(error))
        return self

    @staticmethod
    async def ask(method: Callable[..., object]) -> Any:
        """Call with a callback, and wait for what it gets."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        method(callback=answer.set_result)
        return await answer

    async def declare(self, queue: str, **options: Any) -> int:
        """Declare a queue; returns how many messages it has."""
        frame = await self.ask(lambda callback: self.channel.queue_declare(queue, callback=callback, **options))
        count: int = frame.method.message_count
        return count

    async def confirming(self) -> asyncio.Queue[Any]:
        confirms: asyncio.Queue[Any] = asyncio.Queue()
        await self.ask(lambda callback: self.channel.confirm_delivery(lambda frame: confirms.put_nowait(frame.method), callback=callback))
        return confirms

    async def publish(self, confirms: asyncio.Queue[Any], queue: str, first: int, last: int) -> None:
        """Publish numbers, all at once, and wait until each is confirmed."""
        for number in range(first, last):
            self.channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
        open_tags = set(range(first + 1, last + 1))
        while open_tags:
            method = await confirms.get()
            assert method.NAME == "Basic.Ack"
            open_tags -= {tag for tag in open_tags if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag)}

    async def consume(self, queue: str) -> asyncio.Queue[tuple[Any, bytes]]:
        got: asyncio.Queue[tuple[Any, bytes]] = asyncio.Queue()
        await self.ask(lambda callback: self.channel.basic_consume(queue, lambda _channel, method, _properties, body: got.put_nowait((method, body)),
                                                                   callback=callback))
        return got

    async def close(self) -> None:
        self.connection.close()
        await self.lost


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, PATIENCE_S))


def test_declare_and_publish_with_confirms(broker: Broker, name: str) -> None:
    async def scene() -> None:
        client = await Client().open(broker.port)
        await client.ask(lambda callback: client.channel.exchange_declare(name, "direct", callback=callback))
        assert await client.declare(name) == 0
        await client.ask(lambda callback: client.channel.queue_bind(name, name, "key", callback=callback))
        confirms = await client.confirming()
        await client.publish(confirms, name, 0, 500)
        client.channel.basic_publish(name, "key", b"by the exchange")
        assert (await confirms.get()).delivery_tag == 501
        assert await client.declare(name, passive=True) == 501
        await client.close()

    play(scene())


def test_prefetch_and_acks(broker: Broker, name: str) -> None:
    async def scene() -> None:
        client = await Client().open(broker.port)
        await client.declare(name)
        await client.publish(await client.confirming(), name, 0, 100)
        await client.ask(lambda callback: client.channel.basic_qos(prefetch_count=10, callback=callback))
        got = await client.consume(name)
        bodies = []
        for _ in range(100):
            method, body = await got.get()
            bodies.append(body)
            assert got.qsize() < 10
            if len(bodies) % 5 == 0:
                client.channel.basic_ack(method.delivery_tag, multiple=True)
        assert bodies == [b"%d" % number for number in range(100)]
        await client.close()

    play(scene())


def test_redelivery_after_a_lost_connection(broker: Broker, wire: Wire, name: str) -> None:
    async def scene() -> None:
        client = await Client().open(wire.port)
        await client.declare(name)
        await client.publish(await client.confirming(), name, 0, 3)
        got = await client.consume(name)
        for _ in range(3):
            method, _ = await got.get()
        client.channel.basic_ack(method.delivery_tag)
        assert await client.declare(name, passive=True) == 0
        wire.cut()
        await client.lost
        client = await Client().open(wire.port)
        got = await client.consume(name)
        again = [await got.get() for _ in range(2)]
        assert [(body, method.redelivered) for method, body in again] == [(b"0", True), (b"1", True)]
        await client.close()

    play(scene())


def test_returned_before_it_is_confirmed(broker: Broker, name: str) -> None:
    async def scene() -> None:
        client = await Client().open(broker.port)
        events: asyncio.Queue[Any] = await client.confirming()
        client.channel.add_on_return_callback(lambda _channel, method, _properties, body: events.put_nowait((method.reply_code, body)))
        client.channel.basic_publish("", name, b"to nobody", mandatory=True)
        assert await events.get() == (312, b"to nobody")
        assert (await events.get()).NAME == "Basic.Ack"
        await client.close()

    play(scene())


def test_an_error_closes_the_channel_and_not_the_connection(broker: Broker, name: str) -> None:
    async def scene() -> None:
        client = await Client().open(broker.port)
        client.channel.basic_publish("no-such-exchange", "", b"")
        error = await client.closed
        assert isinstance(error, ChannelClosedByBroker)
        assert error.reply_code == 404
        client.channel = await client.ask(lambda callback: client.connection.channel(on_open_callback=callback))
        assert await client.declare(name) == 0
        await client.close()

    play(scene())


def test_restart(broker: Broker, name: str, ending: signal.Signals) -> None:
    async def scene() -> None:
        client = await Client().open(broker.port)
        await client.declare(name, durable=True)
        await client.publish(await client.confirming(), name, 0, 50)
        await asyncio.to_thread(broker.restart, ending)
        error = await client.lost
        if ending == signal.SIGTERM:
            assert isinstance(error, ConnectionClosedByBroker)
            assert error.reply_code == 320
        client = await Client().open(broker.port)
        assert await client.declare(name, durable=True) == 50
        got = await client.consume(name)
        assert [(await got.get())[1] for _ in range(50)] == [b"%d" % number for number in range(50)]
        await client.close()

    play(scene())


def test_a_refused_login_is_an_answer(broker: Broker) -> None:
    async def scene() -> None:
        refused: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        AsyncioConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=pika.PlainCredentials("guest", "wrong")),
                          on_open_error_callback=lambda _, error: refused.set_result(error))
        assert "403" in str(await refused)

    play(scene())
