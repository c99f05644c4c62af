"""What comes when it may, and what does not; content of several channels at once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands, frame

from tests.frontends.amqp.host import GREETING, Client, Host, ack, method, parts, publish, raw, start_ok
from trilogue.frontends.amqp.codec import HEARTBEAT_FRAME

CONNECTION = 10
BASIC = 60


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


def closed(client: Client) -> bool:
    return client.wire.closing and client.session not in client.host.frontend.peers


# ------------------------------------------------------------------------------------------------ order

OUT_OF_ORDER = {
    "tune-ok twice": (frame.marshal(commands.Connection.TuneOk(0, 0, 0), 0), 503),
    "open twice": (frame.marshal(commands.Connection.Open("/"), 0), 503),
    "start-ok late": (frame.marshal(start_ok(), 0), 503),
    "close-ok without close": (frame.marshal(commands.Connection.CloseOk(), 0), 503),
    "secure-ok": (frame.marshal(commands.Connection.SecureOk("x"), 0), 503),
    "what only servers say": (frame.marshal(commands.Queue.DeclareOk("q", 0, 0), 1), 503),
    "connection method on a channel": (frame.marshal(commands.Connection.Open("/"), 1), 503),
    "channel method on channel 0": (frame.marshal(commands.Channel.Open(), 0), 504),
    "queue method on channel 0": (frame.marshal(commands.Queue.Declare(queue="q"), 0), 504),
    "unknown class": (method(99, 10, b"", 1), 540),
    "unknown class, highest bit": (method(0xFFFF, 0xFFFF, b"", 1), 540),
    "unknown method": (method(BASIC, 999, b"", 1), 540),
    "unknown method on channel 0": (method(CONNECTION, 99), 540),
    "method on an unopened channel": (frame.marshal(commands.Queue.Declare(queue="q"), 7), 504),
    "publish on an unopened channel": (publish(b"x", channel=7), 504),
    "ack on an unopened channel": (ack(1, 7), 504),
    "body on an unopened channel": (raw(3, 7, b"x"), 504),
    "open of an open channel": (frame.marshal(commands.Channel.Open(), 1), 504),
    "header without publish": (parts(b"x")[1], 505),
    "body without publish": (raw(3, 1, b"x"), 505),
    "body without header": (parts(b"x")[0] + raw(3, 1, b"x"), 505),
    "method instead of a header": (parts(b"x")[0] + frame.marshal(commands.Tx.Select(), 1), 505),
    "publish instead of a header": (parts(b"x")[0] * 2, 505),
    "ack instead of a header": (parts(b"x")[0] + ack(1), 505),
    "method instead of a body": (b"".join(parts(b"xyz")[:2]) + frame.marshal(commands.Tx.Select(), 1), 505),
    "publish instead of a body": (b"".join(parts(b"xyz")[:2]) + publish(b"x"), 505),
    "ack in the middle of a body": (b"".join(parts(b"xyz", piece=1)[:3]) + ack(1), 505),
    "header in the middle of a body": (b"".join(parts(b"xyz", piece=1)[:3]) + parts(b"xyz")[1], 505),
    "channel.close in the middle of a body": (b"".join(parts(b"xyz", piece=1)[:3]) + frame.marshal(commands.Channel.Close(200, "", 0, 0), 1), 505),
    "content on channel 0": (raw(3, 0, b"x"), 505),
    "heartbeat on a channel": (raw(8, 1, b""), 505),
    "heartbeat with something in it": (raw(8, 0, b"x"), 501),
    "unknown type of frame": (raw(4, 1, b""), 501),
    "unknown type of frame on channel 0": (raw(0, 0, b""), 501),
    "body longer than announced": (b"".join(parts(b"xyz")[:2]) + raw(3, 1, b"xyz!"), 501),
    "body longer than announced, in pieces": (b"".join(parts(b"xyz")[:2]) + raw(3, 1, b"xy") + raw(3, 1, b"z!"), 501),
    "header of another class": (parts(b"x")[0] + raw(2, 1, struct.pack(">HHQH", 50, 0, 1, 0)), 505),
    "header that is too short": (parts(b"x")[0] + raw(2, 1, struct.pack(">HHQ", BASIC, 0, 1)), 501),
    "method that is too short": (raw(1, 1, b"\0\x3c"), 501),
    "empty method": (raw(1, 1, b""), 501),
    "wrong frame end": (frame.marshal(commands.Tx.Select(), 1)[:-1] + b"\xcd", 501),
    "wrong frame end of a body": (publish(b"xyz")[:-1] + b"\0", 501),
    "publish whose exchange overruns": (method(BASIC, 40, b"\0\0\xffab\0", 1) + parts(b"x")[1], 502),
    "publish whose key overruns": (method(BASIC, 40, b"\0\0\0\xffab", 1), 502),
    "publish with more arguments": (method(BASIC, 40, b"\0\0\0\x01q\0\0", 1), 502),
    "declare that ends early": (method(50, 10, b"\0\0\x01q\0", 1), 502),
    "flags of no property": (parts(b"x")[0] + raw(2, 1, struct.pack(">HHQH", BASIC, 0, 1, 2)), 502),
    "properties that end early": (parts(b"x")[0] + raw(2, 1, struct.pack(">HHQHB", BASIC, 0, 1, 0x8000, 9)), 502),
    "name that is no UTF-8": (method(50, 10, b"\0\0\x01\xff\0\0\0\0\0", 1), 502),
    "immediate": (method(BASIC, 40, b"\0\0\0\x01q\x02", 1) + b"".join(parts(b"x")[1:]), 540),
}


@pytest.mark.parametrize("what", OUT_OF_ORDER)
def test_a_frame_out_of_order_closes_the_connection(host: Host, what: str) -> None:
    data, code = OUT_OF_ORDER[what]
    other = host.client()
    client = host.client()
    client.feed(publish(b"before") + data + publish(b"after"))
    assert client.code() == (0, code)
    assert not client.wire.closing          # till the client agrees
    client.agree()
    if what.startswith("wrong frame end"):
        host.world.loop.advance(10_000)     # nobody knows where its frames begin
    assert closed(client)
    assert host.ready() == 1                # what came before counts, what came after does not
    other.feed(publish(b"unaffected"))
    assert host.ready() == 2


BEFORE_OPEN = {
    "channel frame before login": (frame.marshal(commands.Channel.Open(), 1), 505),
    "publish before login": (publish(b"x"), 505),
    "ack before login": (ack(1), 505),
    "open before login": (frame.marshal(commands.Connection.Open("/"), 0), 503),
    "tune-ok before login": (frame.marshal(commands.Connection.TuneOk(0, 0, 0), 0), 503),
}


@pytest.mark.parametrize("what", BEFORE_OPEN)
def test_a_frame_before_its_time(host: Host, what: str) -> None:
    data, code = BEFORE_OPEN[what]
    client = Client(host)
    client.feed(GREETING + data)
    assert client.code() == (0, code)
    client.agree()
    assert closed(client)


def test_heartbeats_in_every_state(host: Host) -> None:
    client = Client(host)
    for data in (GREETING, frame.marshal(start_ok(), 0), frame.marshal(commands.Connection.TuneOk(0, 0, 0), 0),
                 frame.marshal(commands.Connection.Open("/"), 0), frame.marshal(commands.Channel.Open(), 1), *parts(b"xyz", piece=1)):
        client.feed(data)
        client.feed(HEARTBEAT_FRAME * 2)
    assert not client.wire.closing
    assert host.ready() == 1
    client.feed(method(99, 1))
    client.feed(HEARTBEAT_FRAME)
    assert not client.wire.closing
    client.agree()
    assert closed(client)


# ------------------------------------------------------------------------------------------------ content

def test_channels_may_interrupt_each_other(host: Host) -> None:
    client = host.client(channels=3)
    one, two, three = (parts(body, channel=number, piece=2) for number, body in ((1, b"aaaa"), (2, b"bbbb"), (3, b"cccc")))
    mixed = [one[0], two[0], two[1], HEARTBEAT_FRAME, one[1], three[0], two[2], one[2], three[1], publish(b"plain", channel=4), one[3],
             two[3], *three[2:]]
    client.say(commands.Channel.Open(), 4)
    client.feed(b"".join(mixed))
    taker = host.client()
    taker.say(commands.Basic.Consume(queue="q"), 1)
    assert taker.bodies() == [b"plain", b"aaaa", b"bbbb", b"cccc"]
    assert not client.session.contents
    assert client.session.contents_bytes == 0


def test_empty_bodies_and_empty_body_frames(host: Host) -> None:
    client = host.client()
    begun = parts(b"xy", piece=1)
    client.feed(publish(b"") + b"".join(begun[:2]) + raw(3, 1, b"") * 3 + begun[2] + raw(3, 1, b"") + begun[3] + publish(b"", user_id="guest"))
    taker = host.client()
    taker.say(commands.Basic.Consume(queue="q"), 1)
    assert taker.bodies() == [b"", b"xy", b""]
