"""What each AMQP method asks of the core. `session.py` has checked and decoded it; here it is carried out, and answered."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64
from pamqp import commands

from trilogue.core import entities
from trilogue.core.errors import BrokerError, NotFound, PreconditionFailed
from trilogue.core.limits import CHANNEL
from trilogue.frontends.amqp import consuming
from trilogue.frontends.amqp.channel import Channel
from trilogue.frontends.amqp.codec import CHANNEL_ERROR, COMMAND_INVALID, FRAME_MAX, FRAME_MIN, ProtocolError, encode_method
from trilogue.frontends.amqp.consuming import core_of, named
from trilogue.frontends.amqp.errors import reply_code
from trilogue.frontends.amqp.fields import ESCAPE
from trilogue.frontends.amqp.frames import queue_declared
from trilogue.frontends.amqp.login import log_in, mechanisms
from trilogue.frontends.amqp.login import update_secret as check_secret
from trilogue.frontends.amqp.publishing import publish_now
from trilogue.frontends.amqp.reader import AUTHENTICATING, OPENING
from trilogue.frontends.amqp.reply import REPLY_TO
from trilogue.frontends.amqp.transaction import Transaction

if TYPE_CHECKING:
    from trilogue.frontends.amqp.session import AmqpSession

VERSION: Final = "4.1.0"            # the RabbitMQ whose behaviour clients may count on
CAPABILITIES: Final = ["authentication_failure_close", "basic.nack", "connection.blocked", "consumer_cancel_notify", "consumer_priorities",
                       "direct_reply_to", "exchange_exchange_bindings", "per_consumer_qos", "publisher_confirms"]


def start(session: AmqpSession) -> Any:
    return commands.Connection.Start(0, 9, {
        "product": "RabbitMQ", "version": VERSION, "platform": "Trilogue", "trilogue": version("trilogue"),
        "copyright": "See the LICENSE file", "information": "Trilogue speaks AMQP 0-9-1 as RabbitMQ does", "cluster_name": "trilogue",
        "capabilities": dict.fromkeys(CAPABILITIES, True)}, mechanisms(session), "en_US")


def handle(session: AmqpSession, number: i64, method: i64, command: Any) -> None:
    """Carry out any method but a publish or an acknowledgement."""
    handler = HANDLERS.get(method)
    if number == 0:
        CONNECTION_HANDLERS[method](session, command)
        return
    if method == 20 << 16 | 10:
        open_channel(session, number)
        return
    channel = session.channels.get(number)
    if channel is None:
        raise ProtocolError(CHANNEL_ERROR, f"channel {number} is not open", int(method))
    if channel.closing:
        if method == 20 << 16 | 41:
            del session.channels[number]
            give_channel(session)
        return
    if handler is None:
        raise ProtocolError(COMMAND_INVALID, "that method is not expected now", int(method))
    try:
        handler(session, channel, command)
    except BrokerError as error:
        session.channel_error(number, reply_code(error), str(error), int(method))


# ------------------------------------------------------------------------------------------------ connection

def start_ok(session: AmqpSession, command: Any) -> None:
    session.client = command.client_properties or {}
    capabilities = session.client.get("capabilities")
    session.capabilities = capabilities if isinstance(capabilities, dict) else {}
    response = command.response
    session.state = AUTHENTICATING
    session.mechanism = command.mechanism
    log_in(session, command.mechanism, response.encode("utf-8", ESCAPE) if isinstance(response, str) else bytes(response))


def tune_ok(session: AmqpSession, command: Any) -> None:
    if command.frame_max and not FRAME_MIN <= command.frame_max <= FRAME_MAX:
        raise ProtocolError(530, f"negotiated frame_max = {command.frame_max} is not between {FRAME_MIN} and {FRAME_MAX}")
    if command.channel_max > session.channel_max:
        raise ProtocolError(530, f"negotiated channel_max = {command.channel_max} is higher than the maximum allowed value ({session.channel_max})")
    session.frame_max = command.frame_max or FRAME_MAX
    session.channel_max = command.channel_max or session.channel_max
    session.start_beating(command.heartbeat)
    session.state = OPENING


def connection_open(session: AmqpSession, command: Any) -> None:
    session.open_vhost(command.virtual_host)


def connection_close(session: AmqpSession, command: Any) -> None:
    session.drop_channels()
    session.send(encode_method(commands.Connection.CloseOk(), 0))
    session.close()


def update_secret(session: AmqpSession, command: Any) -> None:
    secret = command.new_secret
    check_secret(session, secret if isinstance(secret, str) else bytes(secret).decode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------------ channel

def open_channel(session: AmqpSession, number: i64) -> None:
    core = session.session
    if core is None:
        raise ProtocolError(COMMAND_INVALID, "the connection is not open")
    if number in session.channels:
        raise ProtocolError(CHANNEL_ERROR, f"second 'channel.open' seen on channel {number}", 20 << 16 | 10)
    if number > session.channel_max:
        raise ProtocolError(530, f"number of channels opened ({len(session.channels)}) has reached the negotiated channel_max "
                                 f"({session.channel_max})", 20 << 16 | 10)
    try:
        core.quota.take(CHANNEL)
    except BrokerError as error:
        raise ProtocolError(530, str(error), 20 << 16 | 10) from None
    session.channels[number] = Channel(session, number)
    session.send(encode_method(commands.Channel.OpenOk(), number))


def give_channel(session: AmqpSession) -> None:
    if session.session is not None:
        session.session.quota.give(CHANNEL)


def channel_close(session: AmqpSession, channel: Channel, command: Any) -> None:
    del session.channels[channel.number]
    channel.close()
    give_channel(session)
    session.send(encode_method(commands.Channel.CloseOk(), channel.number))


def channel_flow(session: AmqpSession, channel: Channel, command: Any) -> None:
    channel.flowing = command.active
    session.send(encode_method(commands.Channel.FlowOk(command.active), channel.number))
    channel.pump()


def ignored(session: AmqpSession, channel: Channel, command: Any) -> None:
    """An agreement to something that needs none."""


# ------------------------------------------------------------------------------------------------ exchanges and queues

def answer(session: AmqpSession, channel: Channel, nowait: bool, reply: Any) -> None:
    """Answer when what was done is on disk."""
    session.wait(b"" if nowait else encode_method(reply, channel.number))


def exchange_declare(session: AmqpSession, channel: Channel, command: Any) -> None:
    admin = session.context.administration
    if command.passive:
        session.context.broker.catalog.exchange(core_of(session).vhost, command.exchange)
    else:
        admin.declare_exchange(core_of(session), command.exchange, command.exchange_type, command.durable, command.auto_delete, command.internal,
                               command.arguments or {})
    answer(session, channel, command.nowait, commands.Exchange.DeclareOk())


def exchange_delete(session: AmqpSession, channel: Channel, command: Any) -> None:
    session.context.administration.delete_exchange(core_of(session), command.exchange, command.if_unused)
    answer(session, channel, command.nowait, commands.Exchange.DeleteOk())


def exchange_bind(session: AmqpSession, channel: Channel, command: Any) -> None:
    session.context.administration.bind(core_of(session), command.source, command.destination, command.routing_key, command.arguments or {}, True)
    answer(session, channel, command.nowait, commands.Exchange.BindOk())


def exchange_unbind(session: AmqpSession, channel: Channel, command: Any) -> None:
    session.context.administration.unbind(core_of(session), command.source, command.destination, command.routing_key, command.arguments or {}, True)
    answer(session, channel, command.nowait, commands.Exchange.UnbindOk())


def queue_declare(session: AmqpSession, channel: Channel, command: Any) -> None:
    admin = session.context.administration
    name = command.queue
    if name.startswith(REPLY_TO):
        declare_replies(session, channel, name, command.nowait)
        return
    if command.passive:
        found = admin.find_queue(core_of(session), named(channel, name))
    else:
        generated = not name
        if generated:
            name = "amq.gen-" + secrets.token_urlsafe(16)
        found = admin.declare_queue(core_of(session), name, command.durable, command.exclusive, command.auto_delete, command.arguments or {},
                                    generated)
    channel.last_queue = found.name
    messages: i64 = 0
    consumers: i64 = 0
    broker = session.context.broker
    if isinstance(found, entities.Queue):
        queue = broker.queue(found.id)
        messages = queue.ready()
        consumers = len(queue.consumers)
    else:
        for partition in broker.topics[found.id]:
            messages += partition.next - partition.log.start_offset()
            consumers = max(consumers, len(partition.readers))
    session.wait(b"" if command.nowait else queue_declared(channel.number, found.name, messages, consumers))


def declare_replies(session: AmqpSession, channel: Channel, name: str, nowait: bool) -> None:
    """Is somebody there who waits for a reply? A client asks so before it makes the effort."""
    core = core_of(session)
    broker = session.context.broker
    if name != REPLY_TO and not broker.router.route(core.vhost, "", name.encode(), {}):
        raise NotFound("no " + entities.in_vhost("queue", name, core.vhost))
    if not nowait:
        session.send(queue_declared(channel.number, name, 0, 1))


def queue_bind(session: AmqpSession, channel: Channel, command: Any) -> None:
    queue = named(channel, command.queue)
    key = command.routing_key if command.queue or command.routing_key else queue
    session.context.administration.bind(core_of(session), command.exchange, queue, key, command.arguments or {}, False)
    answer(session, channel, command.nowait, commands.Queue.BindOk())


def queue_unbind(session: AmqpSession, channel: Channel, command: Any) -> None:
    session.context.administration.unbind(core_of(session), command.exchange, named(channel, command.queue), command.routing_key,
                                          command.arguments or {}, False)
    answer(session, channel, False, commands.Queue.UnbindOk())


def queue_purge(session: AmqpSession, channel: Channel, command: Any) -> None:
    count = session.context.administration.purge_queue(core_of(session), named(channel, command.queue))
    answer(session, channel, command.nowait, commands.Queue.PurgeOk(int(count)))


def queue_delete(session: AmqpSession, channel: Channel, command: Any) -> None:
    name = named(channel, command.queue)
    count = session.context.administration.delete_queue(core_of(session), name, command.if_unused, command.if_empty)
    answer(session, channel, command.nowait, commands.Queue.DeleteOk(int(count)))


# ------------------------------------------------------------------------------------------------ confirms and transactions

def confirm_select(session: AmqpSession, channel: Channel, command: Any) -> None:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.confirming = True
    if not command.nowait:
        session.send(encode_method(commands.Confirm.SelectOk(), channel.number))


def tx_select(session: AmqpSession, channel: Channel, command: Any) -> None:
    if channel.confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction()
    session.send(encode_method(commands.Tx.SelectOk(), channel.number))


def tx_commit(session: AmqpSession, channel: Channel, command: Any) -> None:
    """Everything in one turn of the loop, so that in each shard it is one batch: all of it or nothing."""
    done = channel.transaction
    if done is None:
        raise PreconditionFailed("channel is not transactional")
    channel.transaction = None
    for publication in done.publishes:
        publish_now(session, publication)
    done.answer_all(channel)
    if not channel.closing:
        channel.transaction = Transaction()
        answer(session, channel, False, commands.Tx.CommitOk())


def tx_rollback(session: AmqpSession, channel: Channel, command: Any) -> None:
    """What was published is forgotten; what was acknowledged is not, and can be acknowledged again."""
    undone = channel.transaction
    if undone is None:
        raise PreconditionFailed("channel is not transactional")
    channel.unacked.restore(undone.take_back())
    channel.transaction = Transaction()
    session.send(encode_method(commands.Tx.RollbackOk(), channel.number))


CONNECTION_HANDLERS: Final[dict[int, Callable[..., None]]] = {
    10 << 16 | 11: start_ok, 10 << 16 | 31: tune_ok, 10 << 16 | 40: connection_open, 10 << 16 | 50: connection_close,
    10 << 16 | 70: update_secret,
}

HANDLERS: Final[dict[int, Callable[..., None]]] = {
    20 << 16 | 20: channel_flow, 20 << 16 | 21: ignored, 20 << 16 | 40: channel_close,
    40 << 16 | 10: exchange_declare, 40 << 16 | 20: exchange_delete, 40 << 16 | 30: exchange_bind, 40 << 16 | 40: exchange_unbind,
    50 << 16 | 10: queue_declare, 50 << 16 | 20: queue_bind, 50 << 16 | 30: queue_purge, 50 << 16 | 40: queue_delete, 50 << 16 | 50: queue_unbind,
    60 << 16 | 10: consuming.qos, 60 << 16 | 20: consuming.consume, 60 << 16 | 30: consuming.cancel, 60 << 16 | 31: ignored,
    60 << 16 | 70: consuming.get, 60 << 16 | 90: consuming.reject, 60 << 16 | 100: consuming.recover_async, 60 << 16 | 110: consuming.recover,
    60 << 16 | 120: consuming.nack,
    85 << 16 | 10: confirm_select, 90 << 16 | 10: tx_select, 90 << 16 | 20: tx_commit, 90 << 16 | 30: tx_rollback,
}
