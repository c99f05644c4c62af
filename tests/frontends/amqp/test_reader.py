"""However the bytes are cut into reads, the same happens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from tests.frontends.amqp.host import GREETING, Client, Host, ack, method, parts, publish, raw, start_ok
from tests.frontends.amqp.vectors import SESSIONS
from trilogue.frontends.amqp.reader import KEPT_BYTES_MAX


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("reader"))
    yield host
    host.close()


def outcome(host: Host, data: bytes, cuts: list[int], run: bool = True) -> tuple[dict[int, list[Any]], list[int], bool]:
    """What a client on two channels is answered on each, and what is left in the queues, when its bytes come cut at these places. (Not what it
    is confirmed: that comes with the disk's rounds, and an error does not wait for them.)"""
    for name in ("q", "r"):
        host.world.admin.purge_queue(host.world.session, name)
    client = host.client(channels=2)
    edges = [0, *cuts, len(data)]
    for begin, end in pairwise(edges):
        if begin < end:
            client.feed(data[begin:end], run)
    host.world.loop.run()
    said: dict[int, list[Any]] = {}
    for channel, value in client.heard():
        if value.name != "Basic.Ack":
            said.setdefault(channel, []).append(summary(value))
    ended = client.wire.closing
    client.session.abort()
    host.world.loop.run()
    left = [host.ready(name) for name in ("q", "r")]
    forget(host)
    return said, left, ended


def forget(host: Host) -> None:
    """What a session declared would be there for the next one."""
    for entity in host.world.broker.catalog.queues():
        if entity.name not in ("q", "r"):
            host.world.admin.delete_queue(host.world.session, entity.name, False, False)
    host.world.loop.run()


def summary(value: Any) -> Any:
    """A frame, without what is different each time."""
    fields = {name: getattr(value, name, None) for name in getattr(value, "__slots__", []) if name not in ("consumer_tag", "queue")}
    return value.name, sorted(fields.items(), key=str), getattr(value, "value", None)


RECORDED = b"".join([
    frame.marshal(commands.Confirm.Select(), 1), frame.marshal(commands.Basic.Consume(queue="r", consumer_tag="c"), 2),
    publish(b"one") * 3, publish(b"two", "r") + ack(1, 2), publish(b"three", "r", 2) * 2, ack(2, 2), raw(8, 0, b""),
    *[piece for pair in zip(parts(b"a" * 9, piece=3), parts(b"b" * 9, channel=2, piece=3), strict=True) for piece in pair],
    frame.marshal(commands.Queue.Declare(queue="q", passive=True), 1), publish(b""), publish(b"special", user_id="guest"),
    publish(b"late", expiration="99999"), ack(3, 2), ack(9, 2), publish(b"thrown away", channel=2), frame.marshal(commands.Channel.CloseOk(), 2),
    publish(b"last"), method(99, 9), publish(b"x"),
    frame.marshal(commands.Connection.CloseOk(), 0)])


def test_two_reads_cut_at_every_byte(host: Host) -> None:
    expected = outcome(host, RECORDED, [])
    said, left, ended = expected
    assert said[0][0][0] == "Connection.Close"
    assert [name for name, _, _ in said[2] if name.startswith("Channel")] == ["Channel.Close"]
    assert left == [9, 0]
    assert ended
    for cut in range(1, len(RECORDED)):
        assert outcome(host, RECORDED, [cut]) == expected, cut


def test_byte_by_byte(host: Host) -> None:
    assert outcome(host, RECORDED, list(range(1, len(RECORDED)))) == outcome(host, RECORDED, [])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SESSIONS, st.lists(st.integers(0, 2_000), max_size=6), st.booleans())
def test_any_session_cut_anywhere(host: Host, data: bytes, cuts: list[int], run: bool) -> None:
    assert outcome(host, data, sorted(cut for cut in cuts if cut < len(data)), run) == outcome(host, data, [])


def test_a_handshake_byte_by_byte(tmp_path: Path) -> None:
    host = Host(tmp_path)
    client = Client(host)
    handshake = [start_ok(), commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open("/")]
    for byte in GREETING + b"".join(frame.marshal(command, 0) for command in handshake):
        client.feed(bytes([byte]))
    assert [name for _, name in client.said()] == ["Connection.Start", "Connection.Tune", "Connection.OpenOk"]
    host.close()


def test_a_byte_costs_no_object(host: Host) -> None:
    client = host.client()
    for byte in publish(b"x" * 20_000)[:19_000]:
        client.feed(bytes([byte]), run=False)
    assert len(client.session.chunks) < 10
    assert client.session.have == 19_000


def test_only_so_much_is_read_ahead_of_a_connection_that_waits(host: Host) -> None:
    client = host.client()
    client.feed(frame.marshal(commands.Queue.Declare(queue="q", durable=True), 1), run=False)
    assert client.session.waiting
    sent = 0
    while not client.wire.paused:
        client.feed(publish(b"x" * 1000, "r"), run=False)
        sent += 1
    assert KEPT_BYTES_MAX // 2000 < sent < KEPT_BYTES_MAX // 1000 + 1
    host.world.loop.run()
    assert not client.wire.paused
    assert host.ready("r") >= sent
    assert client.session.chunks == []


def test_many_methods_that_wait_in_one_read_are_not_copied_each_time(host: Host) -> None:
    """5,000 declarations, each of which waits for the disk: the rest stays where it is meanwhile."""
    client = host.client()
    count = 5_000
    client.feed(frame.marshal(commands.Queue.Declare(queue="q", durable=True), 1) * count, run=False)
    first = client.session.chunks[0]
    steps = 0
    while client.session.chunks:
        assert client.session.chunks[0] is first
        host.world.loop.soon, soon = [], host.world.loop.soon
        for callback in soon:
            callback.fire()
        steps += 1
        assert steps < count * 10
    host.world.loop.run()
    assert [name for _, name in client.said()] == ["Queue.DeclareOk"] * count
