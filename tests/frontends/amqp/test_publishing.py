from __future__ import annotations

import pathlib

import pytest
from pamqp import commands

from tests.frontends.amqp.talk import Closed, Node, Talk


def settled(client: Talk, count: int, channel: int = 1) -> tuple[set[int], set[int]]:
    """(acked, nacked) tags, once `count` publishes are answered for."""
    acked: set[int] = set()
    nacked: set[int] = set()
    while len(acked | nacked) < count:
        answer = client.hear((commands.Basic.Ack, commands.Basic.Nack), channel)  # type: ignore[arg-type]
        tags = range(1, answer.delivery_tag + 1) if answer.multiple else [answer.delivery_tag]
        fresh = set(tags) - acked - nacked
        assert fresh, "a tag was answered for twice"
        (acked if isinstance(answer, commands.Basic.Ack) else nacked).update(fresh)
    return acked, nacked


# ------------------------------------------------------------------------------------------------ confirms and returns

def test_confirms_are_complete_and_tell_no_tag_twice(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.declare(q)
    client.socket.sendall(b"".join(client.publish_frames("", q, b"x", delivery_mode=1 + k % 2) for k in range(200)))
    assert settled(client, 200) == (set(range(1, 201)), set())


def test_a_transient_message_is_confirmed_before_the_disk(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.declare(q)
    client.socket.sendall(client.publish_frames("", q, b"persistent", delivery_mode=2) + client.publish_frames("", q, b"transient", delivery_mode=1))
    first, second = client.hear(commands.Basic.Ack), client.hear(commands.Basic.Ack)
    assert (first.delivery_tag, first.multiple) == (2, False)
    assert second.delivery_tag == 1 or second.multiple


def test_mandatory_and_nobody_there(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.exchange(q, "direct")
    client.publish(q, "nowhere", b"back", mandatory=True, message_id="m")
    _, first = client.next()
    assert isinstance(first, commands.Basic.Return)             # before the confirm
    returned = client.with_content(first)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key, returned.body, returned.properties.message_id) == (q, "nowhere", b"back", "m")
    assert client.hear(commands.Basic.Ack).delivery_tag == 1
    client.publish(q, "nowhere", b"gone")                       # not mandatory: confirmed all the same
    assert client.hear(commands.Basic.Ack).delivery_tag == 2
    assert client.heard(commands.Basic.Return) == []


def test_an_alternate_exchange_counts_as_a_route(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.exchange(q + "-other", "fanout")
    client.exchange(q, arguments={"alternate-exchange": q + "-other"})
    client.publish(q, "nowhere", b"1", mandatory=True)
    assert client.hear(commands.Basic.Return).body == b"1"      # nobody is bound there either
    client.declare(q)
    client.bind(q, q + "-other")
    client.publish(q, "nowhere", b"2", mandatory=True)
    settled(client, 2)
    assert client.heard(commands.Basic.Return) == []
    message = client.get(q)
    assert message is not None and (message.body, message.method.exchange, message.method.routing_key) == (b"2", q, "nowhere")


def test_alternate_exchanges_may_go_in_circles(client: Talk, q: str) -> None:
    client.exchange(q, arguments={"alternate-exchange": q + "-2"})
    client.exchange(q + "-2", arguments={"alternate-exchange": q})
    client.publish(q, "nowhere", mandatory=True)
    client.hear(commands.Basic.Return)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses(node: Node, q: str, overflow: str, mode: int) -> None:
    client = node.open().confirms()
    client.declare(q + "-dlq")
    client.declare(q + "-copy")
    client.declare(q, max_length=2, overflow=overflow, dead_letter_exchange="", dead_letter_routing_key=q + "-dlq")
    client.exchange(q, "fanout")
    for queue in (q, q + "-copy"):
        client.bind(queue, q)
    client.socket.sendall(b"".join(client.publish_frames(q, "", b"%d" % k, delivery_mode=mode) for k in range(5)))
    assert settled(client, 5) == ({1, 2}, {3, 4, 5})
    client.sync()
    assert client.heard(commands.Basic.Ack) == []
    assert client.declare(q, passive=True).message_count == 2
    assert client.declare(q + "-copy", passive=True).message_count == 5         # others take it all the same
    letters = client.declare(q + "-dlq", passive=True).message_count
    assert letters == (3 if overflow == "reject-publish-dlx" else 0)
    if letters:
        message = client.get(q + "-dlq")
        assert message is not None and message.body == b"2"
        assert (message.headers["x-first-death-reason"], message.headers["x-first-death-queue"]) == ("maxlen", q)


def test_what_is_refused_is_not_confirmed_as_well(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.declare(q, max_length=0, overflow="reject-publish")
    client.declare(q + "-2")
    client.publish("", q, b"x", delivery_mode=2)
    client.hear(commands.Basic.Nack)
    client.publish("", q + "-2", b"x", delivery_mode=2)
    answer = client.hear(commands.Basic.Ack)
    assert answer.delivery_tag == 2
    assert client.heard(commands.Basic.Ack) == client.heard(commands.Basic.Nack) == []


def test_bodies_in_many_frames(node: Node, q: str) -> None:
    client = node.open(frame_max=4_096)
    client.declare(q)
    content = bytes(range(256)) * 100
    client.publish("", q, content, delivery_mode=2)
    small = client.get(q, no_ack=True)
    assert small is not None and small.body == content
    client.publish("", q, content)
    large = node.open().get(q, no_ack=True)
    assert large is not None and large.body == content


# ------------------------------------------------------------------------------------------------ properties

def test_cc_and_bcc(client: Talk, q: str) -> None:
    names = [f"{q}-{k}" for k in range(4)]
    for name in names:
        client.declare(name)
    client.publish("", names[0], b"x", headers={"CC": [names[1], names[0], names[1]], "BCC": [names[2], names[1]], "a": 1})
    for name in names[:3]:
        message = client.get(name)
        assert message is not None
        assert message.headers == {"CC": [names[1], names[0], names[1]], "a": 1}
        assert message.method.message_count == 0                # once each
        assert message.method.routing_key == names[0]
    assert client.get(names[3]) is None


def test_cc_saves_a_mandatory_message(client: Talk, q: str) -> None:
    client.declare(q)
    client.publish("", "nowhere", mandatory=True, headers={"CC": [q]})
    client.sync()
    assert client.heard(commands.Basic.Return) == []
    client.publish("", "nowhere", mandatory=True, headers={"CC": ["neither"]})
    client.hear(commands.Basic.Return)


def test_the_user_id_must_be_right_or_an_impersonators(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q)
    client.publish("", q, b"mine", user_id="guest")
    message = client.get(q)
    assert message is not None and message.properties.user_id == "guest"
    node.user("actor", ["impersonator"])
    node.open(user="actor", password="actor").publish("", q, b"as guest", user_id="guest")
    node.until(lambda: node.queue(q).ready() == 1)
    client.publish("", q, user_id="actor")
    assert client.closed().code == 406


def test_messages_with_other_headers_take_other_ways(client: Talk, q: str) -> None:
    """Even if they come in one read."""
    client.exchange(q, "headers")
    for name in ("a", "b"):
        client.declare(f"{q}-{name}")
        client.bind(f"{q}-{name}", q, arguments={"x-match": "all", "to": name})
    client.socket.sendall(b"".join(client.publish_frames(q, "", b"%d" % k, headers={"to": "ab"[k % 2]}) for k in range(10)))
    client.consume(f"{q}-a", "a", no_ack=True)
    assert client.deliveries(5) == [b"0", b"2", b"4", b"6", b"8"]
    client.consume(f"{q}-b", "b", no_ack=True)
    assert client.deliveries(5) == [b"1", b"3", b"5", b"7", b"9"]


def test_priorities(client: Talk, q: str) -> None:
    client.declare(q, max_priority=5)
    for k, priority in enumerate([0, 3, 9, 5, 1]):
        client.publish("", q, b"%d" % k, priority=priority)
    client.sync()
    client.consume(q, no_ack=True)
    assert client.deliveries(5) == [b"2", b"3", b"1", b"4", b"0"]      # above the most is the most


def test_the_shorter_lifetime_wins(client: Talk, q: str) -> None:
    client.declare(q + "-dlq")
    client.declare(q, message_ttl=3_600_000, dead_letter_exchange="", dead_letter_routing_key=q + "-dlq")
    client.publish("", q, b"0", expiration="0")
    client.publish("", q, b"20", expiration="20")
    client.consume(q + "-dlq", no_ack=True)
    assert client.deliveries(2) == [b"0", b"20"]
    assert client.get(q) is None


# ------------------------------------------------------------------------------------------------ delayed

def delayed(client: Talk, q: str, kind: str = "direct") -> None:
    client.declare(q)
    client.exchange(q, "x-delayed-message", arguments={"x-delayed-type": kind})
    client.bind(q, q, "#" if kind == "topic" else "k")


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_delayed_messages_come_when_they_are_due(node: Node, q: str, kind: str) -> None:
    client = node.open().confirms()
    delayed(client, q, kind)
    client.publish(q, "k", b"late", headers={"x-delay": 150, "a": 1}, delivery_mode=2)
    client.publish(q, "k", b"early", headers={"x-delay": 20}, delivery_mode=2)
    client.publish(q, "k", b"now", delivery_mode=2)
    client.publish(q, "k", b"at once", headers={"x-delay": 0})
    settled(client, 4)
    client.consume(q, no_ack=True)
    found = [client.delivery() for _ in range(4)]
    assert [message.body for message in found] == [b"now", b"at once", b"early", b"late"]
    assert found[3].headers == {"a": 1, "x-delay": -150}
    assert (found[3].method.exchange, found[3].method.routing_key) == (q, "k")


def test_a_delayed_message_outlives_a_restart(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        client = node.open().confirms()
        delayed(client, q)
        client.publish(q, "k", b"later", headers={"x-delay": 300}, delivery_mode=2)
        settled(client, 1)
        node.stop()
        node.start()
        client = node.open()
        client.consume(q, no_ack=True)
        assert client.deliveries(1) == [b"later"]


def test_a_delayed_message_has_its_other_keys_and_its_lifetime(client: Talk, q: str) -> None:
    delayed(client, q)
    client.declare(q + "-2")
    client.bind(q + "-2", q, "other")
    client.publish(q, "k", b"both", headers={"x-delay": 10, "CC": ["other"]})
    client.consume(q, no_ack=True)
    client.consume(q + "-2", no_ack=True)
    assert client.deliveries(2) == [b"both", b"both"]
    client.declare(q + "-dlq")
    client.declare(q + "-3", dead_letter_exchange="", dead_letter_routing_key=q + "-dlq")
    client.bind(q + "-3", q, "third")
    client.publish(q, "third", b"short", headers={"x-delay": 10}, expiration="10")
    client.consume(q + "-dlq", no_ack=True)
    message = client.delivery()
    assert (message.body, message.headers["x-first-death-reason"]) == (b"short", "expired")


def test_a_delayed_type_must_exist(client: Talk, q: str) -> None:
    with pytest.raises(Closed, match="406"):
        client.exchange(q, "x-delayed-message", arguments={"x-delayed-type": "nonsense"})


# ------------------------------------------------------------------------------------------------ duplicates

def test_duplicates_are_confirmed_and_dropped(node: Node, q: str) -> None:
    client = node.open().confirms()
    client.declare(q, deduplication=True)
    client.declare(q + "-all")
    client.exchange(q, "fanout")
    client.bind(q, q)
    client.bind(q + "-all", q)
    for message_id in ("a", "b", "a", None, None, "b"):
        client.publish(q, "", b"x", delivery_mode=2, **({"message_id": message_id} if message_id else {}))
    assert settled(client, 6) == (set(range(1, 7)), set())
    assert client.declare(q, passive=True, deduplication=True).message_count == 4
    assert client.declare(q + "-all", passive=True).message_count == 6
    client.consume(q, no_ack=True)
    client.deliveries(4)
    client.publish(q, "", b"again", message_id="a")             # consumed is remembered all the same
    settled_more = client.hear(commands.Basic.Ack)
    assert settled_more.delivery_tag == 7
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []


def test_duplicates_by_a_header(client: Talk, q: str) -> None:
    client.declare(q, message_deduplication=True)
    client.declare(q + "-own", deduplication=True, deduplication_header="order")
    for value in (1, 2, 1):
        client.publish("", q, headers={"x-deduplication-header": value}, message_id="same")
        client.publish("", q + "-own", headers={"order": value}, message_id="same")
    client.sync()
    assert client.declare(q, passive=True).message_count == 2
    assert client.declare(q + "-own", passive=True).message_count == 2


def test_duplicates_are_known_after_a_restart(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path) as node:
        client = node.open().confirms()
        client.declare(q, deduplication=True)
        client.publish("", q, b"1", message_id="a", delivery_mode=2)
        settled(client, 1)
        node.stop()
        node.start()
        client = node.open().confirms()
        client.publish("", q, b"2", message_id="a", delivery_mode=2)
        client.publish("", q, b"3", message_id="b", delivery_mode=2)
        settled(client, 2)
        client.consume(q, no_ack=True)
        assert client.deliveries(2) == [b"1", b"3"]
