"""Whatever has passed the check can be decoded, and encoded again."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, decode, encode

from tests.frontends.amqp.vectors import PROPERTIES, TABLES
from trilogue.frontends.amqp.codec import Properties, ProtocolError, check_table, scan_properties
from trilogue.frontends.amqp.fields import decode_properties, decode_table, encode_table, encode_value


@settings(max_examples=400, deadline=None)
@given(TABLES)
def test_tables_agree_with_pamqp(table: dict[str, Any]) -> None:
    theirs = encode.field_table(table)
    assert decode_table(theirs, 4, len(theirs)) == decode.field_table(theirs)[1]
    ours = encode_table(table)
    check_table(ours, 4, len(ours), 1)
    assert decode.field_table(ours)[1] == decode_table(theirs, 4, len(theirs))


@settings(max_examples=400, deadline=None)
@given(PROPERTIES)
def test_properties_agree_with_pamqp(properties: dict[str, Any]) -> None:
    theirs = commands.Basic.Properties(**properties)
    data = theirs.marshal()
    found = decode_properties(data, 0)
    for name in commands.Basic.Properties.attributes():
        expected = getattr(theirs, name)
        if name != "headers":
            assert (getattr(found, name) or None) == (expected or None), name
    assert found.marshal() == data or found.headers is not None
    again = decode_properties(found.marshal(), 0)
    assert again.headers == found.headers


FLAGS = st.integers(0, 0xFFFF).map(lambda flags: flags & 0xFFFC)


@settings(max_examples=500, deadline=None)
@given(FLAGS, st.binary(max_size=60))
def test_whatever_passed_the_check_is_decoded_and_encoded(flags: int, rest: bytes) -> None:
    data = struct.pack(">H", flags) + rest
    try:
        scan_properties(data, 0, len(data), Properties())
    except ProtocolError:
        return
    again = decode_properties(data, 0).marshal()
    scan_properties(again, 0, len(again), Properties())


VALUES = [
    b"S\0\0\0\x02\xff\xfe", b"T" + b"\xff" * 8, b"T" + b"\0" * 8, b"D\xff\x7f\xff\xff\xff", b"D\0\x80\0\0\0", b"d" + struct.pack(">d", 1e300),
    b"d" + struct.pack(">d", float("nan")), b"f" + struct.pack(">f", float("inf")), b"L" + b"\xff" * 8, b"l\x80" + b"\0" * 7, b"t\x07", b"B\xff",
    b"b\x80", b"u\xff\xff", b"s\x80\0", b"i\xff\xff\xff\xff", b"I\x80\0\0\0", b"V", b"x\0\0\0\x01\xff", b"F\0\0\0\x04\x02\xff\xfeV",
    b"A\0\0\0\x02VV"]


@pytest.mark.parametrize("value", VALUES)
def test_headers_that_nobody_replaced_keep_their_bytes(value: bytes) -> None:
    table = b"\x01a" + value
    check_table(table, 0, len(table), 1)
    data = struct.pack(">HI", 0x2000, len(table)) + table
    found = decode_properties(data, 0)
    assert found.marshal() == data
    assert found.headers is not None
    found.headers["b"] = 1
    changed = found.marshal()
    assert table in changed
    scan_properties(changed, 0, len(changed), Properties())
    found.headers["a"] = "other"
    assert table not in found.marshal()


def test_what_has_no_place_in_a_table_becomes_text_or_nothing() -> None:
    assert encode_value(1 << 70) == encode_value(str(1 << 70))
    assert encode_value(Decimal("1e-300")) == encode_value("1E-300")
    assert encode_value(Decimal("NaN")) == encode_value("NaN")
    assert encode_value(object()) == b"V"
    assert encode_value(datetime(2000, 1, 1, tzinfo=UTC)) == b"T" + struct.pack(">Q", 946_684_800)
