from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header

from tests.frontends.amqp.talk import Message, Talk
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.frontends.amqp.codec import body_of, make_span, properties_of
from trilogue.frontends.amqp.render import render, with_headers


def cleaned(message: Message) -> list[dict[str, Any]]:
    """x-death without the times."""
    deaths = [dict(entry) for entry in message.headers["x-death"]]
    for entry in deaths:
        assert entry.pop("time").year >= 2023
    return deaths


def summary(message: Message) -> list[str]:
    return [message.headers[f"x-{which}-death-{what}"] for which in ("first", "last") for what in ("queue", "reason", "exchange")]


# ------------------------------------------------------------------------------------------------ dead letters

def test_a_death_is_told_in_full(client: Talk, q: str) -> None:
    client.declare(q + "-dlq")
    client.exchange(q, "fanout")
    client.bind(q + "-dlq", q)
    client.declare(q, dead_letter_exchange=q)
    client.publish("", q, b"x", expiration="1", headers={"a": 1, "x-death": "forged"}, delivery_mode=2, message_id="m")
    client.consume(q + "-dlq", no_ack=True)
    message = client.delivery()
    assert cleaned(message) == [{"count": 1, "reason": "expired", "queue": q, "exchange": "", "routing-keys": [q], "original-expiration": "1"}]
    assert summary(message) == [q, "expired", "", q, "expired", ""]
    assert (message.headers["a"], message.properties.message_id, message.properties.delivery_mode) == (1, "m", 2)
    assert message.properties.expiration is None
    assert (message.method.exchange, message.method.routing_key) == (q, q)


def test_deaths_are_counted_newest_first(client: Talk, q: str) -> None:
    """Back and forth between two queues, rejected in one and expired in the other."""
    client.declare(q, dead_letter_exchange="", dead_letter_routing_key=q + "-wait")
    client.declare(q + "-wait", dead_letter_exchange="", dead_letter_routing_key=q, message_ttl=1)
    client.publish("", q, b"x")
    client.consume(q)
    for _ in range(2):
        client.nack(client.delivery().method.delivery_tag, requeue=False)
    message = client.delivery()
    assert cleaned(message) == [
        {"count": 2, "reason": "expired", "queue": q + "-wait", "exchange": "", "routing-keys": [q + "-wait"]},
        {"count": 2, "reason": "rejected", "queue": q, "exchange": "", "routing-keys": [q]}]
    assert summary(message) == [q, "rejected", "", q + "-wait", "expired", ""]


def test_a_circle_without_a_rejection_ends(client: Talk, q: str) -> None:
    client.declare(q + "-2", dead_letter_exchange="", dead_letter_routing_key=q, message_ttl=1)
    client.declare(q, dead_letter_exchange="", dead_letter_routing_key=q + "-2", message_ttl=1)
    client.declare(q + "-end", dead_letter_exchange="", dead_letter_routing_key=q + "-last", message_ttl=30)
    client.declare(q + "-last")
    client.publish("", q, b"x")
    client.publish("", q + "-end", b"end")
    client.consume(q + "-last", no_ack=True)
    client.delivery()                                           # time enough
    client.sync()
    assert [client.declare(name, passive=True).message_count for name in (q, q + "-2")] == [0, 0]


def test_the_reason_of_a_full_queue(client: Talk, q: str) -> None:
    client.declare(q + "-dlq")
    client.declare(q, max_length=1, dead_letter_exchange="", dead_letter_routing_key=q + "-dlq")
    for k in range(3):
        client.publish("", q, b"%d" % k)
    client.consume(q + "-dlq", no_ack=True)
    found = [client.delivery() for _ in range(2)]
    assert [(message.body, message.headers["x-first-death-reason"]) for message in found] == [(b"0", "maxlen"), (b"1", "maxlen")]


def test_further_keys_of_dead_letters(client: Talk, q: str) -> None:
    """CC counts as long as the queue has no key of its own for its dead letters; then it is gone."""
    client.exchange(q, "direct")
    for k in range(2):
        client.declare(f"{q}-to{k}")
        client.bind(f"{q}-to{k}", q, f"key{k}")
    client.declare(q, dead_letter_exchange=q, max_length=0)
    client.declare(q + "-own", dead_letter_exchange=q, dead_letter_routing_key="key0", max_length=0)
    client.exchange(q + "-in", "fanout")
    client.bind(q, q + "-in")
    client.publish(q + "-in", "key0", b"both", headers={"CC": ["key1"], "BCC": ["key2"]})
    for k in range(2):
        client.consume(f"{q}-to{k}", f"c{k}", no_ack=True)
        message = client.delivery()
        assert message.headers["CC"] == ["key1"]
        assert cleaned(message)[0]["routing-keys"] == ["key0", "key1"]
    client.publish("", q + "-own", b"one", headers={"CC": ["nobody"]})
    message = client.delivery()
    assert (message.method.consumer_tag, "CC" in message.headers) == ("c0", False)
    assert cleaned(message)[0]["routing-keys"] == [q + "-own", "nobody"]
    client.sync()
    assert client.heard(commands.Basic.Deliver) == []


def test_dead_letters_by_their_own_headers(client: Talk, q: str) -> None:
    client.exchange(q, "headers")
    for name in ("a", "b"):
        client.declare(f"{q}-{name}")
        client.bind(f"{q}-{name}", q, arguments={"x-match": "all", "to": name})
    client.declare(q, dead_letter_exchange=q)
    client.socket.sendall(b"".join(client.publish_frames("", q, b"%d" % k, headers={"to": "ab"[k % 2]}) for k in range(6)))
    client.consume(q, "c")
    client.deliveries(6)
    client.nack(6, multiple=True, requeue=False)
    client.consume(f"{q}-a", "a", no_ack=True)
    assert client.deliveries(3) == [b"0", b"2", b"4"]
    client.consume(f"{q}-b", "b", no_ack=True)
    assert client.deliveries(3) == [b"1", b"3", b"5"]


# ------------------------------------------------------------------------------------------------ bytes

def test_a_message_of_our_own_encoding() -> None:
    run = Run(b"", b"q", ORIGIN_NATIVE, [native_span(b"", b"body")], 8, PERSISTENT)
    span = render(run, 0, 3, 131_072)
    assert body_of(span) == b"body"
    assert (properties_of(span).delivery_mode, properties_of(span).headers) == (2, {"x-delivery-count": 3})


PROPERTIES = st.fixed_dictionaries({}, optional={
    "content_type": st.text(max_size=20), "content_encoding": st.text(max_size=20),
    "headers": st.dictionaries(st.text(max_size=10), st.integers(0, 99)),
    "delivery_mode": st.sampled_from([1, 2]), "correlation_id": st.text(max_size=10), "message_id": st.text(max_size=10)})


@given(PROPERTIES, st.binary(max_size=300))
def test_more_headers_change_nothing_else(fields: dict[str, Any], content: bytes) -> None:
    given_properties = commands.Basic.Properties(**fields)
    span = make_span(given_properties.marshal(), content, 131_072)
    more = with_headers(span, b"\x01xl" + (7).to_bytes(8, "big"), 131_072)
    size, _, head = frame.unmarshal(more)
    assert isinstance(head, header.ContentHeader)
    assert head.properties.headers == {**(fields.get("headers") or {}), "x": 7} or "x" in (fields.get("headers") or {})
    for name in ("content_type", "content_encoding", "delivery_mode", "correlation_id", "message_id"):
        assert getattr(head.properties, name) == getattr(frame.unmarshal(span)[2].properties, name)  # type: ignore[union-attr]
    assert (head.body_size, body_of(more)) == (len(content), content)
    assert len(more) == size + sum(8 + len(content) for _ in range(1) if content)


def test_headers_that_fill_a_frame_stay_as_they_are() -> None:
    span = make_span(commands.Basic.Properties(headers={"a": "x" * 4_000}).marshal(), b"", 4_096)
    assert with_headers(span, b"\x01xl" + bytes(8), len(span) + 5) == span
    assert with_headers(span, b"\x01xl" + bytes(8), len(span) + 15) != span
