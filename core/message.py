"""What is published: a run of messages that share everything but their bytes.

A message is one `bytes` object, its *span*: properties and body as the protocol it came by encoded them. The span describes itself; the
`origin` says whose encoding it is. Nobody takes it apart on the way from a publisher to a consumer of the same protocol.

An object exists per `Run`, not per message: consecutive messages of one read with the same address, priority, lifetime and persistence are
looked up, authorised, appended and delivered together. A run is contiguous in the log (`offset + j`) and in every queue it is in.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from trilogue.core.batch import write_u16, write_u32

ORIGIN_NATIVE: Final = 0    # span: u32 length of a CBOR map of core fields, the map, the body
ORIGIN_AMQP: Final = 1      # span: content header frame and body frames as received
ORIGIN_MQTT: Final = 2      # defined by frontends/mqtt
ORIGIN_STOMP: Final = 3     # defined by frontends/stomp

PERSISTENT: Final = 1       # Run.flags: a confirm waits for the disk
RETAIN: Final = 2           # Run.flags: also replace what is retained under this address
MORE_KEYS: Final = 4        # Run.flags: the span names further routing keys (`Lens.keys`)

KEY_BYTES_MAX: Final = 65_535
EXCHANGE_BYTES_MAX: Final = 255
NOTES_BYTES_MAX: Final = 65_535


class Run:
    """Consecutive messages with one address. Immutable once appended; `offset` and `time_ms` are set by the partition that appends it."""

    def __init__(self, exchange: bytes, routing_key: bytes, origin: i64, spans: list[bytes], size: i64, flags: i64 = 0,
                 priority: i64 = 0, ttl_ms: i64 = -1, key: bytes = b"", notes: bytes = b"") -> None:
        self.exchange: bytes = exchange
        self.routing_key: bytes = routing_key
        self.origin: i64 = origin
        self.spans: list[bytes] = spans
        self.size: i64 = size               # sum of the spans' lengths
        self.flags: i64 = flags
        self.priority: i64 = priority
        self.ttl_ms: i64 = ttl_ms           # asked for by the publisher; -1: none
        self.key: bytes = key               # for partitioning and compaction; empty: the routing key stands in
        self.notes: bytes = notes           # CBOR: what the broker itself has to say about the message (deaths, delay)
        self.deadline_ms: i64 = 0           # absolute; 0: never
        self.offset: i64 = -1
        self.time_ms: i64 = 0

    def __len__(self) -> int:
        return len(self.spans)

    def part(self, start: i64, stop: i64) -> Run:
        """The messages [start, stop) as a run of their own."""
        spans = self.spans[start:stop]
        size: i64 = 0
        for span in spans:
            size += len(span)
        run = Run(self.exchange, self.routing_key, self.origin, spans, size, self.flags, self.priority, self.ttl_ms, self.key, self.notes)
        run.deadline_ms = self.deadline_ms
        run.offset = self.offset + start if self.offset >= 0 else -1
        run.time_ms = self.time_ms
        return run


def encode_address(w: BytesWriter, exchange: bytes, routing_key: bytes, key: bytes, notes: bytes) -> None:
    w.append(len(exchange))
    w.write(exchange)
    write_u16(w, len(routing_key))
    w.write(routing_key)
    write_u16(w, len(key))
    w.write(key)
    write_u16(w, len(notes))
    w.write(notes)


def native_span(fields: bytes, body: bytes) -> bytes:
    """A span of our own encoding: `fields` is a CBOR map (or empty)."""
    w = BytesWriter()
    write_u32(w, len(fields))
    w.write(fields)
    w.write(body)
    return w.getvalue()

