"""aio-pika: its plain connection, and the robust one that repairs itself after a cut or a restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, Message
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError, ProbableAuthenticationError, PublishError

from interop_tests.broker import PATIENCE_S, Broker
from interop_tests.wire import Wire


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, PATIENCE_S))


def persistent(number: int) -> Message:
    return Message(b"%d" % number, delivery_mode=DeliveryMode.PERSISTENT)


async def count(channel: Any, queue: str) -> int:
    return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count or 0


def test_declare_and_publish_with_confirms(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.HEADERS)
            queue = await channel.declare_queue(name)
            await queue.bind(exchange, arguments={"x-match": "all", "colour": "red", "size": 3})
            for headers in ({"colour": "red", "size": 3}, {"colour": "red"}, {"colour": "red", "size": 3, "more": True}):
                await exchange.publish(Message(b"", headers=headers), "")
            assert await count(channel, name) == 2
            await asyncio.gather(*(channel.default_exchange.publish(persistent(number), name) for number in range(200)))
            assert await count(channel, name) == 202
            await queue.delete(if_empty=False)

    play(scene())


def test_prefetch_and_acks(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name)
            for number in range(10):
                await channel.default_exchange.publish(persistent(number), name)
            await channel.set_qos(prefetch_count=4)
            got: asyncio.Queue[Any] = asyncio.Queue()
            tag = await queue.consume(got.put)
            held = [await got.get() for _ in range(4)]
            assert await count(channel, name) == 6
            assert got.empty()
            for message in reversed(held):
                await message.ack()
            held = [await got.get() for _ in range(4)]
            await held[0].reject(requeue=True)
            again = await got.get()
            assert (again.body, again.redelivered) == (b"4", True)
            await queue.cancel(tag)
            assert await count(channel, name) == 2

    play(scene())


def test_iterator(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=True)
            for number in range(30):
                await channel.default_exchange.publish(persistent(number), name)
            bodies = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        bodies.append(message.body)
                    if len(bodies) == 30:
                        break
            assert bodies == [b"%d" % number for number in range(30)]

    play(scene())


def test_redelivery_after_a_lost_connection(broker: Broker, wire: Wire, name: str) -> None:
    async def scene() -> None:
        connection = await aio_pika.connect_robust(wire.url, reconnect_interval=0.1)
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True)
        await channel.default_exchange.publish(persistent(1), name)
        got: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(got.put)
        first = await got.get()
        assert not first.redelivered
        wire.cut()
        # The consumer is restored by the client itself, on a new connection.
        again = await got.get()
        assert (again.body, again.redelivered) == (b"1", True)
        await again.ack()
        await connection.close()

    play(scene())


def test_returned(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(PublishError) as error:
                await channel.default_exchange.publish(Message(b"to nobody"), name)
            frame = error.value.message.delivery
            assert (frame.reply_code, frame.reply_text) == (312, "NO_ROUTE")

    play(scene())


def test_refused_by_a_full_queue(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.declare_queue(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
            await channel.default_exchange.publish(Message(b"fits"), name)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(Message(b"does not"), name)

    play(scene())


def test_errors_have_their_codes(broker: Broker, name: str) -> None:
    async def scene() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            with pytest.raises(ChannelNotFoundEntity):
                await (await connection.channel()).declare_queue(name, passive=True)
            await (await connection.channel()).declare_exchange(name, "direct")
            with pytest.raises(ChannelPreconditionFailed, match="inequivalent arg 'type'"):
                await (await connection.channel()).declare_exchange(name, "topic")
        with pytest.raises(ProbableAuthenticationError):
            await aio_pika.connect(broker.url.replace("guest:guest", "guest:wrong"))

    play(scene())


def test_rpc(broker: Broker) -> None:
    """aio-pika's own pattern: requests in a queue, answers by correlation id, failures as exceptions."""

    async def scene() -> None:
        async def multiply(x: int, y: int) -> int:
            return x * y

        async with await aio_pika.connect(broker.url) as connection:
            rpc = await aio_pika.patterns.RPC.create(await connection.channel())
            await rpc.register("multiply", multiply, auto_delete=True)
            answers = await asyncio.gather(*(rpc.call("multiply", {"x": x, "y": 2}) for x in range(20)))
            assert answers == [x * 2 for x in range(20)]
            await rpc.close()

    play(scene())


def test_restart(broker: Broker, name: str, ending: signal.Signals) -> None:
    """A robust connection goes on as if nothing had happened: exchange, binding, consumer and waiting messages are there again."""

    async def scene() -> None:
        connection = await aio_pika.connect_robust(broker.url, reconnect_interval=0.1)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        exchange = await channel.declare_exchange(name, "topic", durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange, "#")
        for number in range(10):
            await exchange.publish(persistent(number), "a.b")
        got: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(got.put)
        assert (await got.get()).body == b"0"
        reconnected = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: reconnected.set())
        await asyncio.to_thread(broker.restart, ending)
        await reconnected.wait()
        bodies = []
        for _ in range(10):
            message = await got.get()
            bodies.append(message.body)
            await message.ack()
        assert bodies == [b"%d" % number for number in range(10)]
        await exchange.publish(persistent(10), "a.b")
        assert (await got.get()).body == b"10"
        await connection.close()

    play(scene())
