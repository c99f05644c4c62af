"""How a connection begins, what it asks of the core, and how it or a channel ends."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands, frame, header

from tests.frontends.amqp.host import GREETING, Client, Host, ack, method, parts, publish, raw, start_ok
from trilogue.frontends.amqp.codec import HEARTBEAT_FRAME

BASIC = 60


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


def closed(client: Client) -> bool:
    return client.wire.closing and client.session not in client.host.frontend.peers


# ------------------------------------------------------------------------------------------------ beginning

@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\0" * 8])
def test_another_protocol_is_told_ours_and_closed(host: Host, header: bytes) -> None:
    client = Client(host)
    client.feed(header)
    assert bytes(client.wire.out) == GREETING
    assert closed(client)


@pytest.mark.parametrize("half", [b"", b"AMQ", GREETING, GREETING + frame.marshal(start_ok(), 0)[:40], GREETING + frame.marshal(start_ok(), 0)])
def test_half_a_handshake_and_then_silence_is_cut_off(host: Host, half: bytes) -> None:
    client = Client(host)
    if half:
        client.feed(half)
    host.world.loop.advance(9_900)
    assert not client.wire.closing
    host.world.loop.advance(200)
    assert closed(client)
    assert host.world.broker.limits.unauthenticated == 0


def test_a_handshake_in_one_read(host: Host) -> None:
    client = Client(host)
    commands_ = [start_ok(), commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open("/")]
    client.feed(GREETING + b"".join(frame.marshal(command, 0) for command in commands_) + frame.marshal(commands.Channel.Open(), 1) + publish(b"x"))
    assert [name for _, name in client.said()] == ["Connection.Start", "Connection.Tune", "Connection.OpenOk", "Channel.OpenOk"]
    assert host.ready() == 1


def test_nothing_is_looked_at_while_a_password_is_checked(host: Host) -> None:
    host.verifier.later = []
    client = Client(host)
    client.feed(GREETING + frame.marshal(start_ok(), 0) + frame.marshal(commands.Connection.TuneOk(0, 0, 0), 0))
    assert client.wire.paused
    assert client.said() == [(0, "Connection.Start")]
    client.feed(frame.marshal(commands.Connection.Open("/"), 0))       # it was on its way
    login, waiter = host.verifier.later[0]
    login.verify()
    waiter.verified(login)
    host.world.loop.run()
    assert [name for _, name in client.said()] == ["Connection.Tune", "Connection.OpenOk"]
    assert not client.wire.paused


@pytest.mark.parametrize("capable", [True, False])
def test_a_wrong_password(host: Host, capable: bool) -> None:
    client = Client(host)
    client.feed(GREETING)
    client.say(start_ok(password="wrong", capabilities={"authentication_failure_close": capable}))
    if capable:
        assert client.code() == (0, 403)
        assert not client.wire.closing
        client.agree()
    else:
        assert client.said() == [(0, "Connection.Start")]
    assert closed(client)


def test_an_unknown_vhost(host: Host) -> None:
    client = Client(host)
    client.feed(GREETING)
    client.say(start_ok())
    client.say(commands.Connection.TuneOk(0, 0, 0))
    client.say(commands.Connection.Open("/nowhere"))
    assert client.code() == (0, 530)
    client.agree()
    assert closed(client)


# ------------------------------------------------------------------------------------------------ publish and acknowledge

def test_publishes_and_acks_of_several_channels_keep_their_order(host: Host) -> None:
    client = host.client(channels=2)
    client.say(commands.Confirm.Select(), 1)
    client.say(commands.Basic.Qos(prefetch_count=4), 2)
    client.say(commands.Basic.Consume(queue="q"), 2)
    client.feed(b"".join(publish(b"%d" % k) for k in range(4)))
    assert client.bodies() == [b"0", b"1", b"2", b"3"]
    client.feed(publish(b"4") + ack(1, 2) + publish(b"5", key="r") + ack(2, 2) + ack(3, 2) + publish(b"6") + ack(4, 2, True) + publish(b"7"))
    assert client.bodies() == [b"4", b"6", b"7"]
    assert host.ready("r") == 1
    unacked = client.session.channels[2].unacked
    assert [(held.tag, held.count) for held in unacked.held] == [(5, 1), (6, 1), (7, 1)]


def test_of_acks_in_one_read_those_before_the_wrong_one_count(host: Host) -> None:
    client = host.client()
    client.say(commands.Basic.Consume(queue="q"), 1)
    client.feed(b"".join(publish(b"%d" % k) for k in range(5)))
    client.feed(ack(2))
    client.feed(ack(1) + ack(2) + ack(3))
    assert client.code() == (1, 406)
    assert host.ready() == 3                # 1 and 2 are gone


@pytest.mark.parametrize("wrong", [ack(0), ack(9), ack((1 << 63) - 1), ack(1, multiple=True)[:11] + b"\xff" * 8 + b"\x01\xce",
                                   ack(1)[:11] + b"\xff" * 8 + b"\0\xce", ack(9, multiple=True),
                                   method(BASIC, 120, b"\xff" * 8 + b"\0", 1), method(BASIC, 90, b"\x80" + b"\0" * 7 + b"\0", 1)])
def test_unknown_tags_close_the_channel(host: Host, wrong: bytes) -> None:
    client = host.client()
    client.say(commands.Basic.Consume(queue="q"), 1)
    client.feed(publish(b"x"))
    client.heard()
    client.feed(wrong)
    assert client.code() == (1, 406)
    assert host.ready() == 1


def test_a_message_with_anything_in_its_properties_reaches_its_consumer_again_and_again(host: Host) -> None:
    """A consumer must not suffer for what somebody else published."""
    table = (b"\x01a" + b"S\0\0\0\x02\xff\xfe" + b"\x01b" + b"T" + b"\xff" * 8 + b"\x01c" + b"d" + struct.pack(">d", 1e300)
             + b"\xc8" + b"n" * 200 + b"V")
    flags = struct.pack(">H", 0x8000 | 0x2000 | 0x0040)
    properties = flags + b"\x02\xff\xfe" + struct.pack(">I", len(table)) + table + b"\xff" * 8
    host.world.declare("counted", queue_type="quorum")
    client = host.client()
    client.feed(parts(b"x", key="counted")[0] + raw(2, 1, struct.pack(">HHQ", BASIC, 0, 1) + properties) + raw(3, 1, b"x"))
    taker = host.client()
    taker.say(commands.Basic.Consume(queue="counted"), 1)
    for tag in range(1, 4):
        taker.say(commands.Basic.Nack(tag, False, True), 1)
    out = bytes(taker.wire.out)
    assert not taker.wire.closing
    assert out.count(properties) == 1       # as it came; later with a delivery count
    assert out.count(table[:30]) == 4


# ------------------------------------------------------------------------------------------------ ends

def test_a_client_that_never_agrees_is_cut_off(host: Host) -> None:
    client = host.client()
    client.feed(method(99, 1))
    for _ in range(9):
        host.world.loop.advance(1_000)
        client.feed(publish(b"x") + HEARTBEAT_FRAME)
    assert not client.wire.closing
    assert host.ready() == 0
    host.world.loop.advance(1_000)
    assert closed(client)


def test_both_close_at_the_same_time(host: Host) -> None:
    client = host.client()
    client.feed(method(99, 1) + frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
    assert [name for _, name in client.said()] == ["Connection.Close", "Connection.CloseOk"]
    assert closed(client)


def test_a_client_closes(host: Host) -> None:
    client = host.client()
    client.feed(publish(b"x") + frame.marshal(commands.Connection.Close(200, "", 0, 0), 0) + publish(b"y"))
    assert client.said() == [(0, "Connection.CloseOk")]
    assert closed(client)
    assert host.ready() == 1


def test_frames_for_a_closing_channel_are_thrown_away(host: Host) -> None:
    client = host.client(channels=2)
    client.say(commands.Basic.Consume(queue="q"), 2)
    late = (publish(b"late") + b"".join(parts(b"late", piece=2)) + ack(7) + frame.marshal(commands.Queue.Declare(queue="late"), 1)
            + raw(3, 1, b"x") + method(99, 99, b"", 1))
    client.feed(publish(b"x", exchange="nowhere") + late + publish(b"y", channel=2))
    assert [name for _, name in client.said() if not name.startswith(("Basic", "Content"))] == ["Channel.Close"]
    client.feed(frame.marshal(commands.Channel.Close(200, "", 0, 0), 1))
    assert client.said() == [(1, "Channel.CloseOk")]
    client.feed(frame.marshal(commands.Channel.CloseOk(), 1) + frame.marshal(commands.Channel.Open(), 1) + publish(b"again"))
    names = client.said()
    assert (1, "Channel.OpenOk") in names
    assert (2, "Basic.Deliver") in names
    assert not client.wire.closing


def test_a_channel_that_is_closed_in_the_middle_of_a_message_forgets_it(host: Host) -> None:
    client = host.client()
    client.feed(b"".join(parts(b"x" * 1000, piece=100)[:5]))
    assert client.session.contents_bytes == 300
    client.session.channel_error(1, 406, "timed out", 0)
    assert client.session.contents_bytes == 0
    client.feed(b"".join(parts(b"x" * 1000, piece=100)[5:]) + frame.marshal(commands.Channel.CloseOk(), 1))
    client.say(commands.Channel.Open(), 1)
    assert [name for _, name in client.said()] == ["Channel.Close", "Channel.OpenOk"]


def test_an_error_that_is_found_while_the_connection_waits_for_the_disk(host: Host) -> None:
    client = host.client()
    declare = frame.marshal(commands.Queue.Declare(queue="new", durable=True), 1)
    client.feed(declare + method(99, 1), run=False)
    assert client.session.waiting
    assert client.said() == []
    host.world.loop.run()
    assert [name for _, name in client.said()] == ["Queue.DeclareOk", "Connection.Close"]
    client.agree()
    assert closed(client)


def test_a_connection_that_fails_while_it_waits_gives_no_late_answer(host: Host) -> None:
    client = host.client()
    client.feed(frame.marshal(commands.Queue.Declare(queue="new", durable=True), 1), run=False)
    client.session.fail(541, "the disk is gone", 0)
    host.world.loop.run()
    assert client.code() == (0, 541)
    client.agree()
    assert closed(client)


def test_a_connection_that_goes_away_while_it_waits(host: Host) -> None:
    client = host.client()
    client.feed(frame.marshal(commands.Queue.Declare(queue="new", durable=True), 1), run=False)
    client.wire.close()
    host.world.loop.run()
    assert closed(client)


def test_the_broker_takes_its_leave_when_everything_is_confirmed(host: Host) -> None:
    client = host.client()
    client.say(commands.Confirm.Select(), 1)
    client.heard()
    client.feed(publish(b"x"), run=False)
    client.session.going_down()
    host.world.loop.run()
    assert [name for _, name in client.said()] == ["Basic.Ack", "Connection.Close"]
    client.agree()
    assert closed(client)


def test_long_and_foreign_names_fit_into_an_error(host: Host) -> None:
    client = host.client()
    name = ("ü" * 120).encode()
    client.feed(method(50, 10, b"\0\0" + bytes([len(name)]) + name + b"\x01\0\0\0\0", 1))
    assert client.code() == (1, 404)


# ------------------------------------------------------------------------------------------------ heartbeats

def test_a_silent_client_is_cut_off_after_two_intervals(host: Host) -> None:
    client = host.client(heartbeat=4)
    host.world.loop.advance(6_000)
    assert client.heard()
    client.feed(b"\x08\0")                  # half a heartbeat is a sign of life
    host.world.loop.advance(7_000)
    assert not client.wire.closing
    host.world.loop.advance(4_000)
    assert closed(client)


def test_heartbeat_0_means_none(host: Host) -> None:
    client = host.client(heartbeat=0)
    host.world.loop.advance(600_000)
    assert client.heard() == []
    assert not client.wire.closing


def test_header_of_a_message_is_what_was_sent(host: Host) -> None:
    client = host.client()
    client.say(commands.Basic.Consume(queue="q", no_ack=True), 1)
    client.feed(publish(b"x" * 300, piece=7, message_id="m", headers={"a": 1}))
    got = [value for _, value in client.heard() if isinstance(value, header.ContentHeader)]
    assert (got[0].properties.message_id, got[0].properties.headers, got[0].body_size) == ("m", {"a": 1}, 300)


# ------------------------------------------------------------------------------------------------ held back

def test_a_held_channel_that_ends_holds_its_connection_no_longer(host: Host) -> None:
    client = host.client(channels=2)
    host.world.broker.flusher.block("disk low")
    client.feed(publish(b"x"))
    assert client.wire.paused
    client.session.channel_error(1, 406, "whatever", 0)
    assert not client.wire.paused
    client.feed(publish(b"y", channel=2))
    assert client.wire.paused
    host.world.broker.flusher.unblock()
    assert not client.wire.paused


def test_a_held_connection_that_fails_is_read_for_its_agreement(host: Host) -> None:
    client = host.client()
    host.world.broker.flusher.block("disk low")
    client.feed(publish(b"x") + method(99, 1))
    assert client.code() == (0, 540)
    assert not client.wire.paused
    host.world.broker.flusher.unblock()
    client.agree()
    assert closed(client)


def test_what_is_not_understood_any_more_is_closed_soon(host: Host) -> None:
    client = host.client()
    client.feed(frame.marshal(commands.Tx.Select(), 1)[:-1] + b"\0")
    assert client.code() == (0, 501)
    client.agree()
    host.world.loop.advance(2_900)
    assert not client.wire.closing
    host.world.loop.advance(200)
    assert closed(client)
