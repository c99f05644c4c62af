from __future__ import annotations

import pathlib

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Message, Node, Talk, made


def filled(client: Talk, q: str, count: int, **arguments: object) -> None:
    client.declare(q, **arguments)  # type: ignore[arg-type]
    for k in range(count):
        client.publish("", q, b"%d" % k)
    client.sync()


def told(message: Message) -> tuple[bytes, bool, int]:
    return message.body, message.method.redelivered, message.method.delivery_tag


def nothing_more(client: Talk, channel: int = 1) -> bool:
    client.sync(channel)
    return not client.heard(commands.Basic.Deliver)


# ------------------------------------------------------------------------------------------------ prefetch

def test_prefetch_is_each_new_consumers(client: Talk, q: str) -> None:
    filled(client, q, 20)
    client.qos(2)
    client.consume(q, "a")
    client.qos(3)
    client.consume(q, "b")
    found = [client.delivery() for _ in range(5)]
    assert nothing_more(client)
    assert sorted(message.method.consumer_tag for message in found) == ["a", "a", "b", "b", "b"]
    client.ack(found[0].method.delivery_tag)
    assert client.delivery().method.consumer_tag == "a"
    assert nothing_more(client)


def test_prefetch_of_the_whole_channel(client: Talk, q: str) -> None:
    filled(client, q, 20)
    client.qos(3, whole=True)
    client.consume(q, "a")
    client.consume(q, "b")
    assert len(client.deliveries(3)) == 3
    assert nothing_more(client)
    client.ack(2, True)
    assert len(client.deliveries(2)) == 2
    assert nothing_more(client)
    client.qos(0, whole=True)                       # none: everything comes
    assert len(client.deliveries(15)) == 15


def test_get_does_not_count(client: Talk, q: str) -> None:
    filled(client, q, 3)
    client.qos(1)
    client.consume(q)
    client.delivery()
    message = client.get(q)
    assert message is not None and (message.body, message.method.message_count) == (b"1", 1)


def test_flow_stops_deliveries(client: Talk, q: str) -> None:
    client.declare(q)
    client.consume(q, no_ack=True)
    assert client.ask(commands.Channel.Flow(False), commands.Channel.FlowOk).active is False
    client.publish("", q, b"x")
    client.channel(2).sync(2)
    assert client.heard(commands.Basic.Deliver) == []
    client.ask(commands.Channel.Flow(True), commands.Channel.FlowOk)
    assert client.deliveries(1) == [b"x"]


# ------------------------------------------------------------------------------------------------ who gets what

def test_priority_goes_first(client: Talk, q: str) -> None:
    client.declare(q)
    client.qos(2)
    client.consume(q, "low", priority=-1)
    client.consume(q, "none")
    client.consume(q, "high", priority=10)
    for k in range(5):
        client.publish("", q, b"%d" % k)
    tags = [client.delivery().method.consumer_tag for _ in range(5)]
    assert tags == ["high", "high", "none", "none", "low"]


def test_a_single_active_consumer_hands_over(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q, single_active_consumer=True)
    client.qos(1)
    client.consume(q, "first")
    client.consume(q, "second")
    for k in range(4):
        client.publish("", q, b"%d" % k)
    for k in range(2):
        message = client.delivery()
        assert (message.body, message.method.consumer_tag) == (b"%d" % k, "first")
        client.ack(message.method.delivery_tag)
    client.delivery()
    client.ask(commands.Basic.Cancel("first"), commands.Basic.CancelOk)
    message = client.delivery()
    assert (message.body, message.method.consumer_tag) == (b"3", "second")


def test_an_exclusive_consumer_lets_go(node: Node, q: str) -> None:
    first, second = node.open(), node.open()
    first.declare(q)
    first.consume(q, "c", exclusive=True)
    with pytest.raises(Closed, match="403"):
        second.consume(q)
    first.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    second.channel(2).consume(q, channel=2)


# ------------------------------------------------------------------------------------------------ answers

def test_what_is_returned_goes_back_to_its_place(client: Talk, q: str) -> None:
    filled(client, q, 5)
    client.qos(3)
    client.consume(q, "c")
    assert client.deliveries(3) == [b"0", b"1", b"2"]
    client.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    client.nack(2)                                              # cancelled, but still its own
    client.ack(1)
    client.say(commands.Basic.Reject(3, True))
    client.consume(q, "d")
    found = [client.delivery() for _ in range(3)]
    assert [(message.body, message.method.redelivered) for message in found] == [(b"1", True), (b"2", True), (b"3", False)]
    assert "x-delivery-count" not in found[0].headers


def test_only_quorum_queues_count_deliveries(client: Talk, q: str) -> None:
    client.declare(q, queue_type="quorum")
    client.publish("", q, b"x", headers={"a": 1})
    client.consume(q)
    assert client.delivery().headers == {"a": 1}
    client.nack(1)
    again = client.delivery()
    assert (again.headers, again.method.redelivered) == ({"a": 1, "x-delivery-count": 1}, True)
    client.nack(2)
    assert client.delivery().headers["x-delivery-count"] == 2


def test_a_delivery_limit_ends_it(client: Talk, q: str) -> None:
    client.declare(q + "-dlq")
    client.declare(q, queue_type="quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key=q + "-dlq")
    client.publish("", q, b"x")
    client.consume(q, "c")
    for _ in range(3):
        client.nack(client.delivery().method.delivery_tag)
    client.consume(q + "-dlq", "d")
    message = client.delivery()
    assert (message.method.consumer_tag, message.headers["x-first-death-reason"]) == ("d", "delivery_limit")


def test_nack_of_everything(client: Talk, q: str) -> None:
    filled(client, q, 4)
    client.consume(q, "c")
    client.deliveries(4)
    client.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    client.nack(2, multiple=True, requeue=False)
    client.nack(0, multiple=True)
    client.sync()
    assert client.declare(q, passive=True).message_count == 2


def test_recover_brings_everything_back(client: Talk, q: str) -> None:
    filled(client, q, 3)
    client.consume(q)
    client.deliveries(3)
    client.ask(commands.Basic.Recover(True), commands.Basic.RecoverOk)
    found = [client.delivery() for _ in range(3)]
    assert [told(message) for message in found] == [(b"0", True, 4), (b"1", True, 5), (b"2", True, 6)]
    client.say(made(commands.Basic.RecoverAsync, requeue=True))
    assert client.deliveries(3) == [b"0", b"1", b"2"]


def test_a_closed_channel_gives_back(node: Node, q: str) -> None:
    client = node.open()
    filled(client, q, 3)
    client.consume(q)
    client.deliveries(3)
    client.ask(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    client.channel().consume(q)
    found = [client.delivery() for _ in range(3)]
    assert [told(message) for message in found] == [(b"0", True, 1), (b"1", True, 2), (b"2", True, 3)]


def test_consumers_are_counted_and_given_back(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path, ["limits.connection.consumers_max=2"]) as node:
        client = node.open()
        client.declare(q)
        for _ in range(3):                                      # by cancel, by close, by deletion of the queue
            client.consume(q, "a")
            client.consume(q, "b")
            client.ask(commands.Basic.Cancel("a"), commands.Basic.CancelOk)
            client.consume(q, "c")
            client.ask(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
            client.channel()
        client.consume(q, "a")
        client.consume(q, "b")
        client.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk)
        client.declare(q)
        client.consume(q, "c")
        client.consume(q, "d")
        with pytest.raises(Closed, match=r"406.*consumers"):
            client.consume(q, "e")


# ------------------------------------------------------------------------------------------------ cancel, delete, get

def test_a_deleted_queue_cancels_its_consumers(node: Node, q: str) -> None:
    client, other = node.open(), node.open(capabilities={})
    filled(client, q, 2)
    client.qos(1)
    client.consume(q, "c")
    client.delivery()
    other.qos(1)
    other.consume(q, "o")
    other.delivery()
    assert client.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk).message_count == 2
    assert client.hear(commands.Basic.Cancel).consumer_tag == "c"
    client.ack(1)                                               # nobody minds
    client.sync()
    other.nack(1)
    other.sync()
    assert other.heard(commands.Basic.Cancel) == []             # it did not say that it wants to know
    client.declare(q)
    client.consume(q, "c")                                      # the tag is free again


def test_get(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q)
    assert client.get(q) is None
    client.publish("", q, b"x", content_type="t")
    message = client.get(q)
    assert message is not None
    assert (message.body, message.method.redelivered, message.method.routing_key, message.properties.content_type) == (b"x", False, q, "t")
    assert client.get(q) is None
    client.nack(message.method.delivery_tag)
    again = client.get(q, no_ack=True)
    assert again is not None and again.method.redelivered
    client.publish("", q, b"gone", expiration="1")
    node.until(lambda: node.queue(q).ready() == 0)
    assert client.get(q) is None
    client.declare(q + "-mine", exclusive=True, durable=False)
    with pytest.raises(Closed, match="405"):
        node.open().get(q + "-mine")


def test_get_needs_permission(node: Node, q: str) -> None:
    node.open().declare(q)
    node.user("writer", read="^$")
    with pytest.raises(Closed, match="403 ACCESS_REFUSED - read access"):
        node.open(user="writer", password="writer").get(q)
    with pytest.raises(Closed, match="403 ACCESS_REFUSED - read access"):
        node.open(user="writer", password="writer").consume(q)
