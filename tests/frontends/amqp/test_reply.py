from __future__ import annotations

from pamqp import commands

from tests.frontends.amqp.talk import Node, Talk

REPLY_TO = "amq.rabbitmq.reply-to"


def asker(node: Node, q: str) -> Talk:
    client = node.open()
    client.declare(q)
    client.consume(REPLY_TO, "replies", no_ack=True)
    return client


def test_ask_and_answer(node: Node, q: str) -> None:
    client = asker(node, q)
    server = node.open()
    server.consume(q)
    client.publish("", q, b"question", reply_to=REPLY_TO, correlation_id="1", headers={"a": "b"})
    asked = server.delivery()
    assert asked.properties.reply_to.startswith(REPLY_TO + ".")
    assert (asked.body, asked.headers, asked.properties.correlation_id) == (b"question", {"a": "b"}, "1")
    server.publish("", asked.properties.reply_to, b"answer", correlation_id="1", mandatory=True)
    answer = client.delivery()
    assert (answer.body, answer.properties.correlation_id, answer.method.consumer_tag) == (b"answer", "1", "replies")
    assert (answer.method.exchange, answer.method.routing_key) == ("", asked.properties.reply_to)
    server.sync()
    assert server.heard(commands.Basic.Return) == []


def test_many_replies_come_in_order(node: Node, q: str) -> None:
    client = asker(node, q)
    server = node.open()
    server.consume(q, no_ack=True)
    client.publish("", q, b"count", reply_to=REPLY_TO)
    name = server.delivery().properties.reply_to
    body = b"." * 10_000
    for k in range(300):
        server.publish("", name, b"%03d" % k + body)
    assert [reply[:3] for reply in client.deliveries(300)] == [b"%03d" % k for k in range(300)]


def test_channels_have_names_of_their_own(node: Node, q: str) -> None:
    client = asker(node, q)
    client.channel(2).consume(REPLY_TO, "other", no_ack=True, channel=2)
    server = node.open()
    server.consume(q, no_ack=True)
    for channel in (1, 2):
        client.publish("", q, b"%d" % channel, channel=channel, reply_to=REPLY_TO)
        asked = server.delivery()
        server.publish("", asked.properties.reply_to, asked.body)
        assert client.delivery(channel).body == b"%d" % channel


def test_nobody_waits_any_more(node: Node, q: str) -> None:
    client = asker(node, q)
    server = node.open().confirms()
    server.consume(q, no_ack=True)
    client.publish("", q, b"question", reply_to=REPLY_TO)
    name = server.delivery().properties.reply_to
    assert server.declare(name, passive=True).consumer_count == 1
    client.ask(commands.Basic.Cancel("replies"), commands.Basic.CancelOk)
    server.publish("", name, b"late", mandatory=True)
    assert server.hear(commands.Basic.Return).method.reply_code == 312
    server.hear(commands.Basic.Ack)
    server.say(commands.Queue.Declare(queue=name, passive=True))
    assert server.closed().code == 404
    client.consume(REPLY_TO, "again", no_ack=True)


def test_a_lost_asker_leaves_nothing_behind(node: Node, q: str) -> None:
    node.until(lambda: not node.broker.subscribers)         # of tests before
    client = asker(node, q)
    assert node.call(lambda: len(node.broker.subscribers)) == 1
    client.leave()
    node.until(lambda: not node.broker.subscribers)


def test_the_pseudo_queue_can_be_declared(client: Talk) -> None:
    answer = client.declare(REPLY_TO, durable=False)
    assert (answer.queue, answer.message_count, answer.consumer_count) == (REPLY_TO, 0, 1)
