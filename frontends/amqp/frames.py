"""What is sent with every message: the frames of a message as one client can take them, and the methods that carry names as clients
chose them, made here since pamqp knows fewer characters and lengths than a name may have."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, write_i64_be
from mypy_extensions import i64, u8

from trilogue.core.batch import write_u16, write_u32
from trilogue.core.message import Run
from trilogue.frontends.amqp.codec import BASIC, FRAME_END, FRAME_OVERHEAD, METHOD, fitted, short

QUEUE: Final = 50
NO_ROUTE: Final = 312
NAME_BYTES_MAX: Final = 255


def method_frame(channel: i64, class_id: i64, method_id: i64, arguments: bytes) -> bytes:
    w = BytesWriter()
    w.append(METHOD)
    write_u16(w, channel)
    write_u32(w, 4 + len(arguments))
    write_u16(w, class_id)
    write_u16(w, method_id)
    w.write(arguments)
    w.append(FRAME_END)
    return w.getvalue()


def address(run: Run) -> bytes:
    """Another protocol's routing key may be longer than AMQP can say."""
    return short(run.exchange) + short(run.routing_key[:NAME_BYTES_MAX])


def delivered(channel: i64, consumer_tag: bytes, tag: i64, again: bool, run: Run) -> bytes:
    w = BytesWriter()
    w.write(short(consumer_tag))
    write_i64_be(w, tag)
    w.append(1 if again else 0)
    w.write(address(run))
    return method_frame(channel, BASIC, 60, w.getvalue())


def got(channel: i64, tag: i64, again: bool, run: Run, left: i64) -> bytes:
    w = BytesWriter()
    write_i64_be(w, tag)
    w.append(1 if again else 0)
    w.write(address(run))
    write_u32(w, left)
    return method_frame(channel, BASIC, 71, w.getvalue())


def returned(channel: i64, run: Run) -> bytes:
    w = BytesWriter()
    write_u16(w, NO_ROUTE)
    w.write(short(b"NO_ROUTE"))
    w.write(address(run))
    return method_frame(channel, BASIC, 50, w.getvalue())


def queue_declared(channel: i64, name: str, messages: i64, consumers: i64) -> bytes:
    w = BytesWriter()
    w.write(short(name.encode()))
    write_u32(w, messages)
    write_u32(w, consumers)
    return method_frame(channel, QUEUE, 11, w.getvalue())


def write_span(w: BytesWriter, span: bytes, channel: i64, frame_max: i64) -> None:
    """A message's frames, under another channel number if need be, and cut smaller if the client cannot take them so large."""
    if len(span) > frame_max:
        span = fitted(span, frame_max)
    if (i64(read_i16_be(span, 1)) & 0xFFFF) == channel:
        w.write(span)
        return
    at: i64 = len(w)
    w.write(span)
    n: i64 = len(w)
    while at < n:
        w[at + 1] = u8(channel >> 8)
        w[at + 2] = u8(channel & 255)
        at += FRAME_OVERHEAD + ((i64(w[at + 3]) << 24) | (i64(w[at + 4]) << 16) | (i64(w[at + 5]) << 8) | i64(w[at + 6]))
