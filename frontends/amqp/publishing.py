"""From a `basic.publish` to the core: what the message's properties ask for, and where it goes back to if nobody wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64

from trilogue.core.entities import DELAYED
from trilogue.core.errors import BrokerError
from trilogue.core.message import MORE_KEYS, ORIGIN_AMQP, PERSISTENT, Run
from trilogue.frontends.amqp.channel import Channel
from trilogue.frontends.amqp.codec import PUBLISH, ProtocolError, body_of, decode_method, make_span, properties_of
from trilogue.frontends.amqp.errors import reply_code
from trilogue.frontends.amqp.fields import ESCAPE
from trilogue.frontends.amqp.frames import returned, write_span
from trilogue.frontends.amqp.reply import REPLY_TO
from trilogue.frontends.amqp.transaction import Publication

if TYPE_CHECKING:
    from trilogue.frontends.amqp.session import AmqpSession

MANDATORY: Final = 1
IMMEDIATE: Final = 2
TTL_MAX: Final = 4_294_967_295_000
DELAY_MAX: Final = 100_000_000_000_000


def publish(session: AmqpSession, publication: Publication) -> None:
    """Now, with the transaction, or when the broker can take it."""
    channel = publication.channel
    if publication.bits & IMMEDIATE:
        raise ProtocolError(540, "immediate=true", PUBLISH)
    if channel.transaction is not None:
        postpone(session, publication)
    elif session.must_park():
        session.park(publication, publication.run.size)
    else:
        publish_now(session, publication)


def postpone(session: AmqpSession, publication: Publication) -> None:
    """What could never be published is refused at once, the rest with the commit."""
    channel = publication.channel
    transaction = channel.transaction
    assert transaction is not None and session.session is not None
    try:
        session.context.broker.allow_publish(session.session, publication.run)
        transaction.publishes.append(publication)
    except BrokerError as error:
        session.channel_error(channel.number, reply_code(error), str(error), PUBLISH)


def publish_now(session: AmqpSession, publication: Publication) -> None:
    broker = session.context.broker
    channel = publication.channel
    run = publication.run
    core = session.session
    if channel.closing or core is None:
        return
    try:
        if publication.delay_ms > 0:
            broker.publish_delayed(core, channel, run, publication.delay_ms, channel.confirming, publication.keys)
            return
        path = broker.path_of_keys(core, run, publication.keys) if publication.keys else broker.path(core, run, b"")
        if len(run.spans) > 1 and broker.router.reads_headers(core.vhost, run.exchange.decode("utf-8", "replace")):
            for k in range(len(run.spans)):
                publish_now(session, Publication(channel, run.part(k, k + 1), publication.bits, publication.keys))
            return
        if publication.bits & MANDATORY and not path.routed():
            give_back(session, channel, run)
        broker.publish_by(path, channel, run, channel.confirming)
    except BrokerError as error:
        session.channel_error(channel.number, reply_code(error), str(error), PUBLISH)


def give_back(session: AmqpSession, channel: Channel, run: Run) -> None:
    """Mandatory, and nobody there: the client gets it back, before any confirm."""
    method = returned(channel.number, run)
    for span in run.spans:
        session.send(method)
        write_span(session.w, span, channel.number, session.frame_max)


def ttl_of(session: AmqpSession, channel: Channel, expiration: bytes) -> i64:
    """An expiration property in ms; -1, and the channel is closed, if it is none."""
    if expiration.isdigit() and len(expiration) < 18:
        ttl = int(expiration)
        if ttl <= TTL_MAX:
            return ttl
    session.channel_error(channel.number, 406, f"invalid expiration '{expiration.decode('utf-8', 'replace')}'", PUBLISH)
    return -1


def publish_special(session: AmqpSession, channel: Channel, method: bytes, span: bytes) -> None:
    """One message whose properties ask for something, or whose body came in pieces."""
    command = decode_method(method)
    bits: i64 = (MANDATORY if command.mandatory else 0) | (IMMEDIATE if command.immediate else 0)
    properties = properties_of(span)
    headers: dict[str, Any] = properties.headers or {}
    problem = problem_of(session, channel, properties, headers)
    if problem:
        session.channel_error(channel.number, 406, problem, PUBLISH)
        return
    keys: list[str] = []
    for name in ("CC", "BCC"):
        keys.extend(key for key in headers.get(name, []) if key not in keys and key != command.routing_key)
    flags = PERSISTENT if properties.delivery_mode == 2 else 0
    if headers.get("CC"):
        flags |= MORE_KEYS
    if "BCC" in headers or properties.reply_to == REPLY_TO:
        headers.pop("BCC", None)
        if properties.reply_to == REPLY_TO:
            properties.reply_to = channel.reply_name
        span = make_span(properties.marshal(), body_of(span), session.frame_max)
    run = Run(command.exchange.encode("utf-8", ESCAPE), command.routing_key.encode("utf-8", ESCAPE), ORIGIN_AMQP, [span], len(span), flags,
              properties.priority or 0)
    if properties.expiration is not None:
        run.ttl_ms = ttl_of(session, channel, properties.expiration.encode("utf-8", ESCAPE))
        if run.ttl_ms < 0:
            return
    publish(session, Publication(channel, run, bits, [key.encode("utf-8", ESCAPE) for key in keys], delay_of(session, command.exchange, headers)))


def problem_of(session: AmqpSession, channel: Channel, properties: Any, headers: dict[str, Any]) -> str:
    """Why a message cannot be taken as it is; empty if it can."""
    assert session.session is not None
    identity = session.session.identity
    if properties.user_id is not None and properties.user_id != identity.user and not identity.has_tag("impersonator"):
        return f"user_id property set to '{properties.user_id}' but authenticated user was '{identity.user}'"
    if properties.reply_to == REPLY_TO and not channel.reply_name:
        return "fast reply consumer does not exist"
    for name in ("CC", "BCC"):
        more = headers.get(name, [])
        if not isinstance(more, list) or not all(isinstance(key, str) for key in more):
            return f"invalid {name} header: must be an array of strings"
    return ""


def delay_of(session: AmqpSession, exchange: str, headers: dict[str, Any]) -> i64:
    """How long an exchange that delays keeps a message with these headers; 0: not at all."""
    delay = headers.get("x-delay")
    if isinstance(delay, bool) or not isinstance(delay, int) or delay <= 0:
        return 0
    assert session.session is not None
    found = session.context.broker.catalog.find_exchange(session.session.vhost, exchange)
    if found is None or found.type != DELAYED:
        return 0
    return delay if delay < DELAY_MAX else DELAY_MAX
