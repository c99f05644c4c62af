"""Everything that can be in an AMQP frame, for hypothesis: methods that clients send, tables, properties, and whole sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from pamqp import commands, frame

from tests.frontends.amqp.host import ack, parts, publish, raw

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789.-_", max_size=40)
SHORTS = st.text(max_size=60)
TEXTS = SHORTS.filter(bool)
BITS = st.booleans()
TAGS = st.integers(0, 5) | st.integers(0, (1 << 63) - 1)

SCALARS: st.SearchStrategy[Any] = (
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=30) | st.none() | st.floats(width=32, allow_nan=False)
    | st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0, tzinfo=UTC))
    | st.decimals(-10_000, 10_000, places=3) | st.binary(max_size=20).map(bytearray))
FIELDS = SHORTS.filter(lambda name: len(name.encode()) < 128)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=4), max_leaves=12)
TABLES = st.dictionaries(FIELDS, VALUES, max_size=6)

PROPERTIES = st.fixed_dictionaries({}, optional={
    "content_type": TEXTS, "content_encoding": TEXTS, "headers": TABLES.filter(bool), "delivery_mode": st.sampled_from([1, 2]),
    "priority": st.integers(0, 255), "correlation_id": TEXTS, "reply_to": NAMES.filter(bool), "expiration": st.integers(0, 10**9).map(str),
    "message_id": TEXTS, "timestamp": st.integers(1, 1 << 32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    "message_type": TEXTS, "user_id": TEXTS, "app_id": TEXTS})

B = commands.Basic
Q = commands.Queue
E = commands.Exchange
METHODS: st.SearchStrategy[Any] = st.one_of(
    st.builds(commands.Connection.StartOk, TABLES, NAMES, st.text(max_size=50), NAMES),
    st.builds(commands.Connection.TuneOk, st.integers(0, 65_535), st.integers(0, 1 << 31), st.integers(0, 65_535)),
    st.builds(commands.Connection.Close, st.integers(0, 65_535), SHORTS, st.integers(0, 65_535), st.integers(0, 65_535)),
    st.builds(commands.Connection.CloseOk),
    st.builds(commands.Channel.Open), st.builds(commands.Channel.Flow, BITS), st.builds(commands.Channel.CloseOk),
    st.builds(commands.Channel.Close, st.integers(0, 65_535), SHORTS, st.integers(0, 65_535), st.integers(0, 65_535)),
    st.builds(E.Declare, exchange=NAMES, exchange_type=NAMES, passive=BITS, durable=BITS, auto_delete=BITS, internal=BITS, nowait=BITS,
              arguments=TABLES),
    st.builds(E.Delete, exchange=NAMES, if_unused=BITS, nowait=BITS),
    st.builds(E.Bind, destination=NAMES, source=NAMES, routing_key=SHORTS, nowait=BITS, arguments=TABLES),
    st.builds(E.Unbind, destination=NAMES, source=NAMES, routing_key=SHORTS, nowait=BITS, arguments=TABLES),
    st.builds(Q.Declare, queue=NAMES, passive=BITS, durable=BITS, exclusive=BITS, auto_delete=BITS, nowait=BITS, arguments=TABLES),
    st.builds(Q.Bind, queue=NAMES, exchange=NAMES, routing_key=SHORTS, nowait=BITS, arguments=TABLES),
    st.builds(Q.Unbind, queue=NAMES, exchange=NAMES, routing_key=SHORTS, arguments=TABLES),
    st.builds(Q.Purge, queue=NAMES, nowait=BITS), st.builds(Q.Delete, queue=NAMES, if_unused=BITS, if_empty=BITS, nowait=BITS),
    st.builds(B.Qos, prefetch_size=st.integers(0, 1 << 31), prefetch_count=st.integers(0, 65_535), global_=BITS),
    st.builds(B.Consume, queue=NAMES, consumer_tag=SHORTS, no_local=BITS, no_ack=BITS, exclusive=BITS, nowait=BITS, arguments=TABLES),
    st.builds(B.Cancel, SHORTS, BITS), st.builds(B.Get, queue=NAMES, no_ack=BITS),
    st.builds(B.Publish, exchange=NAMES, routing_key=SHORTS, mandatory=BITS),
    st.builds(B.Ack, TAGS, BITS), st.builds(B.Nack, TAGS, BITS, BITS), st.builds(B.Reject, TAGS, BITS), st.builds(B.Recover, BITS),
    st.builds(commands.Confirm.Select, BITS), st.builds(commands.Tx.Select), st.builds(commands.Tx.Commit), st.builds(commands.Tx.Rollback))

# What a client might send on an open connection with two channels, in any order: mostly right.
STEPS: st.SearchStrategy[list[bytes]] = st.one_of(
    st.builds(lambda body, key, channel, piece: [publish(body, key, channel, piece=piece)], st.binary(max_size=40),
              st.sampled_from(["q", "q", "r", "nowhere"]), st.sampled_from([1, 2]), st.integers(0, 7)),
    st.builds(lambda body, channel: parts(body, "q", channel, piece=3), st.binary(max_size=20), st.sampled_from([1, 2])),
    st.builds(lambda properties: [publish(b"!", **properties)], PROPERTIES),
    st.builds(lambda tag, channel, multiple: [ack(tag, channel, multiple)], st.integers(0, 8), st.sampled_from([1, 2]), BITS),
    st.builds(lambda command, channel: [frame.marshal(command, channel)], METHODS, st.sampled_from([0, 1, 1, 2, 2, 3])),
    st.sampled_from([[frame.marshal(B.Consume(queue="q"), 1)], [frame.marshal(B.Consume(queue="q", no_ack=True), 2)], [raw(8, 0, b"")],
                     [frame.marshal(Q.Declare(queue="new", durable=True), 1)], [frame.marshal(B.Get(queue="q"), 2)],
                     [frame.marshal(commands.Confirm.Select(), 1)], [frame.marshal(commands.Tx.Select(), 2)],
                     [frame.marshal(commands.Tx.Commit(), 2)], [frame.marshal(B.Nack(1, False, True), 1)],
                     [frame.marshal(commands.Channel.CloseOk(), 1)]]),
    st.builds(lambda kind, channel, payload: [raw(kind, channel, payload)], st.sampled_from([1, 2, 3, 8, 0]), st.integers(0, 3),
              st.binary(max_size=30)))
SESSIONS = st.lists(STEPS, max_size=12).map(lambda steps: b"".join(piece for step in steps for piece in step))
