from __future__ import annotations

import pathlib

import pytest

from tests.frontends.amqp.talk import Node


@pytest.mark.parametrize("how", ["consume", "get"])
def test_who_holds_a_message_too_long_loses_the_channel(node: Node, q: str, how: str) -> None:
    client = node.open()
    client.declare(q, consumer_timeout=60)
    client.publish("", q, b"x")
    if how == "get":
        assert client.get(q) is not None
    else:
        client.consume(q)
        client.delivery()
    error = client.closed()
    assert (error.code, error.connection) == (406, False)
    assert error.text.startswith("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60 ms.")
    again = client.channel().get(q)
    assert again is not None and again.method.redelivered


def test_who_answers_in_time_keeps_it(node: Node, q: str) -> None:
    client = node.open()
    client.declare(q, consumer_timeout=80)
    client.qos(1)
    client.consume(q)
    for k in range(10):
        client.publish("", q, b"%d" % k)
        client.ack(client.delivery().method.delivery_tag)
    session = node.sessions()[-1]
    channel = session.channels[1]
    for _ in range(5):
        node.call(channel.patience.fire)
    client.sync()


def test_the_listener_and_policies_know_a_timeout_too(tmp_path: pathlib.Path, q: str) -> None:
    with Node(tmp_path, ["listeners.amqp.options={consumer_timeout_ms=50}"]) as node:
        node.administer("plan_policy", "/", "patient", "^patient", {"consumer-timeout": 3_600_000})
        client = node.open().channel(2)
        for channel, queue in ((1, "patient"), (2, q)):
            client.declare(queue, channel)
            client.publish("", queue, b"x", channel)
            client.consume(queue, channel=channel)
            client.delivery(channel)
        assert "Timeout value used: 50 ms" in client.closed(2).text
        client.ack(1)
        client.sync()
