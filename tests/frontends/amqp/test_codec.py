"""Our encoding and decoding against pamqp's, and what `check_method` and `scan_properties` let nobody see."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from tests.frontends.amqp.host import raw, unmarshal
from tests.frontends.amqp.vectors import METHODS, PROPERTIES
from trilogue.frontends.amqp.codec import (
    DEPTH_MAX,
    Properties,
    ProtocolError,
    ack_frame,
    body_of,
    body_size,
    check_method,
    close_channel,
    close_connection,
    decode_method,
    fitted,
    make_span,
    nack_frame,
    scan_properties,
    shortened,
)


def refused(data: bytes, at: int = 7) -> int:
    with pytest.raises(ProtocolError) as caught:
        check_method(data, at, len(data) - 1)
    return caught.value.code


# ------------------------------------------------------------------------------------------------ methods

@settings(max_examples=500, deadline=None)
@given(METHODS, st.integers(0, 65_535))
def test_every_method_that_pamqp_writes_passes_and_comes_back(command: Any, channel: int) -> None:
    data = frame.marshal(command, channel)
    assert check_method(data, 7, len(data) - 1) == command.index
    assert dict(decode_method(data)) == dict(frame.unmarshal(data)[2])


@settings(max_examples=300, deadline=None)
@given(METHODS, st.data())
def test_a_method_that_was_cut_or_has_more_never_passes(command: Any, data: Any) -> None:
    whole = frame.marshal(command, 1)
    size = len(whole) - 8
    cut = data.draw(st.integers(0, size - 1))
    assert refused(raw(1, 1, whole[7:7 + cut])) in (501, 502)
    assert refused(raw(1, 1, whole[7:-1] + b"\0")) == 502


@settings(max_examples=300, deadline=None)
@given(METHODS, st.randoms(use_true_random=False))
def test_a_method_with_changed_bytes_passes_to_pamqp_or_is_refused(command: Any, chance: random.Random) -> None:
    data = bytearray(frame.marshal(command, 1))
    for _ in range(3):
        data[chance.randrange(7, len(data) - 1)] = chance.randrange(256)
    try:
        check_method(bytes(data), 7, len(data) - 1)
        decode_method(bytes(data))
    except ProtocolError as error:
        assert error.code in (501, 502, 503, 540)


def nested(depth: int, kind: bytes) -> bytes:
    """A table, with so many tables or arrays in each other."""
    value = b"V"
    for _ in range(depth):
        inner = (b"\x01a" + value) if kind == b"F" else value
        value = kind + struct.pack(">I", len(inner)) + inner
    inner = b"\x01a" + value
    return struct.pack(">I", len(inner)) + inner


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_tables_are_not_nested_deeper_than_anybody_means(kind: bytes) -> None:
    def declare(depth: int) -> bytes:
        return raw(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x01q\0" + nested(depth, kind))
    data = declare(DEPTH_MAX - 1)
    assert check_method(data, 7, len(data) - 1) == 50 << 16 | 10
    assert decode_method(data).queue == "q"
    assert refused(declare(DEPTH_MAX)) == 502


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_100_000_tables_in_each_other(kind: bytes) -> None:
    head = (b"\x01a" if kind == b"F" else b"") + kind
    size = 4 + len(head)
    value = b"".join(head + struct.pack(">I", size * (100_000 - k - 1)) for k in range(100_000))
    inner = b"\x01b" + kind + struct.pack(">I", len(value)) + value
    table = struct.pack(">I", len(inner)) + inner
    assert refused(raw(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x01q\0" + table)) == 502
    header_ = struct.pack(">H", 0x2000) + table
    with pytest.raises(ProtocolError) as caught:
        scan_properties(header_, 0, len(header_), Properties())
    assert caught.value.code == 502


LYING_TABLES = {
    "longer than the frame": b"\xff\xff\xff\xff",
    "a name longer than the table": b"\0\0\0\x03\xffaa",
    "a name without a value": b"\0\0\0\x02\x01a",
    "a string longer than the table": b"\0\0\0\x07\x01aS\0\0\0\x01",
    "a string of 4 GiB": b"\0\0\0\x07\x01aS\xff\xff\xff\xff",
    "a string without its length": b"\0\0\0\x04\x01aS\0",
    "bytes longer than the table": b"\0\0\0\x07\x01ax\x80\0\0\0",
    "a table longer than its table": b"\0\0\0\x07\x01aF\0\0\0\x01",
    "an array longer than its table": b"\0\0\0\x07\x01aA\0\0\0\x01",
    "an array whose value overruns it": b"\0\0\0\x0c\x01aA\0\0\0\x01lxxxx",
    "a number that is cut": b"\0\0\0\x05\x01al\0\0",
    "an unknown type": b"\0\0\0\x03\x01aZ",
    "type 255": b"\0\0\0\x03\x01a\xff",
}


@pytest.mark.parametrize("what", LYING_TABLES)
def test_lengths_that_lie(what: str) -> None:
    table = LYING_TABLES[what]
    assert refused(raw(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x01q\0" + table)) == 502
    header_ = struct.pack(">H", 0x2000) + table
    with pytest.raises(ProtocolError):
        scan_properties(header_, 0, len(header_), Properties())


# ------------------------------------------------------------------------------------------------ properties

@settings(max_examples=400, deadline=None)
@given(PROPERTIES)
def test_the_properties_that_the_broker_acts_on(properties: dict[str, Any]) -> None:
    data = commands.Basic.Properties(**properties).marshal()
    found = Properties()
    scan_properties(data, 0, len(data), found)
    assert found.persistent == (properties.get("delivery_mode") == 2)
    assert found.priority == properties.get("priority", 0)
    assert found.expiration == properties.get("expiration", "").encode()
    acts = {"CC", "BCC", "x-delay", "x-deduplication-header"}
    if "user_id" in properties or acts & set(properties.get("headers", {})):
        assert found.special


@settings(max_examples=200, deadline=None)
@given(PROPERTIES.filter(bool), st.data())
def test_properties_that_were_cut_or_have_more_never_pass(properties: dict[str, Any], data: Any) -> None:
    whole = commands.Basic.Properties(**properties).marshal()
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(ProtocolError):
            scan_properties(wrong, 0, len(wrong), Properties())


# ------------------------------------------------------------------------------------------------ frames

def test_100_000_frames_agree_with_pamqp() -> None:
    chance = random.Random(7)
    for _ in range(25_000):
        channel, tag, multiple = chance.randrange(65_536), chance.getrandbits(63), chance.random() < 0.5
        assert ack_frame(channel, tag, multiple) == frame.marshal(commands.Basic.Ack(tag, multiple), channel)
        assert nack_frame(channel, tag, multiple) == frame.marshal(commands.Basic.Nack(tag, multiple, False), channel)
        code, text, method = chance.randrange(1000), "é" * chance.randrange(100), chance.getrandbits(32)
        assert close_connection(code, text, method) == frame.marshal(commands.Connection.Close(code, text, method >> 16, method & 0xFFFF), 0)
        assert close_channel(channel, code, text, method) == frame.marshal(commands.Channel.Close(code, text, method >> 16, method & 0xFFFF), channel)


@settings(max_examples=200, deadline=None)
@given(PROPERTIES, st.binary(max_size=300), st.integers(9, 80), st.integers(9, 80))
def test_spans_are_what_pamqp_reads(properties: dict[str, Any], payload: bytes, frame_max: int, smaller: int) -> None:
    encoded = commands.Basic.Properties(**properties).marshal()
    span = make_span(encoded, payload, frame_max)
    assert body_of(span) == payload
    assert body_size(span) == len(payload)
    for cut in (span, fitted(span, smaller)):
        found = b""
        used, _, head = unmarshal(cut)
        assert isinstance(head, header.ContentHeader)
        assert head.body_size == len(payload)
        at = used
        while at < len(cut):
            used, _, piece = unmarshal(cut[at:])
            assert isinstance(piece, body.ContentBody)
            assert used <= (frame_max if cut is span else smaller)
            found += piece.value
            at += used
        assert found == payload


@given(st.text(max_size=400))
def test_a_text_is_cut_between_characters(text: str) -> None:
    found = shortened(text)
    assert len(found.encode()) <= 255
    if len(text.encode()) <= 255:
        assert found == text


def test_a_text_may_hold_what_utf_8_cannot() -> None:
    assert shortened("a\udcffb") == "a?b"
