"""Which segments go, by age and by size."""

from __future__ import annotations

from trilogue.core.ports import SegmentInfo
from trilogue.store.retention import outdated

SEGMENTS = [SegmentInfo(k * 10, k * 10 + 10, 100, 1_000 * (k + 1)) for k in range(5)]


def test_by_age() -> None:
    assert outdated(SEGMENTS, 3_500, 1_000, -1) == [0, 10]
    assert outdated(SEGMENTS, 3_000, 1_000, -1) == [0]
    assert outdated(SEGMENTS, 3_000, -1, -1) == []
    assert outdated(SEGMENTS, 1 << 40, 0, -1) == [0, 10, 20, 30], "the active one stays"


def test_by_size() -> None:
    assert outdated(SEGMENTS, 0, -1, 500) == []
    assert outdated(SEGMENTS, 0, -1, 400) == [0]
    assert outdated(SEGMENTS, 0, -1, 301) == [0]
    assert outdated(SEGMENTS, 0, -1, 0) == [0, 10, 20, 30]


def test_either_reason_is_enough() -> None:
    assert outdated(SEGMENTS, 3_500, 1_000, 200) == [0, 10, 20]
    assert outdated([], 0, 0, 0) == []
