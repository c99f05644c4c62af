"""The sparse index: searching, cutting, and the file that may be damaged anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.store.index import ENTRY_BYTES, KIND_END, Index, decode_end, decode_index, encode_entry

entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9_000), st.integers(0, 100)), max_size=40)


def build(steps: list[tuple[int, int, int]]) -> Index:
    index = Index()
    offset = position = time_ms = 0
    for more_offset, more_position, more_time in steps:
        index.add(offset, position, time_ms)
        offset += more_offset
        position += more_position
        time_ms += more_time
    return index


def rows(index: Index) -> list[tuple[int, int, int]]:
    return [(index.offsets[k], index.positions[k], index.times[k]) for k in range(index.count)]


@given(entries, st.integers(-5, 3_000))
def test_searching_agrees_with_a_plain_walk(steps: list[tuple[int, int, int]], n: int) -> None:
    index = build(steps)
    assert index.at_or_before(n) == sum(offset <= n for offset, _, _ in rows(index)) - 1
    assert index.before_time(n) == sum(time_ms < n for _, _, time_ms in rows(index)) - 1


@given(entries, st.integers(0, 100_000))
def test_cut(steps: list[tuple[int, int, int]], position: int) -> None:
    index = build(steps)
    expected = [row for row in rows(index) if row[1] < position]
    index.cut(position)
    assert rows(index) == expected


@given(entries, st.data())
def test_a_damaged_file_gives_the_entries_before_the_damage(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    index = build(steps)
    encoded = index.encode()
    assert rows(decode_index(encoded, 1 << 40)) == rows(index)
    if encoded:
        at = data.draw(st.integers(0, len(encoded) - 1))
        damaged = encoded[:at] + bytes([encoded[at] ^ 0x10]) + encoded[at + 1:]
        assert rows(decode_index(damaged, 1 << 40)) == rows(index)[:at // ENTRY_BYTES]
        assert rows(decode_index(encoded[:at], 1 << 40)) == rows(index)[:at // ENTRY_BYTES]


def test_entries_out_of_order_or_beyond_the_segment_are_not_believed() -> None:
    index = build([(5, 100, 1)] * 4)
    assert decode_index(index.encode(), 250).count == 3
    assert decode_index(index.encode() + index.encode(), 1_000).count == 4


def test_the_closing_entry() -> None:
    end = decode_end(encode_entry(70, 5_000, 99, KIND_END))
    assert end is not None
    assert (end.offset, end.size, end.time_ms) == (70, 5_000, 99)
    assert decode_end(b"") is None
    assert decode_end(build([(1, 1, 1)]).encode()) is None
