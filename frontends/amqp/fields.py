"""Field tables and message properties as Python values, for the few messages that somebody must look into.

The bytes have been checked when they came in (`codec.check_table`), and may still hold anything: text that is no UTF-8, times after the year
9999. Whatever passed the check is decoded, and whatever was decoded can be encoded again, since a message that fails here would fail in front
of a consumer who did nothing wrong. Headers that nobody replaced keep their very bytes.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

ESCAPE: Final = "surrogateescape"
SECONDS_MAX: Final = 253_402_300_799    # the end of the year 9999, and of what a datetime can hold
NUMBERS: Final = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "f": ">f", "d": ">d"}

# The properties in the order of their flags, from the highest bit on: s short string, t table, o octet, T time.
PROPERTIES: Final = [
    ("content_type", "s"), ("content_encoding", "s"), ("headers", "t"), ("delivery_mode", "o"), ("priority", "o"), ("correlation_id", "s"),
    ("reply_to", "s"), ("expiration", "s"), ("message_id", "s"), ("timestamp", "T"), ("message_type", "s"), ("user_id", "s"), ("app_id", "s"),
    ("cluster_id", "s"),
]


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


# ------------------------------------------------------------------------------------------------ from bytes

def decode_table(data: bytes, at: i64, end: i64) -> dict[str, Any]:
    table: dict[str, Any] = {}
    while at < end:
        size: i64 = data[at]
        name = data[at + 1:at + 1 + size].decode("utf-8", ESCAPE)
        at += 1 + size
        stop = value_end(data, at)
        table[name] = decode_value(data, at, stop)
        at = stop
    return table


def value_end(data: bytes, at: i64) -> i64:
    """Where the value whose type is at `at` ends."""
    kind = chr(data[at])
    if kind in "SxFA":
        return at + 5 + u32(data, at + 1)
    form = NUMBERS.get(kind)
    if form is not None:
        return at + 1 + struct.calcsize(form)
    return at + (2 if kind == "t" else 6 if kind == "D" else 9 if kind == "T" else 1)


def decode_value(data: bytes, at: i64, end: i64) -> Any:
    kind = chr(data[at])
    if kind == "S":
        return decode_text(data[at + 5:end])
    if kind == "F":
        return decode_table(data, at + 5, end)
    if kind == "A":
        return decode_array(data, at + 5, end)
    if kind == "x":
        return bytearray(data[at + 5:end])
    if kind == "t":
        return data[at + 1] != 0
    if kind == "T":
        return decode_time(data[at + 1:end])
    if kind == "D":
        return Decimal(int.from_bytes(data[at + 2:end], "big", signed=True)).scaleb(-int(data[at + 1]))
    form = NUMBERS.get(kind)
    return None if form is None else struct.unpack(form, data[at + 1:end])[0]


def decode_array(data: bytes, at: i64, end: i64) -> list[Any]:
    values: list[Any] = []
    while at < end:
        stop = value_end(data, at)
        values.append(decode_value(data, at, stop))
        at = stop
    return values


def decode_text(raw: bytes) -> str | bytes:
    """A long string; many of them are not text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def decode_time(raw: bytes) -> datetime | int:
    seconds = int.from_bytes(raw, "big")
    if seconds > SECONDS_MAX:
        return int.from_bytes(raw, "big", signed=True)
    return datetime.fromtimestamp(seconds, UTC)


# ------------------------------------------------------------------------------------------------ to bytes

def encode_table(table: dict[str, Any]) -> bytes:
    return with_length(b"".join([encode_short(name) + encode_value(value) for name, value in table.items()]))


def encode_short(text: str) -> bytes:
    raw = text.encode("utf-8", ESCAPE)[:255]
    return bytes([len(raw)]) + raw


def with_length(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def encode_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return encode_integer(value)
    if isinstance(value, str):
        return b"S" + with_length(value.encode("utf-8", ESCAPE))
    if isinstance(value, bytes):
        return b"S" + with_length(value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, dict):
        return b"F" + encode_table(value)
    if isinstance(value, list):
        return b"A" + with_length(b"".join([encode_value(item) for item in value]))
    if isinstance(value, datetime):
        return b"T" + encode_time(value)
    if isinstance(value, bytearray):
        return b"x" + with_length(bytes(value))
    if isinstance(value, Decimal):
        return encode_decimal(value)
    return b"V"


def encode_integer(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"I" + struct.pack(">i", value)
    if -(1 << 63) <= value < 1 << 63:
        return b"l" + struct.pack(">q", value)
    return encode_value(str(value))


def encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    mantissa = int(value.scaleb(scale)) if value.is_finite() and scale <= 255 else 1 << 31
    if not -(1 << 31) <= mantissa < 1 << 31:
        return encode_value(str(value))
    return b"D" + bytes([scale]) + struct.pack(">i", mantissa)


def encode_time(value: datetime | int) -> bytes:
    seconds = int(value.timestamp()) if isinstance(value, datetime) else value
    return (seconds & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


# ------------------------------------------------------------------------------------------------ properties

class MessageProperties:
    """A message's properties by name; None: not set. Change what must be changed, and `marshal`."""

    def __init__(self) -> None:
        self.content_type: str | None = None
        self.content_encoding: str | None = None
        self.headers: dict[str, Any] | None = None
        self.delivery_mode: int | None = None
        self.priority: int | None = None
        self.correlation_id: str | None = None
        self.reply_to: str | None = None
        self.expiration: str | None = None
        self.message_id: str | None = None
        self.timestamp: datetime | int | None = None
        self.message_type: str | None = None
        self.user_id: str | None = None
        self.app_id: str | None = None
        self.cluster_id: str | None = None
        self.kept: dict[str, tuple[Any, bytes]] = {}    # each header as it came, with the value that was made of it

    def keep_headers(self, data: bytes, at: i64, end: i64) -> None:
        headers: dict[str, Any] = {}
        while at < end:
            size: i64 = data[at]
            stop = value_end(data, at + 1 + size)
            name = data[at + 1:at + 1 + size].decode("utf-8", ESCAPE)
            value = decode_value(data, at + 1 + size, stop)
            headers[name] = value
            if not isinstance(value, dict | list | bytearray):       # those may be changed in place
                self.kept[name] = (value, data[at:stop])
            at = stop
        self.headers = headers

    def encode_headers(self) -> bytes:
        parts: list[bytes] = []
        for name, value in (self.headers or {}).items():
            kept = self.kept.get(name)
            parts.append(kept[1] if kept is not None and kept[0] is value else encode_short(name) + encode_value(value))
        return with_length(b"".join(parts))

    def marshal(self) -> bytes:
        """Flags and all, as they stand in a content header."""
        flags = 0
        parts: list[bytes] = []
        bit = 0x8000
        for name, kind in PROPERTIES:
            value: Any = getattr(self, name)
            if value is not None:
                flags |= bit
                parts.append(encode_short(value) if kind == "s" else self.encode_headers() if kind == "t" else bytes([value]) if kind == "o"
                             else encode_time(value))
            bit >>= 1
        return flags.to_bytes(2, "big") + b"".join(parts)


def decode_properties(data: bytes, at: i64) -> MessageProperties:
    """The property list that begins with the flags at `at`."""
    found = MessageProperties()
    flags: i64 = i64(read_i16_be(data, at)) & 0xFFFF
    at += 2
    bit: i64 = 0x8000
    for name, kind in PROPERTIES:
        if flags & bit:
            if kind == "s":
                size: i64 = 1 + i64(data[at])
                setattr(found, name, data[at + 1:at + size].decode("utf-8", ESCAPE))
            elif kind == "t":
                size = 4 + u32(data, at)
                found.keep_headers(data, at + 4, at + size)
            elif kind == "o":
                size = 1
                setattr(found, name, int(data[at]))
            else:
                size = 8
                setattr(found, name, decode_time(data[at:at + 8]))
            at += size
        bit >>= 1
    return found
