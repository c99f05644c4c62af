from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.world import MemoryCheckpoints
from trilogue.core.chain import Chain, Liveness
from trilogue.core.lane import Lane, LaneOwner, Source
from trilogue.core.message import Run
from trilogue.core.refused import RefusedLog
from trilogue.core.unacked import Held, Unacked, hold
from trilogue.core.window import Budget

PIECES = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=8)
ANSWERS = st.lists(st.tuples(st.sampled_from(["one", "upto", "range"]), st.integers(1, 50), st.integers(0, 6)), max_size=30)


class Owner(LaneOwner):
    def lane_ready(self) -> None: ...

    def lane_failed(self, error: Exception) -> None: ...


LANE = Lane(Chain(257, Liveness()), Source(RefusedLog("nothing is read here"), MemoryCheckpoints(), b"", Budget(0, 0)), Owner())


def filled(pieces: list[list[int]]) -> tuple[Unacked, dict[int, tuple[int, int]]]:
    """(ordinal, size) by tag; ordinals are a thousand above the tag, so that the two cannot be mixed up."""
    unacked, model, tag = Unacked(), {}, 1
    for sizes in pieces:
        run = Run(b"", b"", 0, [b"x", *[b"x" * size for size in sizes]], 1 + sum(sizes))
        unacked.add(hold(tag, LANE, tag + 1_000, run, 1, len(sizes), None))
        for size in sizes:
            model[tag] = (tag + 1_000, size)
            tag += 1
    return unacked, model


def flat(taken: list[Held]) -> dict[int, tuple[int, int]]:
    out = {}
    for held in taken:
        for k in range(held.count):
            out[held.tag + k] = (held.ordinal + k, held.bytes_of(k, 1))
        assert held.bytes_of(0, held.count) == sum(held.bytes_of(k, 1) for k in range(held.count))
    return out


@settings(max_examples=200, deadline=None, derandomize=True)
@given(PIECES, ANSWERS)
def test_any_order_of_answers(pieces: list[list[int]], answers: list[tuple[str, int, int]]) -> None:
    unacked, model = filled(pieces)
    for kind, tag, more in answers:
        if kind == "upto":
            taken = flat(unacked.take_upto(tag))
            expected = {t: v for t, v in model.items() if t <= tag}
        else:
            last = tag + more if kind == "range" else tag
            found = unacked.take(tag, last)
            wanted = set(range(tag, last + 1))
            assert (found is not None) == (wanted <= model.keys())
            taken = flat(found or [])
            expected = {t: model[t] for t in wanted} if found is not None else {}
        assert taken == expected
        for t in taken:
            del model[t]
        assert unacked.count == len(model)
        assert [unacked.find(t) >= 0 for t in range(60)] == [t in model for t in range(60)]
    assert flat(unacked.take_all()) == model
    assert unacked.count == 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(PIECES, st.lists(st.integers(1, 50), max_size=20))
def test_what_was_taken_out_goes_back_to_its_place(pieces: list[list[int]], tags: list[int]) -> None:
    unacked, model = filled(pieces)
    taken: list[Held] = []
    for tag in tags:
        taken.extend(unacked.take(tag, tag) or [])
    unacked.restore(taken)
    assert unacked.count == len(model)
    assert [unacked.find(t) >= 0 for t in range(60)] == [t in model for t in range(60)]
    assert [held.tag for held in unacked.held] == sorted(held.tag for held in unacked.held)
    assert flat(unacked.take_upto(60)) == model
