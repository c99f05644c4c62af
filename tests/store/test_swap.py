"""A decided swap is finished by the next start, as often as it takes; an undecided one is not."""

from __future__ import annotations

import random

from tests.faults.simdisk import PowerLoss, SimDisk
from trilogue.store.disk import read_whole, write_whole
from trilogue.store.swap import clean_path, decide_swap, finish_swap


def test_after_a_crash_the_old_segments_are_there_or_the_new_one() -> None:
    outcomes = set()
    for point in range(1, 16):
        disk = SimDisk()
        disk.mkdir("/d")
        for base in (0, 10, 20, 30):
            write_whole(disk, f"/d/{base:020d}.log", b"old %d" % base)
        write_whole(disk, clean_path("/d", 0), b"new")
        disk.fsync_dir("/")
        disk.fsync_dir("/d")
        disk.operations = 0
        disk.crash_at = point
        try:
            finish_swap(disk, "/d", decide_swap(disk, "/d", 0, 30))
        except PowerLoss:
            disk = disk.crash(random.Random(point))
        for name in disk.listdir("/d"):
            if name.endswith(".swap"):
                finish_swap(disk, "/d", name)
        logs = {name: read_whole(disk, f"/d/{name}") for name in disk.listdir("/d") if name.endswith(".log")}
        old = {f"{base:020d}.log": b"old %d" % base for base in (0, 10, 20, 30)}
        new = {f"{0:020d}.log": b"new", f"{30:020d}.log": b"old 30"}
        assert logs in (old, new)
        outcomes.add(len(logs))
    assert outcomes == {2, 4}
