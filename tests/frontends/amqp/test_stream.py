from __future__ import annotations

import datetime
import pathlib

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Node, Talk, made


def stream(node: Node, q: str, count: int = 0, **arguments: object) -> Talk:
    client = node.open()
    client.declare(q, queue_type="stream", **arguments)  # type: ignore[arg-type]
    client.confirms()
    for k in range(count):
        client.publish("", q, b"%d" % k, delivery_mode=2)
    while count and client.hear(commands.Basic.Ack).delivery_tag < count:
        pass
    return client


def reader(node: Node, q: str, prefetch: int = 100, **arguments: object) -> Talk:
    client = node.open()
    client.qos(prefetch)
    client.consume(q, "c", **arguments)
    return client


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
FUTURE = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("offset", "expected"), [("first", 0), ("last", 9), (4, 4), (0, 0), ("7D", 0), (PAST, 0)],
                         ids=["first", "last", "number", "zero", "interval", "timestamp"])
def test_where_a_reader_begins(node: Node, q: str, offset: object, expected: int) -> None:
    stream(node, q, 10)
    client = reader(node, q, stream_offset=offset)
    for k in range(expected, 10):
        message = client.delivery()
        assert (message.body, message.headers["x-stream-offset"]) == (b"%d" % k, k)
        assert not message.method.redelivered


@pytest.mark.parametrize("offset", ["next", None, 1_000_000, FUTURE], ids=["next", "nothing", "beyond", "future"])
def test_readers_of_what_is_to_come(node: Node, q: str, offset: object) -> None:
    publisher = stream(node, q, 3)
    client = reader(node, q, **({} if offset is None else {"stream_offset": offset}))
    publisher.publish("", q, b"new", delivery_mode=2)
    message = client.delivery()
    assert (message.body, message.headers["x-stream-offset"]) == (b"new", 3)


def test_credit_is_the_prefetch(node: Node, q: str) -> None:
    stream(node, q, 10)
    client = reader(node, q, 3, stream_offset="first")
    assert client.deliveries(3) == [b"0", b"1", b"2"]
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []
    client.ack(2, True)
    assert client.deliveries(2) == [b"3", b"4"]
    client.nack(3, requeue=True)                # nothing is ever given back to a stream: this only makes room
    client.say(commands.Basic.Reject(4, False))
    assert client.deliveries(2) == [b"5", b"6"]
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []


def test_the_channels_prefetch_counts_too(node: Node, q: str) -> None:
    stream(node, q, 10)
    client = node.open()
    client.qos(2, whole=True)
    client.consume(q, stream_offset="first")
    assert client.deliveries(2) == [b"0", b"1"]
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []
    client.ack(1)
    assert client.deliveries(1) == [b"2"]


def test_everybody_reads_everything_again_and_again(node: Node, q: str) -> None:
    stream(node, q, 5)
    for _ in range(2):
        first, second = reader(node, q, stream_offset="first"), reader(node, q, stream_offset="first")
        for client in (first, second):
            assert client.deliveries(5) == [b"0", b"1", b"2", b"3", b"4"]
            client.ack(0, True)
            client.leave()


def test_several_partitions_are_merged(node: Node, q: str) -> None:
    publisher = stream(node, q, 0, partitions=4)
    publisher.exchange(q, "fanout")
    publisher.bind(q, q)
    for k in range(40):
        publisher.publish(q, f"key{k % 8}", b"%d" % k, delivery_mode=2)
    client = reader(node, q, 5, stream_offset="first")
    found: dict[int, list[int]] = {}
    bodies = []
    for _ in range(40):
        message = client.delivery()
        found.setdefault(message.headers["x-stream-partition"], []).append(message.headers["x-stream-offset"])
        bodies.append(int(message.body))
        client.ack(message.method.delivery_tag)
    assert sorted(bodies) == list(range(40))
    assert len(found) > 1
    assert all(offsets == list(range(len(offsets))) for offsets in found.values())
    for k in range(8):
        assert [body for body in bodies if body % 8 == k] == list(range(k, 40, 8))          # in order by key


def test_headers_that_were_there_stay(node: Node, q: str) -> None:
    publisher = stream(node, q)
    publisher.publish("", q, b"x", delivery_mode=2, headers={"a": 1}, content_type="text/plain", content_encoding="utf-8", message_id="m")
    message = reader(node, q, stream_offset="first").delivery()
    assert message.headers == {"a": 1, "x-stream-offset": 0}
    assert (message.properties.content_type, message.properties.content_encoding, message.properties.message_id) == ("text/plain", "utf-8", "m")


def test_a_filter_is_ignored(node: Node, q: str) -> None:
    stream(node, q, 2)
    assert reader(node, q, stream_offset="first", stream_filter="a").deliveries(2) == [b"0", b"1"]


def test_cancel_and_delete(node: Node, q: str) -> None:
    publisher = stream(node, q, 1)
    client = reader(node, q, stream_offset="first")
    client.delivery()
    client.ask(commands.Basic.Cancel("c"), commands.Basic.CancelOk)
    publisher.publish("", q, b"unseen", delivery_mode=2)
    client.ack(1)
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []
    other = reader(node, q, stream_offset="next")
    publisher.ask(made(commands.Queue.Delete, queue=q), commands.Queue.DeleteOk)
    assert other.hear(commands.Basic.Cancel).consumer_tag == "c"
    with pytest.raises(Closed, match="404"):
        other.consume(q)


def test_what_a_declaration_tells(node: Node, q: str) -> None:
    client = stream(node, q, 3)
    reader(node, q, stream_offset="first")
    answer = client.declare(q, passive=True)
    assert (answer.message_count, answer.consumer_count) == (3, 1)
    with pytest.raises(Closed, match="406"):
        client.declare(q)


def test_offsets_and_messages_outlive_a_restart(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        stream(node, q, 5)
        node.stop()
        node.start()
        client = reader(node, q, stream_offset=3)
        assert [(message.body, message.headers["x-stream-offset"]) for message in (client.delivery(), client.delivery())] == [(b"3", 3), (b"4", 4)]


def test_retention_reaches_the_log(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        client = stream(node, q, 0, max_length_bytes=20_000, stream_max_segment_size_bytes=5_000, max_age="7D")
        node.call(node.node.upkeep.sweep)       # from here on its segments are small
        for k in range(100):
            client.publish("", q, b"%03d" % k + b"." * 1_000, delivery_mode=2)
            client.hear(commands.Basic.Ack)
        node.call(node.node.upkeep.sweep)
        message = reader(node, q, stream_offset="first").delivery()
        assert message.headers["x-stream-offset"] > 50
        partition = node.call(lambda: node.broker.topics[node.broker.catalog.destination("/", q).id][0])
        assert node.call(lambda: sum(segment.size for segment in partition.log.segments())) <= 26_000


def test_a_slow_reader_is_fed_later(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path, ["limits.connection.consumer_buffer_bytes=8192"]) as node:
        client = stream(node, q)
        for k in range(50):
            client.publish("", q, b"%02d" % k + b"." * 4_000, delivery_mode=2)
        late = reader(node, q, 1_000, stream_offset="first")
        assert [body[:2] for body in late.deliveries(50)] == [b"%02d" % k for k in range(50)]
