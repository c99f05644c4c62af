from __future__ import annotations

import pathlib

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Node, Talk, made
from trilogue.core.broker import Unused


def exists(node: Node, q: str) -> bool:
    try:
        node.open().declare(q, passive=True)
    except Closed as error:
        assert error.code == 404
        return False
    return True


# ------------------------------------------------------------------------------------------------ names

def test_server_named_queues(client: Talk) -> None:
    names = {client.declare("", durable=False, exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)


def test_an_empty_name_is_the_last_declared(client: Talk, q: str) -> None:
    client.declare(q)
    client.bind("", "amq.direct")                               # with its own name as the key
    client.publish("amq.direct", q, b"1")
    client.publish("", q, b"2")
    client.sync()
    assert client.declare("", passive=True).message_count == 2
    message = client.get("")
    assert message is not None and message.body == b"1"
    assert client.consume("")
    assert client.deliveries(1) == [b"2"]
    assert client.ask(commands.Queue.Purge(queue=""), commands.Queue.PurgeOk).message_count == 0
    client.ask(commands.Queue.Delete(queue=""), commands.Queue.DeleteOk)
    with pytest.raises(Closed, match="404"):
        client.declare(q, passive=True)


def test_names_may_have_any_character(client: Talk, q: str) -> None:
    name = "q / ü \x01 " + "x" * 200
    assert client.declare(name).queue == name
    client.exchange(name, "fanout")
    client.bind(name, name, "k y")
    client.publish(name, "k y", b"x")
    message = client.get(name)
    assert message is not None and (message.method.exchange, message.method.routing_key) == (name, "k y")
    client.ask(made(commands.Queue.Unbind, queue=name, exchange=name, routing_key="k y"), commands.Queue.UnbindOk)
    client.publish(name, "k y", b"x", mandatory=True)
    assert client.hear(commands.Basic.Return).method.exchange == name


# ------------------------------------------------------------------------------------------------ lives

def test_an_exclusive_queue_is_its_connections(node: Node, q: str) -> None:
    owner, other = node.open(), node.open()
    owner.declare(q, durable=False, exclusive=True)
    owner.channel(2).publish("", q, b"x", channel=2)
    for act in (lambda: other.declare(q, passive=True), lambda: other.declare(q, durable=False, exclusive=True), lambda: other.consume(q),
                lambda: other.get(q), lambda: other.bind(q, "amq.direct", "k"),
                lambda: other.ask(made(commands.Queue.Purge, queue=q), commands.Queue.PurgeOk),
                lambda: other.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk)):
        with pytest.raises(Closed, match="405 RESOURCE_LOCKED"):
            act()
        other.channel()
    other.publish("", q, b"y")                                  # anybody may publish
    other.sync()
    assert owner.declare(q, durable=False, exclusive=True).message_count == 2
    owner.leave()
    node.until(lambda: node.broker.catalog.find_destination("/", q) is None)


def test_an_auto_delete_queue_goes_with_its_last_consumer(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q, auto_delete=True)
    assert client.get(q) is None
    assert exists(node, q)                                      # nobody ever consumed
    client.consume(q, "a")
    client.channel(2).consume(q, "b", channel=2)
    client.ask(commands.Basic.Cancel("a"), commands.Basic.CancelOk)
    assert exists(node, q)
    client.ask(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk, 2)
    assert not exists(node, q)


def test_an_auto_delete_exchange_goes_with_its_last_binding(client: Talk, q: str) -> None:
    client.declare(q)
    client.exchange(q + "-2", "fanout", auto_delete=True)
    client.exchange(q, "fanout", auto_delete=True)
    client.exchange(q, passive=True)                            # nothing was ever bound
    client.bind(q, q)
    client.ask(made(commands.Exchange.Bind, destination=q, source=q + "-2"), commands.Exchange.BindOk)
    client.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk)
    for name in (q, q + "-2"):                                  # the second went with the first
        with pytest.raises(Closed, match="404"):
            client.exchange(name, passive=True)
        client.channel()


def test_transient_things_go_with_the_broker(tmp_path: pathlib.Path) -> None:
    with Node(tmp_path) as node:
        client = node.open()
        client.declare("transient", durable=False)
        client.declare("durable")
        client.exchange("x", durable=False)
        client.publish("", "durable", b"kept", delivery_mode=2)
        client.sync()
        node.stop()
        node.start()
        assert not exists(node, "transient")
        assert node.open().declare("durable", passive=True).message_count == 1


def test_a_queue_that_nobody_uses_expires(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q, expires=3_600_000)
    client.publish("", q, b"does not matter")
    client.consume(q, "c")
    client.delivery()
    queue = node.queue(q)

    def later() -> None:
        queue.used_ms = 0
        Unused(node.broker, queue).fire()

    node.call(later)
    assert exists(node, q)                                      # somebody consumes
    client.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    node.call(later)
    assert not exists(node, q)


# ------------------------------------------------------------------------------------------------ declarations

def test_counts(client: Talk, q: str) -> None:
    client.declare(q)
    client.publish("", q)
    client.publish("", q)
    client.qos(1)
    client.consume(q)
    client.delivery()
    answer = client.declare(q)
    assert (answer.message_count, answer.consumer_count) == (1, 1)
    assert client.ask(made(commands.Queue.Purge, queue=q), commands.Queue.PurgeOk).message_count == 1
    assert client.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk).message_count == 1


def test_nowait_gets_no_answer(client: Talk, q: str) -> None:
    client.say(made(commands.Queue.Declare, queue=q, durable=True, nowait=True))
    client.say(made(commands.Exchange.Declare, exchange=q, nowait=True))
    client.say(made(commands.Queue.Bind, queue=q, exchange=q, routing_key="k", nowait=True))
    client.say(made(commands.Basic.Consume, queue=q, consumer_tag="c", no_ack=True, nowait=True))
    client.publish(q, "k", b"x")
    assert client.deliveries(1) == [b"x"]
    client.say(commands.Basic.Cancel("c", True))
    client.say(made(commands.Queue.Purge, queue=q, nowait=True))
    client.say(made(commands.Queue.Delete, queue=q, nowait=True))
    client.say(made(commands.Exchange.Delete, exchange=q, nowait=True))
    client.sync()
    assert client.waiting == []


def test_exchanges_bound_to_exchanges(client: Talk, q: str) -> None:
    client.declare(q)
    client.exchange(q, "topic")
    client.exchange(q + "-in", "fanout", internal=True)
    client.bind(q, q + "-in")
    client.ask(made(commands.Exchange.Bind, destination=q + "-in", source=q, routing_key="a.*"), commands.Exchange.BindOk)
    client.publish(q, "a.b", b"1")
    client.publish(q, "c.d", b"2")
    client.ask(made(commands.Exchange.Unbind, destination=q + "-in", source=q, routing_key="a.*"), commands.Exchange.UnbindOk)
    client.publish(q, "a.b", b"3")
    client.consume(q, no_ack=True)
    assert client.deliveries(1) == [b"1"]
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-random", "x-local-random"])
def test_exchanges_that_spread(client: Talk, q: str, kind: str) -> None:
    client.exchange(q, kind)
    for k in range(2):
        client.declare(f"{q}{k}")
        client.bind(f"{q}{k}", q, "1")
    client.socket.sendall(b"".join(client.publish_frames(q, f"key{k}", b"x") for k in range(200)))
    client.sync()
    counts = [client.declare(f"{q}{k}", passive=True).message_count for k in range(2)]
    assert sum(counts) == 200
    assert min(counts) > 20


def test_policies_follow_names(node: Node, q: str) -> None:
    client = node.open()
    name = "by-policy-" + q
    client.declare(name)
    for k in range(5):
        client.publish("", name, b"%d" % k)
    client.sync()
    node.administer("plan_policy", "/", "short", "^by-policy-", {"max-length": 2}, "queues", 1)
    assert client.declare(name, passive=True).message_count == 2
    node.administer("plan_policy", "/", "shorter", "^by-policy-", {"max-length": 1}, "queues", 2)
    assert client.declare(name, passive=True).message_count == 1
    node.administer("plan_delete_policy", "/", "short")
    node.administer("plan_delete_policy", "/", "shorter")
    for k in range(5):
        client.publish("", name, b"%d" % k)
    client.sync()
    assert client.declare(name).message_count == 6               # and need not be repeated in a declaration
    node.administer("plan_policy", "/", "ae", "^by-policy-x", {"alternate-exchange": "amq.fanout"}, "exchanges")
    client.exchange("by-policy-x")
    client.bind(name, "amq.fanout")
    client.publish("by-policy-x", "nowhere", mandatory=True)
    client.sync()
    assert client.heard(commands.Basic.Return) == []
    node.administer("plan_delete_policy", "/", "ae")


def test_permissions(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q)
    client.exchange(q)
    node.user("reader", configure="^$", write="^$", read=".*")
    for act in (lambda c: c.declare(q + "-2"), lambda c: c.exchange(q + "-2"), lambda c: c.bind(q, q, "k"), lambda c: (c.publish(q, "k"), c.sync()),
                lambda c: c.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk)):
        with pytest.raises(Closed, match=r"403 ACCESS_REFUSED - (configure|write) access to (queue|exchange) '.*' in vhost '/' refused for user"):
            act(node.open(user="reader", password="reader"))
    node.open(user="reader", password="reader").consume(q)


# ------------------------------------------------------------------------------------------------ the disk

def test_publishers_are_told_when_they_are_not_read(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        client, silent, consumer = node.open().confirms(), node.open(capabilities={}), node.open()
        client.declare(q)
        consumer.consume(q, no_ack=True)
        node.call(node.broker.flusher.block, "low on disk")
        client.publish("", q, b"1", delivery_mode=2)
        silent.publish("", q, b"2", delivery_mode=2)
        assert client.hear(commands.Connection.Blocked, 0).reason == "low on disk"
        assert sorted(consumer.deliveries(2)) == [b"1", b"2"]    # consumers go on
        client.publish("", q, b"3", delivery_mode=2)
        node.until(lambda: not any(session.reading for session in node.node.frontends["amqp"].peers if session.holds))
        consumer.sync()
        assert consumer.heard(commands.Connection.Blocked) == []
        node.call(node.broker.flusher.unblock)
        client.hear(commands.Connection.Unblocked, 0)
        assert consumer.deliveries(1) == [b"3"]
        silent.sync()
        assert silent.heard(commands.Connection.Blocked) == []


def test_a_shutdown_is_announced(tmp_path: pathlib.Path) -> None:
    with Node(tmp_path) as node:
        client = node.open()
        node.talks = []                                          # it stays
        node.stop()
        error = client.closed(0)
        assert (error.code, error.text) == (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
