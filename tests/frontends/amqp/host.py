"""AMQP sessions on a node in a bottle: the unmodified frontend and core, with the transport and the loop played by the test."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

from pamqp import body, commands, frame, header

from tests.core.world import World
from trilogue.core.access import Login
from trilogue.core.frontend import Context, Door, FlowSettings, LoginWaiter, Verifier
from trilogue.core.health import HEALTH_ID, Health, HealthPartition
from trilogue.core.passwords import hash_password
from trilogue.core.ports import Callback
from trilogue.core.settings import LimitSettings
from trilogue.frontends.amqp.listener import AmqpFrontend
from trilogue.frontends.amqp.session import AmqpSession

GREETING = b"AMQP\x00\x00\x09\x01"
PASSWORD = hash_password("secret")
FRAME_END = b"\xce"


class InlineVerifier(Verifier):
    """Hashes at once, or when the test says so."""

    def __init__(self) -> None:
        self.later: list[tuple[Login, LoginWaiter]] | None = None

    def verify(self, login: Login, waiter: LoginWaiter) -> None:
        if self.later is not None:
            self.later.append((login, waiter))
            return
        login.verify()
        waiter.verified(login)


class Lost(Callback):
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def fire(self) -> None:
        self.wire.session.connection_lost(None)


class Socket:
    def fileno(self) -> int:
        return 10


class Wire:
    """A transport that remembers what was written."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.session: Any = None
        self.out = bytearray()
        self.closing = False
        self.aborted = False
        self.paused = False

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("127.0.0.1", 4711), "socket": Socket()}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        if not self.closing:
            self.out += data

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.host.world.loop.call_soon(Lost(self))

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class Client:
    """One connection. Nothing is sent or answered by itself."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.wire = Wire(host)
        session = host.frontend.connection()
        assert isinstance(session, AmqpSession)
        self.session: Any = session
        self.wire.session = session
        self.seen = 0
        session.connection_made(self.wire)

    def feed(self, data: bytes, run: bool = True) -> None:
        """As a transport does: nothing after the end, and nothing while it is not asked for."""
        if not self.wire.closing:
            self.session.data_received(data)
        if run:
            self.host.world.loop.run()

    def say(self, command: Any, channel: int = 0) -> None:
        self.feed(frame.marshal(command, channel))

    def log_in(self, frame_max: int = 131_072, channel_max: int = 2_047, heartbeat: int = 0, channels: int = 1, **client: object) -> None:
        self.feed(GREETING)
        self.say(start_ok(**client))
        self.say(commands.Connection.TuneOk(channel_max, frame_max, heartbeat))
        self.say(commands.Connection.Open("/"))
        for number in range(1, channels + 1):
            self.say(commands.Channel.Open(), number)
        self.heard()

    def heard(self) -> list[tuple[int, Any]]:
        """(channel, frame) that came since the last time."""
        data = bytes(self.wire.out[self.seen:])
        found = []
        at = 0
        while at < len(data):
            if data[at:at + 4] == b"AMQP":
                found.append((0, data[at:at + 8]))
                at += 8
                continue
            used, channel, value = unmarshal(data[at:])
            found.append((channel, value))
            at += used
        self.seen += len(data)
        return found

    def said(self) -> list[tuple[int, str]]:
        return [(channel, value.name) for channel, value in self.heard()]

    def code(self) -> tuple[int, int]:
        """(channel, reply code) of the close that came, and of nothing beside it."""
        closes = [(channel, value) for channel, value in self.heard() if value.name in ("Connection.Close", "Channel.Close")]
        assert len(closes) == 1, closes
        channel, value = closes[0]
        assert len(value.reply_text.encode()) <= 255
        return channel, value.reply_code

    def bodies(self) -> list[bytes]:
        """What was delivered, in order."""
        found: list[bytes] = []
        for _, value in self.heard():
            if isinstance(value, header.ContentHeader):
                found.append(b"")
            elif isinstance(value, body.ContentBody):
                found[-1] += value.value
        return found

    def agree(self) -> None:
        self.say(commands.Connection.CloseOk())


class Host:
    """A node with the AMQP frontend and the user guest, who has the password "secret"."""

    def __init__(self, path: Path, **limits: int) -> None:
        self.world = World(path / "node")
        broker = self.world.broker
        if limits:
            broker.limits.set(LimitSettings(**limits))
        catalog = broker.catalog
        broker.metadata.change(catalog.plan_user("guest", PASSWORD, "argon2id", []))
        broker.metadata.change(catalog.plan_permission("/", "guest", ".*", ".*", ".*"))
        self.world.loop.run()
        partition = HealthPartition(HEALTH_ID, self.world.opener.log(HEALTH_ID), broker.scheduler, broker.flusher, broker.epoch)
        self.verifier = InlineVerifier()
        context = Context("amqp", broker, self.world.admin, Health(broker, partition), asyncio.AbstractEventLoop(), self.verifier, Door(-1),
                          FlowSettings(1 << 20, 1 << 20), "/", {}, None)
        self.frontend = AmqpFrontend(context)
        for name in ("q", "r"):
            self.world.declare(name)

    def client(self, **options: Any) -> Client:
        client = Client(self)
        client.log_in(**options)
        return client

    def ready(self, name: str = "q") -> int:
        entity = self.world.broker.catalog.destination("/", name)
        return int(self.world.broker.queue(entity.id).ready())

    def close(self) -> None:
        for peer in list(self.frontend.peers):
            peer.abort()
        self.world.loop.run()
        self.world.stop()


def unmarshal(data: bytes) -> tuple[int, int, Any]:
    if data[:1] == b"\x03" and data[3:7] == b"\x00\x00\x00\x00":
        return 8, struct.unpack(">H", data[1:3])[0], body.ContentBody(b"")
    return frame.unmarshal(data)


def start_ok(user: str = "guest", password: str = "secret", **client: object) -> Any:
    return commands.Connection.StartOk(client, "PLAIN", f"\0{user}\0{password}", "en_US")


def raw(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END


def method(class_id: int, method_id: int, arguments: bytes = b"", channel: int = 0) -> bytes:
    return raw(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def publish(payload: bytes, key: str = "q", channel: int = 1, exchange: str = "", piece: int = 0, **properties: Any) -> bytes:
    """A whole message, its body in pieces of so many bytes."""
    return b"".join(parts(payload, key, channel, exchange, piece, **properties))


def parts(payload: bytes, key: str = "q", channel: int = 1, exchange: str = "", piece: int = 0, **properties: Any) -> list[bytes]:
    """The same, frame by frame."""
    properties.setdefault("delivery_mode", 2)
    step = piece or max(1, len(payload))
    return [frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=key), channel),
            frame.marshal(header.ContentHeader(body_size=len(payload), properties=commands.Basic.Properties(**properties)), channel),
            *(raw(3, channel, payload[at:at + step]) for at in range(0, len(payload), step))]


def ack(tag: int, channel: int = 1, multiple: bool = False) -> bytes:
    return frame.marshal(commands.Basic.Ack(tag, multiple), channel)
