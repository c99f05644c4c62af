"""One AMQP connection: what each frame asks of the core, and how a connection begins, waits and ends.

Publishes and acknowledgements come from `reader.py` in runs and ranges; everything else has passed `order.py`, becomes a method object and goes
through `methods.py`. A method whose answer must wait for the disk stops the connection's input until then: what follows is not looked at before.

An error closes the channel or the connection, and the client is waited for to agree.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from mypy_extensions import i64
from pamqp import commands

from trilogue.core.access import Identity, Login
from trilogue.core.errors import BrokerError, NotFound
from trilogue.core.frontend import LoginWaiter, StreamFrontend
from trilogue.core.message import ORIGIN_AMQP, PERSISTENT, Run
from trilogue.core.ports import Callback, Promise, Timer
from trilogue.core.session import Session
from trilogue.frontends.amqp import methods, publishing
from trilogue.frontends.amqp.channel import Channel
from trilogue.frontends.amqp.codec import (
    ACK,
    CHANNEL_ERROR,
    FRAME_MAX,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    UNEXPECTED_FRAME,
    ProtocolError,
    close_channel,
    close_connection,
    decode_method,
    encode_method,
    scan_properties,
    shortened,
    u16,
)
from trilogue.frontends.amqp.content import Content
from trilogue.frontends.amqp.errors import closes_connection, reply_code, reply_text
from trilogue.frontends.amqp.fields import u32
from trilogue.frontends.amqp.order import AmqpOrder
from trilogue.frontends.amqp.reader import AUTHENTICATING, CLOSING, NEW, OPEN, STARTING, TUNING
from trilogue.frontends.amqp.transaction import Publication

CLOSE_S: Final = 10.0               # how long a client may take to agree to a close
DEAF_S: Final = 3.0                 # the same, when its agreement could not be understood
HEARTBEAT_S: Final = 60

logger = structlog.get_logger("amqp")


class Resume(Promise):
    """What a method changed is on disk: answer it, and go on reading."""

    def __init__(self, session: AmqpSession, reply: bytes) -> None:
        self.session: AmqpSession = session
        self.reply: bytes = reply

    def kept(self) -> None:
        self.session.resume(self.reply)

    def broken(self, reason: str) -> None:
        self.session.fail(541, reason, 0)


class Goodbye(Promise):
    """The broker is going down, and what the client sent before is on disk and confirmed."""

    def __init__(self, session: AmqpSession) -> None:
        self.session: AmqpSession = session

    def kept(self) -> None:
        self.session.say_goodbye()

    def broken(self, reason: str) -> None:
        self.kept()


class PasswordChecked(LoginWaiter):
    def __init__(self, session: AmqpSession) -> None:
        self.session: AmqpSession = session

    def verified(self, login: Login) -> None:
        self.session.checked(login)


class Beat(Callback):
    def __init__(self, session: AmqpSession) -> None:
        self.session: AmqpSession = session

    def fire(self) -> None:
        self.session.beat()


class CloseLate(Callback):
    """The moment by which a client must have agreed to a close."""

    def __init__(self, session: AmqpSession) -> None:
        self.session: AmqpSession = session

    def fire(self) -> None:
        self.session.abort()


class AmqpSession(AmqpOrder):
    def __init__(self, frontend: StreamFrontend) -> None:
        super().__init__(frontend)
        self.channel_max: i64 = 2_047
        self.capabilities: dict[str, Any] = {}
        self.client: dict[str, Any] = {}
        self.heartbeat_s: i64 = 0
        self.missed: i64 = 0
        self.beat_timer: Timer | None = None
        self.close_timer: Timer | None = None
        self.mechanism: str = ""            # that the client chose to log in
        self.identity: Identity | None = None
        self.blocked: bool = False          # the client was told that we do not read

    # -------------------------------------------------------------------------------------------- frames

    def greet(self, header: bytes) -> None:
        if header != PROTOCOL_HEADER:
            self.send(PROTOCOL_HEADER)
            self.close()
            return
        self.state = STARTING
        self.send(encode_method(methods.start(self), 0))

    def obey(self, number: i64, method: i64, data: bytes) -> None:
        methods.handle(self, number, method, decode_method(data))

    def channel_ended(self, number: i64) -> None:
        del self.channels[number]
        methods.give_channel(self)

    def completed(self, content: Content) -> None:
        span = content.span()
        properties = self.properties
        scan_properties(span, 19, 7 + u32(span, 3), properties)
        self.head = -1
        if properties.special:
            channel = self.channels[content.channel]
            publishing.publish_special(self, channel, content.method, span)
        else:
            self.emit(content.method, 0, [span], len(span), properties.priority << 1 | (1 if properties.persistent else 0), properties.expiration)

    # -------------------------------------------------------------------------------------------- publish and acknowledge

    def emit(self, data: bytes, at: i64, spans: list[bytes], size: i64, key: i64, expiration: bytes) -> None:
        channel = self.channels[u16(data, at + 1)]
        p: i64 = at + 13                    # after class, method and the reserved field
        n: i64 = data[p]
        exchange = data[p + 1:p + 1 + n]
        p += 1 + n
        n = data[p]
        routing_key = data[p + 1:p + 1 + n]
        bits: i64 = data[p + 1 + n]
        run = Run(exchange, routing_key, ORIGIN_AMQP, spans, size, PERSISTENT if key & 1 else 0, key >> 1)
        if expiration:
            run.ttl_ms = publishing.ttl_of(self, channel, expiration)
            if run.ttl_ms < 0:
                return
        publishing.publish(self, Publication(channel, run, bits, []))

    def acknowledging(self, number: i64) -> Channel | None:
        """The channel, if an acknowledgement is legal on it now; None if we closed it and the client does not know yet."""
        channel = self.channels.get(number)
        if channel is None:
            raise ProtocolError(CHANNEL_ERROR, f"channel {number} is not open", ACK)
        if channel.closing:
            return None
        if number in self.contents:
            raise ProtocolError(UNEXPECTED_FRAME, "an acknowledgement in the middle of a message", ACK)
        return channel

    def ack_range(self, number: i64, lo: i64, hi: i64) -> None:
        channel = self.acknowledging(number)
        if channel is None:
            return
        held = channel.unacked.take(lo, hi) if lo > 0 else None
        if held is not None:
            channel.settle(held)
            return
        # One of them is wrong; those before it count all the same.
        tag: i64 = lo
        held = channel.unacked.take(tag, tag) if lo > 0 else None
        while held is not None:
            channel.settle(held)
            tag += 1
            held = channel.unacked.take(tag, tag)
        self.channel_error(number, 406, f"unknown delivery tag {tag}", ACK)

    def ack_upto(self, number: i64, tag: i64) -> None:
        channel = self.acknowledging(number)
        if channel is None:
            return
        if tag < 0 or tag > channel.tag or (tag > 0 and not channel.unacked.holds_upto(tag)):
            self.channel_error(number, 406, f"unknown delivery tag {tag}", ACK)
            return
        channel.settle(channel.unacked.take_upto(tag) if tag > 0 else channel.unacked.take_all())

    # -------------------------------------------------------------------------------------------- waiting

    def wait(self, reply: bytes) -> None:
        """Answer when everything done so far is on disk; nothing else is looked at before."""
        self.waiting = True
        self.context.broker.after(Resume(self, reply))

    def resume(self, reply: bytes) -> None:
        self.waiting = False
        if not self.closed:
            if reply and self.state != CLOSING:
                self.send(reply)
            self.go_on()

    # -------------------------------------------------------------------------------------------- login

    def logged_in(self, session: Session) -> None:
        self.state = OPEN
        self.wait(encode_method(commands.Connection.OpenOk(), 0))

    def login_failed(self, error: BrokerError) -> None:
        if self.state == AUTHENTICATING:
            if not self.capabilities.get("authentication_failure_close"):
                self.close()
                return
            self.leave(403, f"Login was refused using authentication mechanism {self.mechanism}. For details see the broker logfile.", 0)
        else:
            code = 530 if isinstance(error, NotFound) else reply_code(error)
            self.leave(code if code >= 500 else 530, str(error), 10 << 16 | 40)

    def check_password(self, user: str, password: str) -> None:
        """Hash beside the loop; `checked` follows. (The vhost is only named later, so there is no session yet.)"""
        login = self.context.broker.access.prepare(user, password, self.loopback)
        self.verifying = True
        if login.remembered:
            self.checked(login)
        else:
            self.adjust_reading()
            self.context.verifier.verify(login, PasswordChecked(self))

    def checked(self, login: Login) -> None:
        if self.closed:
            return
        self.verifying = False
        self.adjust_reading()
        try:
            identity = self.context.broker.access.finish(login)
        except BrokerError as error:
            self.refuse_login(error)
            return
        if login.rehashed:
            self.keep_hash(login)
        self.known(identity)

    def known(self, identity: Identity) -> None:
        """The client is who it says; now for the numbers."""
        self.identity = identity
        self.state = TUNING
        limits = self.context.broker.limits.settings
        self.channel_max = limits.channels_per_connection_max
        self.send(encode_method(commands.Connection.Tune(int(self.channel_max), FRAME_MAX, HEARTBEAT_S), 0))
        self.go_on()

    def open_vhost(self, vhost: str) -> None:
        identity = self.identity
        assert identity is not None
        self.enter(identity, vhost, "AMQP 0-9-1")

    # -------------------------------------------------------------------------------------------- errors

    def fail(self, code: int, text: str, method: int) -> None:
        """Close the connection with a reply code."""
        if self.closed or self.state == CLOSING:
            return
        if self.state == NEW:
            self.abort()
            return
        logger.warning("connection closed", peer=self.peer, code=code, reason=text)
        self.leave(code, text, method)

    def leave(self, code: int, text: str, method: int) -> None:
        """Say why, and wait for the client to agree, but not long. (Closed at once, with something unread, the reason might never arrive.)"""
        self.state = CLOSING
        self.parked = []
        self.parked_sizes = []
        self.parked_bytes = 0
        self.drop_channels()
        self.send(close_connection(code, reply_text(code, text), method))
        self.close_timer = self.context.broker.scheduler.call_later(DEAF_S if self.deaf else CLOSE_S, CloseLate(self))
        self.leaving = False
        self.waiting = False
        self.adjust_reading()
        self.go_on()

    def channel_error(self, number: i64, code: int, text: str, method: int) -> None:
        channel = self.channels.get(number)
        if channel is None or channel.closing:
            return
        if closes_connection(code):
            self.fail(code, text, method)
            return
        channel.closing = True
        logger.info("channel closed", peer=self.peer, channel=int(number), code=code, reason=text)
        self.drop_content(number)
        channel.close()
        self.send(close_channel(number, code, reply_text(code, text), method))

    def drop_channels(self) -> None:
        channels = list(self.channels.values())
        self.channels = {}
        self.contents = {}
        self.contents_bytes = 0
        for channel in channels:
            channel.close()

    # -------------------------------------------------------------------------------------------- events

    def consumer_cancelled(self, channel: Channel, tag: str) -> None:
        if self.capabilities.get("consumer_cancel_notify"):
            self.send(encode_method(commands.Basic.Cancel(tag, True), channel.number))

    def room_again(self) -> None:
        for channel in list(self.channels.values()):
            channel.pump()

    def unacknowledged(self) -> i64:
        n: i64 = 0
        for channel in self.channels.values():
            n += channel.unacked.count
        return n

    def unpark(self, item: object) -> None:
        assert isinstance(item, Publication)
        publishing.publish_now(self, item)

    def hold(self) -> None:
        super().hold()
        flusher = self.context.broker.flusher
        reason = flusher.blocked or flusher.stalled
        if reason and not self.blocked and self.capabilities.get("connection.blocked"):
            self.blocked = True
            self.send(encode_method(commands.Connection.Blocked(shortened(reason)), 0))

    def release(self) -> None:
        super().release()
        if self.blocked and self.holds == 0:
            self.blocked = False
            self.send(encode_method(commands.Connection.Unblocked(), 0))

    def lost(self) -> None:
        self.stop_timers()
        self.drop_channels()

    def stop_timers(self) -> None:
        for timer in (self.beat_timer, self.close_timer):
            if timer is not None:
                timer.cancel()

    def going_down(self) -> None:
        if self.state == OPEN:
            self.leaving = True
            self.adjust_reading()
            self.context.broker.after(Goodbye(self))
        elif self.state != CLOSING:
            self.close()

    def say_goodbye(self) -> None:
        if not self.closed and self.state == OPEN:
            self.leave(320, "broker forced connection closure with reason 'shutdown'", 0)

    # -------------------------------------------------------------------------------------------- heartbeats

    def start_beating(self, seconds: i64) -> None:
        self.heartbeat_s = seconds
        if seconds > 0:
            self.beat_timer = self.context.broker.scheduler.call_later(float(seconds) / 2.0, Beat(self))

    def beat(self) -> None:
        """Twice per interval: send a sign of life, and give up on a client that gave none for two intervals."""
        if self.closed or self.state == CLOSING:
            return
        if self.heard or not self.reading:
            self.missed = 0
        else:
            self.missed += 1
            if self.missed >= 4:
                self.abort()
                return
        self.heard = False
        self.send(HEARTBEAT_FRAME)
        self.beat_timer = self.context.broker.scheduler.call_later(float(self.heartbeat_s) / 2.0, Beat(self))
