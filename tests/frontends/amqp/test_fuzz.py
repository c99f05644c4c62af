"""Whatever a client sends: clean closes only, no exception, no hang, nothing kept, and nobody else notices."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from tests.frontends.amqp.host import GREETING, Client, Host, ack, parts, publish, raw, start_ok
from tests.frontends.amqp.vectors import SESSIONS
from trilogue.frontends.amqp.reader import FRAME_MAX_BEFORE_LOGIN, KEPT_BYTES_MAX

CODES = {320, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540}

HANDSHAKE = [start_ok(), commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open("/")]
OPENING = GREETING + b"".join(frame.marshal(command, 0) for command in HANDSHAKE)
RECORDED = OPENING + b"".join([
    frame.marshal(commands.Channel.Open(), 1), frame.marshal(commands.Channel.Open(), 2), frame.marshal(commands.Confirm.Select(), 1),
    frame.marshal(commands.Queue.Declare(queue="f", durable=True, arguments={"x-max-length": 10, "x-expires": 60_000}), 1),
    frame.marshal(commands.Exchange.Declare(exchange="x", exchange_type="headers"), 1),
    frame.marshal(commands.Queue.Bind(queue="f", exchange="x", arguments={"x-match": "any", "a": 1, "b": {"c": [True, None, "d"]}}), 1),
    frame.marshal(commands.Basic.Qos(prefetch_count=2), 2), frame.marshal(commands.Basic.Consume(queue="f", consumer_tag="t"), 2),
    publish(b"plain", "f") * 3, publish(b"with headers", "f", 1, "x", headers={"a": 1, "CC": ["q"], "t": 1.5}, message_id="m", expiration="1000"),
    *[piece for pair in zip(parts(b"a" * 9, "f", piece=3), parts(b"b" * 9, channel=2, piece=3), strict=True) for piece in pair],
    ack(1, 2), frame.marshal(commands.Basic.Nack(2, True, True), 2), raw(8, 0, b""), ack(3, 2, True),
    frame.marshal(commands.Basic.Get(queue="f"), 1), frame.marshal(commands.Tx.Select(), 2), publish(b"tx", "f", 2),
    frame.marshal(commands.Tx.Commit(), 2), frame.marshal(commands.Basic.Recover(True), 2),
    frame.marshal(commands.Basic.Cancel("t"), 2), frame.marshal(commands.Queue.Purge(queue="f"), 1),
    frame.marshal(commands.Queue.Delete(queue="f"), 1),
    frame.marshal(commands.Channel.Close(200, "", 0, 0), 2), frame.marshal(commands.Connection.Close(200, "", 0, 0), 0)])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("fuzz"))
    yield host
    host.close()


class Witness:
    """Somebody else's connection: what it publishes comes back to it."""

    def __init__(self, host: Host) -> None:
        host.world.declare("witness")
        self.client = host.client()
        self.client.say(commands.Basic.Consume(queue="witness", no_ack=True), 1)
        self.client.heard()

    def check(self, token: bytes) -> None:
        self.client.feed(publish(token, "witness"))
        assert self.client.bodies() == [token]


def survive(host: Host, client: Client, data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    for begin, end in pairwise(edges):
        if begin < end:
            client.feed(data[begin:end])
        session = client.session
        assert session.have <= (KEPT_BYTES_MAX * 2 if session.session is not None else FRAME_MAX_BEFORE_LOGIN * 3)
        assert session.contents_bytes <= len(data)
    for _, value in client.heard():
        if not isinstance(value, bytes) and value.name in ("Connection.Close", "Channel.Close"):
            assert value.reply_code in CODES, value.reply_text
    # One way or another it ends, and leaves nothing behind.
    if client.session.state == 6:
        client.feed(frame.marshal(commands.Connection.CloseOk(), 0))
        host.world.loop.advance(10_000)
        assert client.wire.closing
    client.session.abort()
    host.world.loop.run()
    assert client.session not in host.frontend.peers
    assert not client.session.channels
    assert not client.session.contents


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SESSIONS, st.lists(st.integers(1, 1_000), max_size=3))
def test_frames_in_any_order(host: Host, data: bytes, cuts: list[int]) -> None:
    survive(host, host.client(channels=2), data, cuts)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 8, len(OPENING)]), st.lists(st.integers(1, 300), max_size=3))
def test_any_bytes_in_any_state(host: Host, data: bytes, begun: int, cuts: list[int]) -> None:
    survive(host, Client(host), OPENING[:begun] + data, [*cuts, begun])


def mutated(chance: random.Random, data: bytes) -> bytes:
    """A recorded session with a few accidents: bits, bytes, lengths, pieces lost, doubled or moved."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(8 if chance.random() < 0.95 else 0, len(changed))
        kind = chance.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice([0, 1, 2, 3, 8, 0x7F, 0x80, 0xCE, 0xFF])
        elif kind == 2:
            changed[at:at + 4] = struct.pack(">I", chance.choice([0, 1, 7, 8, 4_088, 131_064, 131_073, 0x7FFFFFFF, 0xFFFFFFFF]))
        elif kind == 3:
            del changed[at:at + chance.randrange(1, 30)]
        elif kind == 4:
            changed[at:at] = changed[at:at + chance.randrange(1, 60)]
        elif kind == 5:
            changed[at:at] = chance.randbytes(chance.randrange(1, 20))
        else:
            changed[at:at + 8] = b"\xff" * 8
    return bytes(changed)


def frames_of(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 8 + struct.unpack(">I", data[3:7])[0]
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_mutations_of_a_recorded_session(host: Host, seed: int) -> None:
    chance = random.Random(seed)
    witness = Witness(host)
    for number in range(120):
        data = mutated(chance, RECORDED)
        survive(host, Client(host), data, [chance.randrange(len(data)) for _ in range(chance.randrange(4))])
        if number % 10 == 0:
            witness.check(b"%d" % number)
    witness.client.session.abort()
    host.world.loop.run()


@pytest.mark.parametrize("seed", range(4))
def test_a_recorded_session_in_another_order(host: Host, seed: int) -> None:
    chance = random.Random(seed)
    steps = frames_of(RECORDED[len(OPENING):])
    for _ in range(60):
        shuffled = [*steps]
        for _ in range(chance.randrange(1, 8)):
            shuffled.insert(chance.randrange(len(shuffled)), shuffled.pop(chance.randrange(len(shuffled))))
        survive(host, Client(host), OPENING + b"".join(shuffled), [])


def test_every_type_of_frame_in_every_state(host: Host) -> None:
    states = [b"", GREETING, OPENING, OPENING + frame.marshal(commands.Channel.Open(), 1),
              OPENING + frame.marshal(commands.Channel.Open(), 1) + parts(b"xx")[0],
              OPENING + frame.marshal(commands.Channel.Open(), 1) + b"".join(parts(b"xx", piece=1)[:3]),
              OPENING + frame.marshal(commands.Channel.Open(), 1) + publish(b"x", exchange="nowhere")]
    for state in states:
        for kind in range(10):
            for channel in (0, 1, 2, 65_535):
                for payload in (b"", b"\0\x3c\0\x28", b"\0\x0a\0\x32\0\0\0\0\0\0\0", b"\0\x14\0\x0a\0"):
                    survive(host, Client(host), state + raw(kind, channel, payload), [])
