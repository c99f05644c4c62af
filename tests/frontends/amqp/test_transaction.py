from __future__ import annotations

import pathlib

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Node, Talk


def transactional(node: Node, q: str) -> Talk:
    client = node.open()
    client.declare(q)
    client.ask(commands.Tx.Select(), commands.Tx.SelectOk)
    return client


def commit(client: Talk) -> None:
    client.ask(commands.Tx.Commit(), commands.Tx.CommitOk)


def count(client: Talk, q: str) -> int:
    return int(client.declare(q, passive=True).message_count)


def test_publishes_appear_with_the_commit(node: Node, q: str) -> None:
    client = transactional(node, q)
    for k in range(3):
        client.publish("", q, b"%d" % k, delivery_mode=2)
    assert count(client, q) == 0
    commit(client)
    assert count(client, q) == 3
    client.publish("", q, b"never")
    client.ask(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    commit(client)
    assert count(client, q) == 3


def test_mandatory_comes_back_with_the_commit(node: Node, q: str) -> None:
    client = transactional(node, q)
    client.publish("", "nowhere", b"x", mandatory=True)
    client.sync()
    assert client.heard(commands.Basic.Return) == []
    commit(client)
    assert len(client.heard(commands.Basic.Return)) == 1        # before the commit's answer


def test_a_hopeless_publish_fails_at_once(node: Node, q: str) -> None:
    client = transactional(node, q)
    client.publish("missing", "k")
    assert client.closed().code == 404


def test_acknowledgements_count_with_the_commit(node: Node, q: str) -> None:
    client = transactional(node, q)
    for k in range(6):
        client.publish("", q, b"%d" % k)
    commit(client)
    client.qos(6)
    client.consume(q, "c")
    client.deliveries(6)
    client.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    client.ack(1)
    client.nack(2)
    client.nack(3, requeue=False)
    client.sync()
    assert node.call(lambda: (node.queue(q).ready(), node.queue(q).waiting())) == (0, 6)
    commit(client)
    assert node.call(lambda: (node.queue(q).ready(), node.queue(q).waiting())) == (1, 4)
    client.ack(4)
    client.say(commands.Basic.Ack(6, True))
    client.ask(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.ack(6)                                               # not redelivered, and can be acknowledged again
    client.ack(4)
    commit(client)
    assert node.call(lambda: node.queue(q).waiting()) == 2
    client.ack(4)
    assert client.closed().code == 406


def test_a_tag_counts_once(node: Node, q: str) -> None:
    client = transactional(node, q)
    client.publish("", q)
    commit(client)
    client.consume(q)
    client.delivery()
    client.ack(1)
    client.ack(1)
    assert client.closed().text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert node.call(lambda: node.queue(q).ready()) == 1        # nothing was committed


def test_the_prefetch_waits_for_the_commit(node: Node, q: str) -> None:
    client = transactional(node, q)
    for k in range(4):
        client.publish("", q, b"%d" % k)
    commit(client)
    client.channel(2)
    for whole in (False, True):
        client.qos(1, whole)
    client.consume(q)
    client.delivery()
    client.ack(1)
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []
    commit(client)
    assert client.deliveries(1) == [b"1"]


def test_a_commit_is_one_batch(node: Node, q: str) -> None:
    """Publishes and acknowledgements in one shard: all of them in one round, or none."""
    client = transactional(node, q)
    client.publish("", q, b"in", delivery_mode=2)
    commit(client)
    client.consume(q)
    client.delivery()
    client.ack(1)
    for k in range(5):
        client.publish("", q, b"%d" % k, delivery_mode=2)
    client.ask(commands.Channel.Flow(False), commands.Channel.FlowOk)
    shard = node.call(lambda: node.broker.shard_of(node.broker.catalog.destination("/", q).id))
    before = node.call(lambda: len(shard.log.read(0, 1 << 30)))
    commit(client)
    assert node.call(lambda: len(shard.log.read(0, 1 << 30))) == before + 1


def test_a_commit_of_acknowledgements_is_on_disk(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        client = transactional(node, q)
        client.publish("", q, b"x", delivery_mode=2)
        commit(client)
        client.consume(q)
        client.delivery()
        client.ack(1)
        commit(client)
        shard = node.call(lambda: node.broker.shard_of(node.broker.catalog.destination("/", q).id))
        assert node.call(lambda: (shard.queues[int(node.queue(q).id)].lanes[0].chain.floor, shard.count)) == (1, 0)
        assert node.call(lambda: int(shard.log.synced_offset()) == int(shard.next))


def test_a_lost_transaction_gives_back(node: Node, q: str) -> None:
    client = transactional(node, q)
    client.publish("", q)
    commit(client)
    client.consume(q)
    client.delivery()
    client.ack(1)
    client.publish("", q, b"never")
    client.sync()
    client.leave()
    node.until(lambda: node.queue(q).ready() == 1 and not node.queue(q).consumers)


def test_select_twice_is_once(node: Node, q: str) -> None:
    client = transactional(node, q)
    client.publish("", q)
    client.ask(commands.Tx.Select(), commands.Tx.SelectOk)
    commit(client)
    assert count(client, q) == 1
    with pytest.raises(Closed, match="406"):
        client.confirms()
