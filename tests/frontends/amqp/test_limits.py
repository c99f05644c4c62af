"""A limit on everything, on both sides of it: before login, frames, messages, channels, and what is kept of what is not complete."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import body, commands, frame

from tests.frontends.amqp.host import GREETING, Client, Host, parts, publish, raw, start_ok
from trilogue.frontends.amqp.codec import FRAME_MAX, FRAME_MIN, HEARTBEAT_FRAME
from trilogue.frontends.amqp.reader import FRAME_MAX_BEFORE_LOGIN

MESSAGE_MAX = 1 << 20


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, message_bytes_max=MESSAGE_MAX, unauthenticated_connections_max=2_000)
    yield host
    host.close()


def allocated(run: Any) -> int:
    """The most memory that was in use at once while `run` ran, beyond what was in use before."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------ before login

def test_a_frame_before_login_is_small(host: Host) -> None:
    client = Client(host)
    client.feed(GREETING + struct.pack(">BHI", 1, 0, FRAME_MAX_BEFORE_LOGIN + 1) + b"x")
    assert client.code() == (0, 501)
    client = Client(host)
    client.feed(GREETING + struct.pack(">BHI", 1, 0, FRAME_MAX_BEFORE_LOGIN - 100) + b"x")
    assert client.said() == [(0, "Connection.Start")]
    assert not client.wire.closing


def test_so_many_bytes_without_a_login(host: Host) -> None:
    client = Client(host)
    client.feed(GREETING)
    for _ in range(1023):
        client.feed(HEARTBEAT_FRAME)
    assert not client.wire.closing
    client.feed(HEARTBEAT_FRAME)
    assert client.wire.aborted


def test_500_connections_that_claim_much_and_stall(host: Host) -> None:
    clients = [Client(host) for _ in range(500)]
    claim = GREETING + struct.pack(">BHI", 1, 0, FRAME_MAX_BEFORE_LOGIN - 8) + b"x" * 1_000

    def claim_all() -> None:
        for client in clients:
            client.feed(claim[:500], run=False)
            for byte in claim[500:600]:
                client.feed(bytes([byte]), run=False)
        host.world.loop.run()
    assert allocated(claim_all) < 4 << 20
    host.world.loop.advance(10_000)
    assert all(client.wire.aborted for client in clients)
    assert host.frontend.clients() == 0


# ------------------------------------------------------------------------------------------------ frames

def test_frames_up_to_the_maximum(host: Host) -> None:
    client = host.client()
    payload = b"x" * (FRAME_MAX - 8)
    client.feed(publish(payload) + publish(b"y" * FRAME_MAX) + publish(payload * 2, piece=FRAME_MAX - 8))
    assert host.ready() == 3
    taker = host.client()
    taker.say(commands.Basic.Consume(queue="q"), 1)
    frames = taker.wire.out
    assert taker.bodies() == [payload, b"y" * FRAME_MAX, payload * 2]
    assert len(frames) > 4 * len(payload)
    client.feed(struct.pack(">BHI", 3, 1, FRAME_MAX + 1) + b"x")
    assert client.code() == (0, 501)
    assert not client.wire.closing
    client.feed(b"x" * FRAME_MAX)           # whatever it is
    client.agree()
    host.world.loop.advance(10_000)
    assert client.wire.closing


def test_a_client_may_ask_for_smaller_frames_both_ways(host: Host) -> None:
    big = host.client()
    big.feed(publish(b"x" * 100_000))
    small = host.client(frame_max=FRAME_MIN)
    small.say(commands.Basic.Consume(queue="q"), 1)
    pieces = [value.value for _, value in small.heard() if isinstance(value, body.ContentBody)]
    assert b"".join(pieces) == b"x" * 100_000
    assert max(len(piece) for piece in pieces) == FRAME_MIN - 8
    small.feed(publish(b"y" * FRAME_MIN))
    assert small.bodies() == [b"y" * FRAME_MIN]
    small.feed(raw(3, 1, b"x" * (FRAME_MIN + 1)))
    assert small.code() == (0, 501)


@pytest.mark.parametrize(("channel_max", "frame_max", "code"), [
    (0, FRAME_MIN - 1, 530), (0, FRAME_MAX + 1, 530), (2_048, 0, 530), (2_047, FRAME_MAX, 0), (0, 0, 0), (1, FRAME_MIN, 0)])
def test_what_may_be_negotiated(host: Host, channel_max: int, frame_max: int, code: int) -> None:
    client = Client(host)
    client.feed(GREETING)
    client.say(start_ok())
    client.heard()
    client.say(commands.Connection.TuneOk(channel_max, frame_max, 0))
    if code:
        assert client.code() == (0, code)
    else:
        client.say(commands.Connection.Open("/"))
        assert client.said() == [(0, "Connection.OpenOk")]


def test_channels_up_to_the_maximum(host: Host) -> None:
    client = host.client(channel_max=3, channels=3)
    client.say(commands.Channel.Open(), 4)
    assert client.code() == (0, 530)


# ------------------------------------------------------------------------------------------------ messages

def test_a_message_up_to_the_maximum(host: Host) -> None:
    client = host.client()
    client.feed(publish(b"x" * MESSAGE_MAX, piece=FRAME_MAX - 8))
    assert host.ready() == 1
    assert client.said() == []


@pytest.mark.parametrize("size", [MESSAGE_MAX + 1, 1 << 62, (1 << 63) + 5, (1 << 64) - 1])
def test_a_message_over_the_maximum_costs_the_channel_and_no_memory(host: Host, size: int) -> None:
    client = host.client(channels=2)
    begin = parts(b"x")
    header = begin[1][:11] + struct.pack(">Q", size) + begin[1][19:]
    piece = raw(3, 1, b"x" * 100_000)

    def flood() -> None:
        client.feed(begin[0] + header)
        for _ in range(200):
            client.feed(piece)
    assert allocated(flood) < 2 << 20
    assert client.code() == (1, 406)
    client.feed(publish(b"x", channel=2) + frame.marshal(commands.Channel.CloseOk(), 1) + frame.marshal(commands.Channel.Open(), 1) + publish(b"y"))
    assert host.ready() == 2
    assert not client.wire.closing


@pytest.mark.parametrize("limit", [50, -1])
def test_a_limit_below_the_frames_and_none_at_all(tmp_path: Path, limit: int) -> None:
    host = Host(tmp_path, message_bytes_max=limit)
    client = host.client()
    client.feed(publish(b"x" * 50) * 2 + publish(b"x" * 51) + publish(b"x"))
    assert host.ready() == (2 if limit == 50 else 4)
    assert client.said() == ([(1, "Channel.Close")] if limit == 50 else [])
    host.close()


@pytest.mark.parametrize("piece", [1_024, 1])
def test_a_large_message_in_small_pieces_costs_little_more_than_its_bytes(host: Host, piece: int) -> None:
    client = host.client()
    size = MESSAGE_MAX if piece > 1 else 50_000
    data = publish(b"x" * size, piece=piece)

    def send() -> None:
        for at in range(0, len(data) - piece, 1_000):
            client.feed(data[at:min(at + 1_000, len(data) - piece)], run=False)
    assert allocated(send) < 3 * size + 300_000
    client.feed(data[-piece:])
    assert host.ready() == 1
    assert not client.session.contents


def test_16_mib_in_1_kib_pieces_is_linear(tmp_path: Path) -> None:
    """Steps are counted, not seconds: every frame is parsed once, and nothing is joined that was joined before."""
    host = Host(tmp_path, message_bytes_max=16 << 20)
    client = host.client()
    data = publish(b"x" * (16 << 20), piece=1_024)
    for at in range(0, len(data), 65_536):
        client.feed(data[at:at + 65_536], run=False)
        assert client.session.have < 1_024 + 8
        assert len(client.session.chunks) <= 1
    host.world.loop.run()
    assert host.ready() == 1
    taker = host.client()
    taker.say(commands.Basic.Consume(queue="q", no_ack=True), 1)
    assert taker.bodies() == [b"x" * (16 << 20)]
    host.close()


def test_incomplete_messages_on_all_channels_together(host: Host) -> None:
    client = host.client(channels=20)
    begun = parts(b"x" * MESSAGE_MAX, piece=100_000)
    number = 0
    while client.session.channels:
        number += 1
        client.feed(b"".join(piece[:1] + struct.pack(">H", number) + piece[3:] for piece in begun[:12]))
    assert client.code() == (0, 506)
    assert number == 9                      # eight messages' worth, less the piece that each still lacks
    assert client.session.contents_bytes == 0
