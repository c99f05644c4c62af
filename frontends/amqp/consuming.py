"""The methods that take messages: consume, get, acknowledge by method, recover, and how many may be out."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from trilogue.core.access import READ
from trilogue.core.entities import Topic
from trilogue.core.errors import BrokerError, NotFound, NotSupported, PreconditionFailed
from trilogue.core.limits import CONSUMER
from trilogue.core.session import Session
from trilogue.frontends.amqp.channel import AmqpConsumer, Channel, FromQueue, Getter
from trilogue.frontends.amqp.codec import ProtocolError, encode_method
from trilogue.frontends.amqp.reply import REPLY_TO, FromReplies
from trilogue.frontends.amqp.stream import FromStream, StreamConsumer, check_stream, start_reading

if TYPE_CHECKING:
    from trilogue.frontends.amqp.session import AmqpSession

QOS: Final = 60 << 16 | 10
CONSUME: Final = 60 << 16 | 20
RECOVER_ASYNC: Final = 60 << 16 | 100
RECOVER: Final = 60 << 16 | 110


def core_of(session: AmqpSession) -> Session:
    assert session.session is not None
    return session.session


def named(channel: Channel, name: str) -> str:
    """An empty name means the queue that was declared last on this channel."""
    if name:
        return name
    if not channel.last_queue:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def qos(session: AmqpSession, channel: Channel, command: Any) -> None:
    if command.prefetch_size:
        raise ProtocolError(540, "prefetch_size!=0 (" + str(command.prefetch_size) + ")", QOS)
    if command.global_:
        channel.prefetch = command.prefetch_count
    else:
        channel.consumer_prefetch = command.prefetch_count
    session.send(encode_method(commands.Basic.QosOk(), channel.number))
    channel.pump()


# ------------------------------------------------------------------------------------------------ consume

def consume(session: AmqpSession, channel: Channel, command: Any) -> None:
    core = core_of(session)
    tag = command.consumer_tag or "amq.ctag-" + secrets.token_urlsafe(16)
    if tag in channel.consumers:
        raise ProtocolError(530, f"attempt to reuse consumer tag '{tag}'", CONSUME)
    name = named(channel, command.queue)
    core.quota.take(CONSUMER)
    # Deliveries may come before this is over, so the answer is written first, and taken back if it fails.
    before = len(session.w)
    if not command.nowait:
        session.send(encode_method(commands.Basic.ConsumeOk(tag), channel.number))
    try:
        if name == REPLY_TO:
            consume_replies(channel, tag, command)
        else:
            found = session.context.broker.catalog.find_destination(core.vhost, name)
            if isinstance(found, Topic):
                consume_stream(session, channel, tag, found, command)
            else:
                consume_queue(session, channel, tag, name, command)
    except BrokerError:
        channel.consumers.pop(tag, None)
        core.quota.give(CONSUMER)
        session.w.truncate(before)
        raise


def consume_queue(session: AmqpSession, channel: Channel, tag: str, name: str, command: Any) -> None:
    arguments = command.arguments or {}
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise PreconditionFailed(f"invalid arg 'x-priority' for consumer '{tag}': {priority!r} is not an integer")
    consumer = AmqpConsumer(channel, tag.encode(), priority, command.no_ack, command.exclusive, channel.consumer_prefetch)
    channel.consumers[tag] = FromQueue(consumer)
    queue = session.context.broker.consume(core_of(session), name, consumer)
    consumer.queue = queue
    if not command.no_ack:
        channel.patience.watch(queue)


def consume_stream(session: AmqpSession, channel: Channel, tag: str, topic: Topic, command: Any) -> None:
    broker = session.context.broker
    check_stream(topic, channel, command.no_ack)
    prefetch = channel.consumer_prefetch if channel.consumer_prefetch > 0 else channel.prefetch
    consumer = StreamConsumer(channel, tag.encode(), prefetch, len(topic.partitions) > 1)
    channel.consumers[tag] = FromStream(consumer)
    start_reading(broker, core_of(session), topic, consumer, (command.arguments or {}).get("x-stream-offset"))


def consume_replies(channel: Channel, tag: str, command: Any) -> None:
    if not command.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_name:
        raise PreconditionFailed("reply consumer already set")
    channel.consumers[tag] = FromReplies(channel, tag.encode())


def cancel(session: AmqpSession, channel: Channel, command: Any) -> None:
    channel.cancel(command.consumer_tag)
    if not command.nowait:
        session.send(encode_method(commands.Basic.CancelOk(command.consumer_tag), channel.number))


def get(session: AmqpSession, channel: Channel, command: Any) -> None:
    broker = session.context.broker
    core = core_of(session)
    name = named(channel, command.queue)
    found = broker.catalog.destination(core.vhost, name)
    if isinstance(found, Topic):
        raise NotSupported(f"basic.get not supported by stream queues {found.where()}")
    entity = broker.queue_entity(core, name)
    broker.access.authorise(core.identity, READ, core.vhost, "queue", name)
    queue = broker.queue(entity.id)
    if queue.ready() == 0:
        queue.used_ms = broker.scheduler.now_ms()
        session.send(encode_method(commands.Basic.GetEmpty(), channel.number))
        return
    session.waiting = True
    channel.getting = True
    if not command.no_ack:
        channel.patience.watch(queue)
    broker.consume(core, name, Getter(channel, queue, command.no_ack))


# ------------------------------------------------------------------------------------------------ answers

def nack(session: AmqpSession, channel: Channel, command: Any) -> None:
    refuse(channel, command.delivery_tag, command.multiple, command.requeue)


def reject(session: AmqpSession, channel: Channel, command: Any) -> None:
    refuse(channel, command.delivery_tag, False, command.requeue)


def refuse(channel: Channel, tag: int, multiple: bool, requeue: bool) -> None:
    held = channel.unacked.take(tag, tag) if not multiple else channel.unacked.take_upto(tag) if tag else channel.unacked.take_all()
    if held is None or (tag and not held):
        raise PreconditionFailed(f"unknown delivery tag {tag}")
    if requeue:
        channel.give_back(held, True)
    else:
        channel.reject(held)


def recover(session: AmqpSession, channel: Channel, command: Any) -> None:
    if not command.requeue:
        raise ProtocolError(540, "requeue=false", RECOVER)
    recovered(channel)
    session.send(encode_method(commands.Basic.RecoverOk(), channel.number))


def recover_async(session: AmqpSession, channel: Channel, command: Any) -> None:
    if not command.requeue:
        raise ProtocolError(540, "requeue=false", RECOVER_ASYNC)
    recovered(channel)


def recovered(channel: Channel) -> None:
    """Everything unanswered goes back; what a transaction has postponed was answered."""
    transaction = channel.transaction
    channel.transaction = None
    channel.give_back(channel.unacked.take_all(), True)
    channel.transaction = transaction
