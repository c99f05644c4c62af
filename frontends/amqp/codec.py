"""AMQP 0-9-1 bytes: what a frame is made of, checked before anything looks inside. No state and no I/O.

Publish, deliver and acknowledge never leave this module's helpers. Other methods are decoded by pamqp, which only ever sees one whose every
length, and whose tables' depth, `check_method` has walked first. Messages are looked into by `fields.py`, after `scan_properties`.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64
from pamqp import commands, frame

from trilogue.core.batch import write_u16, write_u32
from trilogue.frontends.amqp.fields import MessageProperties, decode_properties, u32

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8
FRAME_MAX: Final = 131_072       # what we offer
FRAME_MIN: Final = 4_096         # what a client may ask for at least
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

BASIC: Final = 60
PUBLISH: Final = 60 << 16 | 40
ACK: Final = 60 << 16 | 80
DELIVER: Final = 60 << 16 | 60
GET_OK: Final = 60 << 16 | 71

FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
NOT_IMPLEMENTED: Final = 540

SHORT_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 32

# What clients may send, by class and method: h u16, l u32, q u64, o octet (or bits), s short string, S long string, t table.
SIGNATURES: Final = {
    10 << 16 | 11: "tsSs", 10 << 16 | 21: "S", 10 << 16 | 31: "hlh", 10 << 16 | 40: "sso", 10 << 16 | 50: "hshh", 10 << 16 | 51: "",
    10 << 16 | 70: "Ss",
    20 << 16 | 10: "s", 20 << 16 | 20: "o", 20 << 16 | 21: "o", 20 << 16 | 40: "hshh", 20 << 16 | 41: "",
    40 << 16 | 10: "hssot", 40 << 16 | 20: "hso", 40 << 16 | 30: "hsssot", 40 << 16 | 40: "hsssot",
    50 << 16 | 10: "hsot", 50 << 16 | 20: "hsssot", 50 << 16 | 30: "hso", 50 << 16 | 40: "hso", 50 << 16 | 50: "hssst",
    60 << 16 | 10: "lho", 60 << 16 | 20: "hssot", 60 << 16 | 30: "so", 60 << 16 | 31: "s", 60 << 16 | 40: "hsso", 60 << 16 | 70: "hso",
    60 << 16 | 80: "qo", 60 << 16 | 90: "qo", 60 << 16 | 100: "o", 60 << 16 | 110: "o", 60 << 16 | 120: "qo",
    85 << 16 | 10: "o", 90 << 16 | 10: "", 90 << 16 | 20: "", 90 << 16 | 30: "",
}

# Bits of a message's property flags, in the order of the fields.
CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004
CONTINUED: Final = 0x0001

WIDTHS: Final = {"b": 1, "B": 1, "t": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "D": 5, "l": 8, "L": 8, "d": 8, "T": 8, "V": 0}


class ProtocolError(Exception):
    """The peer broke the protocol; the connection is closed with this reply code."""

    def __init__(self, code: int, text: str, method: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method


class LostSync(ProtocolError):
    """Nobody knows where the next frame begins, so nothing more can be understood."""


# ------------------------------------------------------------------------------------------------ checking

def check_method(data: bytes, at: i64, end: i64) -> i64:
    """Walk a method's arguments; returns its class and method as one number. Raises unless they end exactly at `end`."""
    if end - at < 4:
        raise ProtocolError(FRAME_ERROR, "a method frame has at least four bytes")
    method: i64 = i64(read_i32_be(data, at))
    signature = SIGNATURES.get(method)
    if signature is None:
        name = f"method {(method >> 16) & 0xFFFF}.{method & 0xFFFF}"
        if method in commands.INDEX_MAPPING:
            raise ProtocolError(COMMAND_INVALID, f"{name} is not one that a client may send", method)
        raise ProtocolError(NOT_IMPLEMENTED, f"{name} is unknown", method & 0xFFFFFFFF)
    at += 4
    for kind in signature:
        at = skip_field(data, at, end, kind)
    if at != end:
        raise ProtocolError(SYNTAX_ERROR, f"{end - at} bytes after the last argument of a method", method)
    return method


def skip_field(data: bytes, at: i64, end: i64, kind: str) -> i64:
    size: i64 = 0
    if kind == "s":
        if at < end:
            size = 1 + i64(data[at])
        else:
            size = 1
    elif kind == "S" or kind == "t":
        if end - at >= 4:
            size = 4 + u32(data, at)
            if at + size <= end and kind == "t":
                check_table(data, at + 4, at + size, 1)
        else:
            size = 4
    elif kind == "h":
        size = 2
    elif kind == "l":
        size = 4
    elif kind == "q":
        size = 8
    else:
        size = 1
    if at + size > end:
        raise ProtocolError(SYNTAX_ERROR, "an argument overruns its frame")
    return at + size


def u16(data: bytes, at: i64) -> i64:
    return i64(read_i16_be(data, at)) & 0xFFFF


def check_table(data: bytes, at: i64, end: i64, depth: i64) -> None:
    """Every name and value lies within [at, end), and tables are not nested deeper than anybody means."""
    if depth > DEPTH_MAX:
        raise ProtocolError(SYNTAX_ERROR, f"tables are nested deeper than {DEPTH_MAX}")
    while at < end:
        at += 1 + i64(data[at])
        if at >= end:
            raise ProtocolError(SYNTAX_ERROR, "a table's name overruns the table")
        at = check_value(data, at, end, depth)


def check_value(data: bytes, at: i64, end: i64, depth: i64) -> i64:
    kind: i64 = data[at]
    at += 1
    if kind == 0x53 or kind == 0x78:            # S, x: a length and so many bytes
        if end - at < 4:
            raise ProtocolError(SYNTAX_ERROR, "a value overruns its table")
        at += 4 + u32(data, at)
    elif kind == 0x46 or kind == 0x41:          # F, A
        if end - at < 4:
            raise ProtocolError(SYNTAX_ERROR, "a value overruns its table")
        stop: i64 = at + 4 + u32(data, at)
        if stop > end:
            raise ProtocolError(SYNTAX_ERROR, "a value overruns its table")
        if kind == 0x46:
            check_table(data, at + 4, stop, depth + 1)
        else:
            if depth >= DEPTH_MAX:
                raise ProtocolError(SYNTAX_ERROR, f"tables are nested deeper than {DEPTH_MAX}")
            at += 4
            while at < stop:
                at = check_value(data, at, stop, depth + 1)
        at = stop
    else:
        width = WIDTHS.get(chr(kind))
        if width is None:
            raise ProtocolError(SYNTAX_ERROR, f"a table has a value of unknown type {kind}")
        at += width
    if at > end:
        raise ProtocolError(SYNTAX_ERROR, "a value overruns its table")
    return at


class Properties:
    """What the broker needs to know about a message, from its content header. `special`: more than the hot path looks at."""

    def __init__(self) -> None:
        self.persistent: bool = False
        self.priority: i64 = 0
        self.expiration: bytes = b""
        self.special: bool = False


def scan_properties(data: bytes, at: i64, end: i64, out: Properties) -> None:
    """Walk the property list that begins with the flags at `at`, check every length, and note what matters."""
    out.persistent = False
    out.priority = 0
    out.expiration = b""
    out.special = False
    if end - at < 2:
        raise ProtocolError(FRAME_ERROR, "a content header without property flags")
    flags: i64 = i64(read_i16_be(data, at)) & 0xFFFF
    if flags & 3:
        raise ProtocolError(SYNTAX_ERROR, "property flags that no property has")
    at += 2
    if flags & CONTENT_TYPE:
        at = skip_short(data, at, end)
    if flags & CONTENT_ENCODING:
        at = skip_short(data, at, end)
    if flags & HEADERS:
        if end - at < 4 or at + 4 + u32(data, at) > end:
            raise ProtocolError(SYNTAX_ERROR, "the headers overrun the content header")
        stop: i64 = at + 4 + u32(data, at)
        check_table(data, at + 4, stop, 1)
        out.special = has_special(data, at + 4, stop)
        at = stop
    if flags & DELIVERY_MODE:
        if at >= end:
            raise ProtocolError(SYNTAX_ERROR, "the properties overrun the content header")
        out.persistent = data[at] == 2
        at += 1
    if flags & PRIORITY:
        if at >= end:
            raise ProtocolError(SYNTAX_ERROR, "the properties overrun the content header")
        out.priority = data[at]
        at += 1
    if flags & CORRELATION_ID:
        at = skip_short(data, at, end)
    if flags & REPLY_TO:
        start = at
        at = skip_short(data, at, end)
        if data[start + 1:at].startswith(b"amq.rabbitmq.reply-to"):
            out.special = True
    if flags & EXPIRATION:
        start = at
        at = skip_short(data, at, end)
        out.expiration = data[start + 1:at]
    if flags & MESSAGE_ID:
        at = skip_short(data, at, end)
    if flags & TIMESTAMP:
        at += 8
    if flags & TYPE:
        at = skip_short(data, at, end)
    if flags & USER_ID:
        at = skip_short(data, at, end)
        out.special = True
    if flags & APP_ID:
        at = skip_short(data, at, end)
    if flags & CLUSTER_ID:
        at = skip_short(data, at, end)
    if at != end:
        raise ProtocolError(SYNTAX_ERROR, "the properties do not end with the content header")


def skip_short(data: bytes, at: i64, end: i64) -> i64:
    if at >= end or at + 1 + i64(data[at]) > end:
        raise ProtocolError(SYNTAX_ERROR, "a property overruns the content header")
    return at + 1 + i64(data[at])


def has_special(data: bytes, at: i64, end: i64) -> bool:
    """Is there a header that the broker acts on: CC, BCC, x-delay, x-deduplication-header? (The table has been checked.)"""
    while at < end:
        n: i64 = data[at]
        name = data[at + 1:at + 1 + n]
        if name == b"CC" or name == b"BCC" or name == b"x-delay" or name == b"x-deduplication-header":
            return True
        at = check_value(data, at + 1 + n, end, 1)
    return False


# ------------------------------------------------------------------------------------------------ pamqp

def decode_method(data: bytes) -> Any:
    """A whole method frame that `check_method` has passed, as pamqp's object."""
    try:
        return frame.unmarshal(data)[2]
    except Exception as error:      # pamqp has no one class of errors
        raise ProtocolError(SYNTAX_ERROR, f"a method could not be decoded: {error}") from None


def encode_method(command: Any, channel: i64) -> bytes:
    data: bytes = frame.marshal(command, channel)
    return data


def close_connection(code: int, text: str, method: int) -> bytes:
    return encode_method(commands.Connection.Close(code, shortened(text), method >> 16, method & 0xFFFF), 0)


def close_channel(channel: i64, code: int, text: str, method: int) -> bytes:
    return encode_method(commands.Channel.Close(code, shortened(text), method >> 16, method & 0xFFFF), channel)


def shortened(text: str) -> str:
    """What of a text fits into a short string; it may quote anything that a client sent."""
    return text.encode("utf-8", "replace")[:SHORT_BYTES_MAX].decode("utf-8", "ignore")


# ------------------------------------------------------------------------------------------------ hot frames

def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def ack_frame(channel: i64, tag: i64, multiple: bool) -> bytes:
    return confirm_frame(channel, tag, multiple, 80)


def nack_frame(channel: i64, tag: i64, multiple: bool) -> bytes:
    return confirm_frame(channel, tag, multiple, 120)


def confirm_frame(channel: i64, tag: i64, multiple: bool, method: i64) -> bytes:
    w = BytesWriter()
    w.append(METHOD)
    write_u16(w, channel)
    write_u32(w, 13)
    write_u16(w, BASIC)
    write_u16(w, method)
    write_i64_be(w, tag)
    w.append(1 if multiple else 0)
    w.append(FRAME_END)
    return w.getvalue()


def body_of(span: bytes) -> bytes:
    """The body inside a span: content header frame, then body frames."""
    at: i64 = FRAME_OVERHEAD + u32(span, 3)
    n: i64 = len(span)
    if at >= n:
        return b""
    size: i64 = u32(span, at + 3)
    if at + FRAME_OVERHEAD + size == n:
        return span[at + 7:at + 7 + size]
    parts: list[bytes] = []
    while at < n:
        size = u32(span, at + 3)
        parts.append(span[at + 7:at + 7 + size])
        at += FRAME_OVERHEAD + size
    return b"".join(parts)


def properties_of(span: bytes) -> MessageProperties:
    """A span's properties. (They were checked when the message came in.)"""
    return decode_properties(span, 19)


def body_size(span: bytes) -> i64:
    return read_i64_be(span, 11)


def fitted(span: bytes, frame_max: i64) -> bytes:
    """The same message in frames of at most `frame_max`."""
    at: i64 = 0
    while at < len(span):
        size: i64 = FRAME_OVERHEAD + u32(span, at + 3)
        if size > frame_max:
            return make_span(span[19:FRAME_OVERHEAD + u32(span, 3) - 1], body_of(span), frame_max)
        at += size
    return span


def make_span(properties: bytes, body: bytes, frame_max: i64) -> bytes:
    """A span from encoded properties (flags and all) and a body."""
    w = BytesWriter()
    w.append(HEADER)
    write_u16(w, 1)
    write_u32(w, 12 + len(properties))
    write_u16(w, BASIC)
    write_u16(w, 0)
    write_i64_be(w, len(body))
    w.write(properties)
    w.append(FRAME_END)
    step: i64 = frame_max - FRAME_OVERHEAD
    at: i64 = 0
    n: i64 = len(body)
    while at < n:
        part = body[at:at + step]
        w.append(BODY)
        write_u16(w, 1)
        write_u32(w, len(part))
        w.write(part)
        w.append(FRAME_END)
        at += step
    return w.getvalue()
