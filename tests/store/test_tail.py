"""A tail is put back by the next start, however far the last one got."""

from __future__ import annotations

import random

import pytest

from tests.faults.simdisk import PowerLoss, SimDisk
from trilogue.core.errors import Corrupt
from trilogue.store.disk import read_whole, write_whole
from trilogue.store.tail import put_back, rewrite_tail

LOG = f"/d/{7:020d}.log"


def make(content: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir("/d")
    write_whole(disk, LOG, content)
    disk.fsync_dir("/")
    disk.fsync_dir("/d")
    return disk


def test_a_crash_at_any_point_can_be_finished() -> None:
    content = bytes(range(256)) * 20
    for point in range(1, 14):
        disk = make(content)
        disk.operations = 0
        disk.crash_at = point
        try:
            rewrite_tail(disk, "/d", 7, disk.open(LOG, False), 3_000, len(content))
        except PowerLoss:
            disk = disk.crash(random.Random(point))
        for name in disk.listdir("/d"):
            if name.endswith(".tail"):
                put_back(disk, "/d", name)
        assert read_whole(disk, LOG) == content


def test_a_segment_shorter_than_its_tail_expects_is_corrupt() -> None:
    disk = make(b"short")
    write_whole(disk, f"/d/{7:020d}-{100:020d}.tail", b"tail")
    with pytest.raises(Corrupt, match="shorter"):
        put_back(disk, "/d", f"{7:020d}-{100:020d}.tail")
