from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from trilogue.core.batch import Header
from trilogue.core.decoding import decode, same
from trilogue.core.errors import Corrupt
from trilogue.core.message import Run
from trilogue.core.record import (
    Carried,
    Delayed,
    Due,
    HandedIn,
    HandedOver,
    Letter,
    Messages,
    Metadata,
    Number,
    Progress,
    QueueGone,
    QueueKeeps,
    Record,
    Released,
    Removed,
    Returned,
    Rewound,
    RouteDefined,
    SentAgain,
    State,
    message_head,
    route_part,
    write_messages,
    write_record,
)

BASE, TIME_MS = 1_000, 5_000


def header() -> Header:
    return Header(0, 0, BASE, BASE, 1, 0, TIME_MS, 0, 0, 0, 0)


def run(*spans: bytes, **more: object) -> Run:
    made = Run(b"ex", b"key", 2, list(spans), sum(map(len, spans)), 1, 3, -1, more.get("key", b"k"), more.get("notes", b""))
    made.deadline_ms = 77
    made.time_ms = TIME_MS + 4
    return made


LETTERS = [Letter(17, [5 << 8, 6 << 8 | 9], b"dlx", b"dk", b"notes"), Letter(18, [], b"", b"", b"")]
RECORDS: list[Record] = [
    RouteDefined([1, 2, 3, 4, 5]), Progress(257, 9, 1_000, [1, 5], [3, 8]), Progress(257, -1, 0, [], []), Returned(257, True, [1], [2]),
    Removed(257, 2, 33, [4], [6], LETTERS, 99), Removed(257, 5, 0, [1, 9], [2, 12], [], -1), QueueGone(8),
    HandedIn(16, Number(1, 2, 3), True, run(b"span"), [257]), HandedIn(16, Number(1, 2, 3), False, run(b""), []),
    HandedOver(17, Number(4, 5, 6), [Number(4, 5, 5)]), Carried(5, [257, -1], [8, -1], run(b"old")), Metadata(b"change"),
    Delayed(9_999, run(b"later")), Released(257, 4), State(b"name", b"value"), State(b"name", b""), QueueKeeps(8, True), Rewound(257, 3),
    SentAgain(17, [Number(1, 1, 1), Number(1, 2, 0)]), Due(1_000, LETTERS),
]


def plain(value: object) -> object:
    """A record as values that can be compared."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (Record, Run, Letter, Number)):
        return type(value).__name__, {name: plain(getattr(value, name)) for name in fields(value)}
    return value


def fields(value: object) -> list[str]:
    hidden = {"offset", "ttl_ms", "run_at"} if not isinstance(value, Number) else set()
    names = [name for name in dir(value) if not name.startswith("_") and name not in hidden and not callable(getattr(value, name))]
    return [name for name in names if not (isinstance(value, (Removed, Due)) and name == "run")]


def encoded(*records: Record) -> bytes:
    w = BytesWriter()
    for delta, record in enumerate(records):
        write_record(w, delta, 4, record)
    return w.getvalue()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Record) -> None:
    [found] = decode(header(), encoded(record))
    assert found.offset == BASE
    assert plain(found) == plain(record)


def test_all_kinds_in_one_batch() -> None:
    found = decode(header(), encoded(*RECORDS))
    assert [record.offset for record in found] == list(range(BASE, BASE + len(RECORDS)))
    assert [plain(record) for record in found] == [plain(record) for record in RECORDS]


def messages(w: BytesWriter, delta: int, made: Run, targets: list[int], route: int = -1) -> None:
    write_messages(w, delta, message_head(made, 4, route_part(targets, route)), made.spans)


def test_equal_neighbours_become_one_run_and_others_do_not() -> None:
    w = BytesWriter()
    messages(w, 0, run(b"a", b"bb"), [257])
    messages(w, 2, run(b"ccc"), [257])                      # another publish, the same head: joined
    messages(w, 3, run(b"d"), [258])                        # other targets
    messages(w, 4, run(b"e"), [], 1_000)                    # by a route
    messages(w, 5, run(b"f", notes=b"n"), [], 1_000)
    write_record(w, 6, 4, QueueGone(1))
    messages(w, 7, run(b"g", notes=b"n"), [], 1_000)        # something came between
    messages(w, 9, run(b"h", notes=b"n"), [], 1_000)        # a hole in the offsets
    found = decode(header(), w.getvalue())
    runs = [record for record in found if isinstance(record, Messages)]
    assert [record.run.spans for record in runs] == [[b"a", b"bb", b"ccc"], [b"d"], [b"e"], [b"f"], [b"g"], [b"h"]]
    assert [record.offset for record in runs] == [1_000, 1_003, 1_004, 1_005, 1_007, 1_009]
    assert [record.targets for record in runs] == [[257], [258], [], [], [], []]
    assert [record.route for record in runs] == [-1, -1, 1_000, 1_000, 1_000, 1_000]
    first = runs[0].run
    assert (first.exchange, first.routing_key, first.key, first.origin, first.priority, first.flags) == (b"ex", b"key", b"k", 2, 3, 1)
    assert (first.deadline_ms, first.time_ms, first.size, first.offset) == (77, TIME_MS + 4, 6, 1_000)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=5), min_size=1, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_however_runs_are_split_the_messages_are_the_same(runs: list[list[bytes]], equal: list[bool]) -> None:
    w = BytesWriter()
    delta = 0
    for spans, alike in zip(runs, equal, strict=False):
        messages(w, delta, run(*spans, key=b"" if alike else b"other"), [257])
        delta += len(spans)
    found = [(record.offset + k, span) for record in decode(header(), w.getvalue()) for k, span in enumerate(record.run.spans)]
    assert found == list(enumerate([span for spans in runs for span in spans], BASE))
    assert all(record.run.size == sum(map(len, record.run.spans)) for record in decode(header(), w.getvalue()))


def whole() -> bytes:
    w = BytesWriter()
    messages(w, 0, run(b"a" * 30, b"b" * 3), [257])
    w.write(encoded(*RECORDS))
    return w.getvalue()


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, len(whole()) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, len(whole())))
def test_damage_is_corrupt_or_another_record_but_nothing_else(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(whole())
    for at, value in changes:
        data[at] = value
    for damaged in (bytes(data), bytes(data[:cut])):
        try:
            decode(header(), damaged)
        except Corrupt:
            pass


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_rubbish_is_corrupt(data: bytes) -> None:
    try:
        decode(header(), data)
    except Corrupt:
        pass


def test_an_unknown_type_says_so() -> None:
    with pytest.raises(Corrupt, match="record type 99 is not known to this version"):
        decode(header(), bytes([0, 0, 0, 9, 0, 0, 0, 0, 99, 0, 0, 0, 0]))


@settings(deadline=None, derandomize=True)
@given(st.binary(min_size=1, max_size=40), st.integers(0, 39))
def test_same(data: bytes, at: int) -> None:
    other = bytearray(data)
    other[at % len(data)] ^= 1
    assert same(data + data, 0, len(data), len(data))
    assert not same(data + bytes(other), 0, len(data), len(data))


def test_order_of_numbers() -> None:
    numbers = [Number(1, 9, 9), Number(2, 1, 1), Number(2, 1, 2), Number(2, 2, 0), Number(3, 0, 0)]
    for a, one in enumerate(numbers):
        for b, other in enumerate(numbers):
            assert (one.above(other), one.same(other)) == (a > b, a == b)
