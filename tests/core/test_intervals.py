from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.core.intervals import Intervals

RANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 12)), max_size=30)


def numbers(intervals: Intervals) -> set[int]:
    return {n for lo, hi in zip(intervals.lo, intervals.hi, strict=True) for n in range(lo, hi)}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RANGES, st.integers(0, 50), st.integers(0, 50))
def test_is_a_set(steps: list[tuple[bool, int, int]], a: int, z: int) -> None:
    intervals, model = Intervals(), set()
    for adds, lo, count in steps:
        part = set(range(lo, lo + count))
        if adds:
            assert intervals.add(lo, lo + count) == len(part - model)
            model |= part
        else:
            assert intervals.remove(lo, lo + count) == len(part & model)
            model -= part
        assert numbers(intervals) == model
        assert intervals.count == len(model)
        assert all(hi < lo for hi, lo in zip(intervals.hi, intervals.lo[1:], strict=False)), "touching ranges are one"
    assert [n in model for n in range(60)] == [intervals.contains(n) for n in range(60)]
    missing = {n for lo, hi in intervals.missing(a, z) for n in range(lo, hi)}
    assert missing == set(range(a, z)) - model


@settings(deadline=None, derandomize=True)
@given(RANGES, st.integers(0, 50))
def test_a_floor_swallows_what_it_reaches(steps: list[tuple[bool, int, int]], floor: int) -> None:
    intervals = Intervals()
    for _, lo, count in steps:
        intervals.add(lo, lo + count)
    model = numbers(intervals)
    raised = floor
    while raised in model:
        raised += 1
    assert intervals.pop_below(floor) == raised
    assert numbers(intervals) == {n for n in model if n >= raised}
    assert intervals.count == len(numbers(intervals))
