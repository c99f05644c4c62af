"""The right reply code for every mistake: section by section what RabbitMQ answers, channel or connection, and its words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Node, Talk, made
from trilogue.core import errors
from trilogue.frontends.amqp.errors import REPLY, closes_connection, reply_code, reply_text

CHANNEL, CONNECTION = False, True


def subclasses(kind: type[errors.BrokerError]) -> list[type[errors.BrokerError]]:
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ == "trilogue.core.errors":
            found.extend(subclasses(child))
    return found


def test_every_core_error_has_a_code() -> None:
    for kind in subclasses(errors.BrokerError):
        if kind not in (errors.BrokerError, errors.PeerError, errors.OperatingError):
            assert kind in REPLY, kind
            assert reply_code(kind("x")) == REPLY[kind]


def test_codes_of_the_specification_close_what_they_should() -> None:
    assert [code for code in (311, 313, 403, 404, 405, 406) if closes_connection(code)] == []
    assert all(closes_connection(code) for code in (320, 501, 502, 503, 504, 505, 506, 530, 540, 541))
    assert reply_text(404, "no queue") == "NOT_FOUND - no queue"


# ------------------------------------------------------------------------------------------------ the table

Mistake = Callable[[Talk, str], None]


def declare_again(**changed: object) -> Mistake:
    def act(client: Talk, q: str) -> None:
        client.declare(q)
        client.declare(q, **changed)  # type: ignore[arg-type]
    return act


def exchange_again(**changed: object) -> Mistake:
    def act(client: Talk, q: str) -> None:
        client.exchange(q)
        client.exchange(q, **changed)  # type: ignore[arg-type]
    return act


def with_queue(act: Mistake) -> Mistake:
    def first(client: Talk, q: str) -> None:
        client.declare(q)
        act(client, q)
    return first


def publishing(**properties: object) -> Mistake:
    def act(client: Talk, q: str) -> None:
        client.declare(q)
        client.publish("", q, b"x", **properties)  # type: ignore[arg-type]
        client.sync()
    return act


def declaring(**arguments: object) -> Mistake:
    def act(client: Talk, q: str) -> None:
        client.declare(q, **arguments)  # type: ignore[arg-type]
    return act


def said(command: object, *before: object) -> Mistake:
    """Say methods that need no answer first, then one whose answer is an error."""
    def act(client: Talk, q: str) -> None:
        for one in (*before, command):
            client.say(one)
        client.sync()
    return act


def publish_internal(client: Talk, q: str) -> None:
    client.exchange(q, internal=True)
    client.publish(q, "k")
    client.sync()


def consume_twice(client: Talk, q: str) -> None:
    client.consume(q, "same")
    client.consume(q, "same")


def exclusive_consumer(client: Talk, q: str) -> None:
    client.consume(q, "first", exclusive=True)
    client.consume(q, "second")


def late_exclusive_consumer(client: Talk, q: str) -> None:
    client.consume(q, "first")
    client.consume(q, "second", exclusive=True)


def ack_twice(client: Talk, q: str) -> None:
    client.publish("", q, b"x")
    client.consume(q)
    client.delivery()
    client.ack(1)
    client.ack(1)
    client.sync()


def ack_elsewhere(client: Talk, q: str) -> None:
    client.publish("", q, b"x")
    client.channel(2).consume(q, channel=2)
    client.delivery(2)
    client.ack(1)
    client.sync()


def delete_not_empty(client: Talk, q: str) -> None:
    client.publish("", q, b"x")
    client.ask(made(commands.Queue.Delete, queue=q, if_empty=True), commands.Queue.DeleteOk)


def delete_used(client: Talk, q: str) -> None:
    client.consume(q)
    client.ask(made(commands.Queue.Delete, queue=q, if_unused=True), commands.Queue.DeleteOk)


def delete_bound_exchange(client: Talk, q: str) -> None:
    client.exchange(q)
    client.bind(q, q)
    client.ask(made(commands.Exchange.Delete, exchange=q, if_unused=True), commands.Exchange.DeleteOk)


def stream_get(client: Talk, q: str) -> None:
    client.declare(q, queue_type="stream")
    client.get(q)


def stream_without_prefetch(client: Talk, q: str) -> None:
    client.declare(q, queue_type="stream")
    client.consume(q)


def stream_without_ack(client: Talk, q: str) -> None:
    client.declare(q, queue_type="stream")
    client.qos(1)
    client.consume(q, no_ack=True)


def stream_from_nowhere(client: Talk, q: str) -> None:
    client.declare(q, queue_type="stream")
    client.qos(1)
    client.consume(q, stream_offset="yesterday")


def stream_purge(client: Talk, q: str) -> None:
    client.declare(q, queue_type="stream")
    client.ask(made(commands.Queue.Purge, queue=q), commands.Queue.PurgeOk)


def reply_twice(client: Talk, q: str) -> None:
    client.consume("amq.rabbitmq.reply-to", "a", no_ack=True)
    client.consume("amq.rabbitmq.reply-to", "b", no_ack=True)


def unbind_default(client: Talk, q: str) -> None:
    client.ask(made(commands.Queue.Unbind, queue=q, exchange="", routing_key=q), commands.Queue.UnbindOk)


WHERE = "'{q}' in vhost '/'"
MISTAKES: list[tuple[str, Mistake, bool, int, str]] = [
    ("passive declare of a missing queue", declaring(passive=True), CHANNEL, 404, f"NOT_FOUND - no queue {WHERE}"),
    ("passive declare of a missing exchange", lambda c, q: c.exchange(q, passive=True), CHANNEL, 404, f"NOT_FOUND - no exchange {WHERE}"),
    ("consume from a missing queue", lambda c, q: c.consume(q), CHANNEL, 404, f"NOT_FOUND - no queue {WHERE}"),
    ("get from a missing queue", lambda c, q: c.get(q), CHANNEL, 404, f"NOT_FOUND - no queue {WHERE}"),
    ("purge of a missing queue", lambda c, q: c.ask(made(commands.Queue.Purge, queue=q), commands.Queue.PurgeOk), CHANNEL, 404,
     f"NOT_FOUND - no queue {WHERE}"),
    ("publish to a missing exchange", lambda c, q: (c.publish(q, "k"), c.sync()), CHANNEL, 404, f"NOT_FOUND - no exchange {WHERE}"),
    ("bind a missing queue", lambda c, q: c.bind(q, "amq.direct"), CHANNEL, 404, f"NOT_FOUND - no queue {WHERE}"),
    ("bind to a missing exchange", with_queue(lambda c, q: c.bind(q, q)), CHANNEL, 404, f"NOT_FOUND - no exchange {WHERE}"),
    ("no queue was declared before", lambda c, q: c.consume(""), CHANNEL, 404, "NOT_FOUND - no previously declared queue"),
    ("other durability", declare_again(durable=False), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue {WHERE}: received 'false' but current is 'true'"),
    ("other auto-delete", declare_again(auto_delete=True), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue {WHERE}: received 'true' but current is 'false'"),
    ("another argument", declare_again(max_length=5), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue {WHERE}: received the value '5' of type 'signedint' but current is none"),
    ("another queue type", declare_again(queue_type="quorum"), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue {WHERE}: received 'quorum' but current is 'classic'"),
    ("another exchange type", exchange_again(kind="fanout"), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange {WHERE}: received 'fanout' but current is 'direct'"),
    ("another alternate exchange", exchange_again(arguments={"alternate-exchange": "a"}), CHANNEL, 406,
     f"PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange {WHERE}: received the value 'a' of type 'longstr' but current is "),
    ("unknown exchange type", lambda c, q: c.exchange(q, kind="nonsense"), CHANNEL, 406, "PRECONDITION_FAILED - unknown exchange type 'nonsense'"),
    ("declare a reserved queue", lambda c, q: c.declare("amq." + q), CHANNEL, 403,
     "ACCESS_REFUSED - queue name 'amq.{q}' contains reserved prefix 'amq.*'"),
    ("declare a reserved exchange", lambda c, q: c.exchange("amq." + q), CHANNEL, 403,
     "ACCESS_REFUSED - exchange name 'amq.{q}' contains reserved prefix 'amq.*'"),
    ("bind to the default exchange", with_queue(lambda c, q: c.bind(q, "", "k")), CHANNEL, 403,
     "ACCESS_REFUSED - operation not permitted on the default exchange"),
    ("unbind from the default exchange", with_queue(unbind_default), CHANNEL, 403,
     "ACCESS_REFUSED - operation not permitted on the default exchange"),
    ("delete the default exchange", lambda c, q: c.ask(commands.Exchange.Delete(exchange=""), commands.Exchange.DeleteOk), CHANNEL, 403,
     "ACCESS_REFUSED - operation not permitted on the default exchange"),
    ("delete a predeclared exchange", lambda c, q: c.ask(commands.Exchange.Delete(exchange="amq.topic"), commands.Exchange.DeleteOk), CHANNEL, 403,
     "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed"),
    ("publish to an internal exchange", publish_internal, CHANNEL, 403, f"ACCESS_REFUSED - cannot publish to internal exchange {WHERE}"),
    ("a second consumer beside an exclusive one", with_queue(exclusive_consumer), CHANNEL, 403, f"ACCESS_REFUSED - queue {WHERE} in exclusive use"),
    ("an exclusive consumer beside another", with_queue(late_exclusive_consumer), CHANNEL, 403, f"ACCESS_REFUSED - queue {WHERE} in exclusive use"),
    ("exclusive over a queue that is not", declare_again(exclusive=True), CHANNEL, 405,
     f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue {WHERE}. It could be originally declared on another connection"),
    ("a consumer tag twice", with_queue(consume_twice), CONNECTION, 530, "NOT_ALLOWED - attempt to reuse consumer tag 'same'"),
    ("a prefetch size", lambda c, q: c.ask(commands.Basic.Qos(prefetch_size=1), commands.Basic.QosOk), CONNECTION, 540,
     "NOT_IMPLEMENTED - prefetch_size!=0 (1)"),
    ("immediate", lambda c, q: (c.publish("", q, immediate=True), c.sync()), CONNECTION, 540, "NOT_IMPLEMENTED - immediate=true"),
    ("get from a stream", stream_get, CONNECTION, 540, f"NOT_IMPLEMENTED - basic.get not supported by stream queues queue {WHERE}"),
    ("purge of a stream", stream_purge, CONNECTION, 540, "NOT_IMPLEMENTED - "),
    ("recover without requeue", said(commands.Basic.Recover(False)), CONNECTION, 540, "NOT_IMPLEMENTED - requeue=false"),
    ("recover-async without requeue", said(commands.Basic.RecoverAsync(False)), CONNECTION, 540, "NOT_IMPLEMENTED - requeue=false"),
    ("a stream without prefetch", stream_without_prefetch, CHANNEL, 406,
     f"PRECONDITION_FAILED - consumer prefetch count is not set for stream queue {WHERE}"),
    ("a stream without acknowledgements", stream_without_ack, CONNECTION, 540,
     f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue {WHERE}"),
    ("a stream from nowhere", stream_from_nowhere, CHANNEL, 406, f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue {WHERE}"),
    ("ack of an unknown tag", said(commands.Basic.Ack(7)), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    ("ack of several unknown tags", said(commands.Basic.Ack(7, True)), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    ("nack of an unknown tag", said(commands.Basic.Nack(7)), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    ("reject of an unknown tag", said(commands.Basic.Reject(7)), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    ("ack twice", with_queue(ack_twice), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    ("ack on another channel", with_queue(ack_elsewhere), CHANNEL, 406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    ("delete if empty", with_queue(delete_not_empty), CHANNEL, 406, f"PRECONDITION_FAILED - queue {WHERE} is not empty"),
    ("delete if unused", with_queue(delete_used), CHANNEL, 406, f"PRECONDITION_FAILED - queue {WHERE} in use"),
    ("delete an exchange if unused", with_queue(delete_bound_exchange), CHANNEL, 406, f"PRECONDITION_FAILED - exchange {WHERE} in use"),
    ("tx after confirms", said(commands.Tx.Select(), commands.Confirm.Select()), CHANNEL, 406,
     "PRECONDITION_FAILED - cannot switch from confirm to tx mode"),
    ("confirms after tx", said(commands.Confirm.Select(), commands.Tx.Select()), CHANNEL, 406,
     "PRECONDITION_FAILED - cannot switch from tx to confirm mode"),
    ("commit without select", said(commands.Tx.Commit()), CHANNEL, 406, "PRECONDITION_FAILED - channel is not transactional"),
    ("rollback without select", said(commands.Tx.Rollback()), CHANNEL, 406, "PRECONDITION_FAILED - channel is not transactional"),
    ("another user's id", publishing(user_id="somebody"), CHANNEL, 406,
     "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"),
    ("an expiration that is no number", publishing(expiration="soon"), CHANNEL, 406, "PRECONDITION_FAILED - invalid expiration 'soon'"),
    ("a negative expiration", publishing(expiration="-1"), CHANNEL, 406, "PRECONDITION_FAILED - invalid expiration '-1'"),
    ("CC that is no array", publishing(headers={"CC": "k"}), CHANNEL, 406, "PRECONDITION_FAILED - invalid CC header: must be an array of strings"),
    ("BCC that is no array of strings", publishing(headers={"BCC": [1]}), CHANNEL, 406,
     "PRECONDITION_FAILED - invalid BCC header: must be an array of strings"),
    ("a negative TTL", declaring(message_ttl=-1), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue {WHERE}: {{{{value_negative,-1}}}}"),
    ("a TTL that is text", declaring(message_ttl="1"), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue {WHERE}: {{{{unacceptable_type,longstr}}}}"),
    ("too many priorities", declaring(max_priority=256), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue {WHERE}: {{{{max_value_exceeded,256}}}}"),
    ("a dead letter key without an exchange", declaring(dead_letter_routing_key="k"), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue {WHERE}: routing_key_but_no_dlx_defined"),
    ("a quorum queue that is not durable", declaring(queue_type="quorum", durable=False), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid property 'non-durable' for queue {WHERE}"),
    ("an exclusive quorum queue", declaring(queue_type="quorum", exclusive=True), CHANNEL, 406,
     f"PRECONDITION_FAILED - invalid property 'exclusive-owner' for queue {WHERE}"),
    ("an unknown queue type", declaring(queue_type="nonsense"), CHANNEL, 406, "PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue"),
    ("an unknown overflow", declaring(overflow="nonsense"), CHANNEL, 406, "PRECONDITION_FAILED - invalid arg 'x-overflow' for queue"),
    ("a reply without a reply consumer", publishing(reply_to="amq.rabbitmq.reply-to"), CHANNEL, 406,
     "PRECONDITION_FAILED - fast reply consumer does not exist"),
    ("a reply consumer that acknowledges", lambda c, q: c.consume("amq.rabbitmq.reply-to"), CHANNEL, 406,
     "PRECONDITION_FAILED - reply consumer cannot acknowledge"),
    ("two reply consumers", reply_twice, CHANNEL, 406, "PRECONDITION_FAILED - reply consumer already set"),
    ("a consumer priority that is no number", with_queue(lambda c, q: c.consume(q, priority="high")), CHANNEL, 406,
     "PRECONDITION_FAILED - invalid arg 'x-priority'"),
    ("a method on a channel that is not open", said(commands.Basic.Qos(), commands.Channel.Close(200, "", 0, 0)), CONNECTION, 504,
     "CHANNEL_ERROR - expected 'channel.open'"),
    ("a channel twice", said(commands.Channel.Open()), CONNECTION, 504, "CHANNEL_ERROR - second 'channel.open' seen"),
]


@pytest.mark.parametrize(("mistake", "connection", "code", "text"), [row[1:] for row in MISTAKES], ids=[row[0].replace(" ", "-") for row in MISTAKES])
def test_mistake(client: Talk, node: Node, q: str, mistake: Mistake, connection: bool, code: int, text: str) -> None:
    name = q.replace("test_mistake[", "").rstrip("]")
    with pytest.raises(Closed) as raised:
        mistake(client, name)
        client.sync()
    error = raised.value
    assert (error.code, error.connection) == (code, connection), error
    assert error.text.startswith(text.format(q=name)[:255]), error.text
    if not connection:
        client.channel(1).sync()            # the channel can be opened again, and the connection goes on
    node.open().sync()


def test_harmless_things_are_ok(client: Talk, q: str) -> None:
    client.declare(q, nonsense=1)                               # an unknown argument
    client.declare(q, nonsense=2, consumer_timeout=60_000)      # which need not be repeated either
    client.ack(0, True)
    client.nack(0, True)
    assert client.ask(commands.Basic.Cancel("nobody"), commands.Basic.CancelOk).consumer_tag == "nobody"
    assert client.ask(commands.Queue.Delete(queue="missing"), commands.Queue.DeleteOk).message_count == 0
    client.ask(commands.Exchange.Delete(exchange="missing"), commands.Exchange.DeleteOk)
    client.ask(made(commands.Queue.Unbind, queue=q, exchange="amq.direct", routing_key="k"), commands.Queue.UnbindOk)
    client.exchange("amq.direct")                               # a redeclaration as it is
    client.exchange("amq.fanout", "fanout", passive=True)
    client.sync()
