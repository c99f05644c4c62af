from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from tests.core.world import MemoryCheckpoints
from trilogue.core.chain import BLOCK_EXTENTS, Chain, Liveness
from trilogue.core.decoding import Cursor
from trilogue.core.errors import Corrupt
from trilogue.core.snapshot import copy_chain, restore_chain

SEGMENT = 100       # offsets per segment


class Model:
    """A chain as a plain list of what became of each message."""

    def __init__(self) -> None:
        self.liveness = Liveness()
        self.chain = Chain(257, self.liveness)
        self.offset = 0
        self.where: list[int] = []
        self.settled: set[int] = set()
        self.kept: set[int] = set()
        self.store = MemoryCheckpoints()

    def base(self) -> int:
        base = self.offset // SEGMENT * SEGMENT
        self.liveness.opened(base)
        return base

    def add(self, count: int, gap: int) -> None:
        self.offset += gap
        count = min(count, SEGMENT - self.offset % SEGMENT)     # a run never crosses a segment
        self.chain.add(self.offset, count, count, self.base())
        self.where.extend(range(self.offset, self.offset + count))
        self.offset += count

    def settle(self, lo: int, count: int) -> None:
        part = set(range(lo, min(lo + count, len(self.where)))) - self.settled
        assert self.chain.settle(lo, lo + count) == len(part)
        self.settled |= part
        if self.chain.keeps:
            self.kept |= {o for o in part if o >= self.chain.released}

    def move(self, ordinal: int) -> None:
        if ordinal < len(self.where):
            live = ordinal in self.live()
            self.chain.move(ordinal, self.offset, self.base())
            if live:
                self.where[ordinal] = self.offset
            self.offset += 1

    def keep(self, keeps: bool) -> None:
        self.chain.set_keeps(keeps)
        if not keeps:
            self.kept = set()

    def release(self, upto: int) -> None:
        self.chain.release(upto)
        self.kept = {o for o in self.kept if o >= self.chain.released}

    def rewind(self, to: int) -> None:
        back = {o for o in self.kept if o >= to}
        assert self.chain.rewind(to) == len(back)
        self.kept -= back
        self.settled -= back

    def restore(self) -> None:
        w = BytesWriter()
        puts: list[tuple[bytes, bytes]] = []
        copy_chain(w, self.chain, b"p", puts, [])
        self.store.values.update(puts)
        data = w.getvalue()
        keeps = self.chain.keeps
        self.liveness = Liveness()
        for base in range(0, self.offset + 1, SEGMENT):
            self.liveness.opened(base)
        self.chain = Chain(257, self.liveness)
        self.chain.keeps = keeps
        c = Cursor(data, 8, len(data))
        restore_chain(self.chain, c)
        assert c.at == len(data)

    def live(self) -> set[int]:
        return {o for o in range(len(self.where)) if o not in self.settled or o in self.kept}

    def check(self) -> None:
        chain = self.chain
        waiting = [o for o in range(len(self.where)) if o not in self.settled]
        assert chain.waiting() == len(waiting)
        assert chain.floor == (waiting[0] if waiting else len(self.where))
        assert {o for lo, hi in chain.live_ranges(0, chain.next) for o in range(lo, hi)} == self.live()
        live: dict[int, int] = {}
        for o in self.live():
            base = self.where[o] // SEGMENT * SEGMENT
            live[base] = live.get(base, 0) + 1
            offset, stop = chain.extent(o, self.store, b"p")
            assert (offset, stop > o) == (self.where[o], True)
            assert all(self.where[follows] == offset + follows - o for follows in self.live() if o < follows < stop)
        assert {base: n for base, n in self.liveness.live.items() if n} == live
        assert self.liveness.total == sum(live.values())


STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 30), st.integers(0, 2)),
    st.tuples(st.just("settle"), st.integers(0, 80), st.integers(1, 20)),
    st.tuples(st.just("move"), st.integers(0, 80)),
    st.tuples(st.just("keep"), st.booleans()),
    st.tuples(st.just("release"), st.integers(0, 90)),
    st.tuples(st.just("rewind"), st.integers(0, 90)),
    st.tuples(st.just("restore")),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(STEP, max_size=25))
def test_any_history(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
        model.check()
    model.chain.abandon()
    assert not any(model.liveness.live.values())


def test_settled_out_of_order_before_and_after_keeping() -> None:
    """What was settled before the keeping began is not given up a second time; what is kept when it ends is given up."""
    model = Model()
    model.add(10, 0)
    model.settle(5, 2)
    model.keep(True)
    model.add(5, 0)
    model.settle(0, 12)
    model.check()
    model.settle(13, 1)
    model.keep(False)
    model.check()
    model.settle(0, 15)
    assert model.liveness.total == 0


def test_a_rewind_brings_the_bytes_back() -> None:
    chain = Chain(257, Liveness())
    chain.set_keeps(True)
    chain.liveness.opened(0)
    chain.add(0, 10, 1_000, 0)
    chain.lose_size(1_000)
    chain.settle(0, 10)
    assert (chain.size, chain.kept_size) == (0, 1_000)
    assert chain.rewind(5) == 5
    assert (chain.size, chain.kept_size) == (500, 500)
    chain.release(5)
    assert chain.kept_size == 0


def scattered(n: int) -> Chain:
    """No two messages follow each other in the log."""
    chain = Chain(257, Liveness())
    chain.liveness.opened(0)
    for k in range(n):
        chain.add(k * 2, 1, 1, 0)
    return chain


def test_stored_blocks_leave_memory_and_come_back() -> None:
    chain = scattered(BLOCK_EXTENTS * 8)
    store = MemoryCheckpoints()
    puts: list[tuple[bytes, bytes]] = []
    storing: list[object] = []
    copy_chain(BytesWriter(), chain, b"p", puts, storing)
    store.values.update(puts)
    for block in storing:
        block.stored = True
    chain.unload_blocks()
    assert sum(block.loaded for block in chain.blocks) == 4
    middle = BLOCK_EXTENTS * 4 + 17
    assert chain.extent(middle, store, b"p") == (middle * 2, middle + 1)
    chain.settle(0, BLOCK_EXTENTS * 3 + 5)
    assert chain.dropped == [0, BLOCK_EXTENTS, BLOCK_EXTENTS * 2]
    chain.settle(0, chain.next)
    assert (len(chain.dropped), chain.blocks) == (7, [])


def test_a_missing_block_is_corruption() -> None:
    chain = scattered(BLOCK_EXTENTS * 6)
    chain.blocks[2].unload()
    with pytest.raises(Corrupt, match="missing"):
        chain.extent(BLOCK_EXTENTS * 2, MemoryCheckpoints(), b"p")


def test_delivery_counts_go_with_the_message() -> None:
    chain = scattered(10)
    chain.give_back(2, 5)
    chain.give_back(3, 4)
    assert chain.counts == {2: 1, 3: 2, 4: 1}
    chain.settle(0, 4)
    assert chain.counts == {4: 1}
