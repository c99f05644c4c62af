"""How a stored message looks to an AMQP client, when it cannot be passed on as it is: another protocol's, dead-lettered, delayed or redelivered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from librt.strings import BytesWriter
from mypy_extensions import i64

from trilogue.core.batch import write_u16, write_u32
from trilogue.core.deaths import COUNT, EXCHANGE, QUEUE, REASON, ROUTING_KEYS, TIME_MS, deaths_of, delay_of, first_death, rerouted
from trilogue.core.message import ORIGIN_AMQP, ORIGIN_NATIVE, PERSISTENT, Run
from trilogue.frontends.amqp.codec import CONTENT_ENCODING, CONTENT_TYPE, HEADERS, body_of, make_span, properties_of, u16
from trilogue.frontends.amqp.fields import ESCAPE, MessageProperties, u32


def render(run: Run, k: i64, deliveries: i64, frame_max: i64) -> bytes:
    """The span of message `k` for an AMQP client. `deliveries`: how often it was returned."""
    span = run.spans[k]
    if run.origin == ORIGIN_AMQP and not run.notes and deliveries == 0:
        return span
    properties, body = taken_apart(run, span)
    headers: dict[str, Any] = dict(properties.headers or {})
    if run.notes:
        add_deaths(run, properties, headers)
        delay = delay_of(run.notes)
        if delay:
            headers["x-delay"] = -delay         # as the plug-in tells that it is over
    if deliveries:
        headers["x-delivery-count"] = int(deliveries)
    properties.headers = headers or None
    return make_span(properties.marshal(), body, frame_max)


def taken_apart(run: Run, span: bytes) -> tuple[MessageProperties, bytes]:
    if run.origin == ORIGIN_AMQP:
        return properties_of(span), body_of(span)
    properties = MessageProperties()
    properties.delivery_mode = 2 if run.flags & PERSISTENT else 1
    if run.origin == ORIGIN_NATIVE:
        at = 4 + int.from_bytes(span[:4], "big")
        return properties, span[at:]
    return properties, span


def add_deaths(run: Run, properties: MessageProperties, headers: dict[str, Any]) -> None:
    deaths = deaths_of(run.notes)
    if not deaths:
        return
    expiration = properties.expiration
    properties.expiration = None
    first = first_death(run.notes)
    table: list[dict[str, Any]] = []
    for death in deaths:
        entry = {"count": death[COUNT], "reason": death[REASON], "queue": death[QUEUE],
                 "time": datetime.fromtimestamp(death[TIME_MS] // 1000, UTC), "exchange": death[EXCHANGE].decode("utf-8", ESCAPE),
                 "routing-keys": [key.decode("utf-8", ESCAPE) for key in death[ROUTING_KEYS]]}
        if expiration is not None and death[:2] == first[:2]:
            entry["original-expiration"] = expiration       # it had one until its first death
        table.append(entry)
    if rerouted(run.notes):
        headers.pop("CC", None)
    headers["x-death"] = table
    headers["x-first-death-queue"] = first[0]
    headers["x-first-death-reason"] = first[1]
    headers["x-first-death-exchange"] = first[2].decode("utf-8", ESCAPE)
    headers["x-last-death-queue"] = deaths[0][QUEUE]
    headers["x-last-death-reason"] = deaths[0][REASON]
    headers["x-last-death-exchange"] = deaths[0][EXCHANGE].decode("utf-8", ESCAPE)


def with_headers(span: bytes, entries: bytes, frame_max: i64) -> bytes:
    """The same message with more headers, encoded as they stand in a table. Headers that fill a frame stay as they are."""
    end: i64 = 7 + u32(span, 3)
    if end + 1 + len(entries) + 4 > frame_max:
        return span
    flags: i64 = u16(span, 19)
    at: i64 = 21
    if flags & CONTENT_TYPE:
        at += 1 + i64(span[at])
    if flags & CONTENT_ENCODING:
        at += 1 + i64(span[at])
    size: i64 = len(entries)
    rest: i64 = at
    if flags & HEADERS:
        size += u32(span, at)
        rest += 4
    else:
        end += 4
    w = BytesWriter()
    w.write(span[:3])
    write_u32(w, end - 7 + len(entries))
    w.write(span[7:19])
    write_u16(w, flags | HEADERS)
    w.write(span[21:at])
    write_u32(w, size)
    w.write(entries)
    w.write(span[rest:])
    return w.getvalue()
