"""The list of segments: finding by offset, and replacing while others look."""

from __future__ import annotations

import pytest

from tests.faults.simdisk import SimDisk
from trilogue.core.errors import Corrupt
from trilogue.store.files import Files
from trilogue.store.segment import Segment, SegmentList, base_of


def make(*ranges: tuple[int, int]) -> SegmentList:
    disk = SimDisk()
    disk.mkdir("/d")
    segments = SegmentList(disk, Files(disk, 8), "/d", 512)
    for base, end in ranges:
        segment = Segment("/d", base)
        segment.end = end
        disk.close(disk.open(segment.path, True))
        segments.add(segment)
    return segments


def test_find_gives_the_holder_or_the_next_one() -> None:
    segments = make((5, 10), (10, 20), (40, 50))
    found = [segments.find(segments.items, offset) for offset in (0, 5, 9, 10, 19, 20, 39, 40, 49, 50)]
    assert found == [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]


def test_a_snapshot_stays_as_it_was() -> None:
    segments = make((0, 10), (10, 20), (20, 30))
    snapshot = segments.items
    segments.remove([snapshot[1]])
    assert [segment.base for segment in snapshot] == [0, 10, 20]
    assert [segment.base for segment in segments.items] == [0, 20]
    assert segments.open(snapshot[1]) is None
    assert segments.open(snapshot[0]) is not None


def test_swap_only_if_all_are_still_there() -> None:
    segments = make((0, 10), (10, 20), (20, 30), (30, 40))
    first, second, third, _ = segments.items
    new = Segment("/d", 0)
    new.end = 20
    assert segments.swap([first, second], new)
    assert [(segment.base, segment.end) for segment in segments.items] == [(0, 20), (20, 30), (30, 40)]
    assert not segments.swap([first, third], Segment("/d", 0))
    assert segments.swap([third], None)
    assert [segment.base for segment in segments.items] == [0, 30]


def test_names() -> None:
    assert base_of(f"{123:020d}.log") == 123
    assert base_of(f"{123:020d}.idx") == -1
    with pytest.raises(Corrupt):
        base_of("123.log")
