from __future__ import annotations

from pathlib import Path

from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.record import State


def test_the_last_value_of_a_key_counts_and_closed_segments_go() -> None:
    world = World(Path("/data"), segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())
    expected: dict[bytes, bytes] = {}
    for k in range(120):
        key = b"/\0topic%d" % (k % 7)
        value = b"" if k % 5 == 4 else b"%d" % k + b"x" * 200
        world.broker.retained.append(State(key, value))
        if value:
            expected[key] = value
        else:
            expected.pop(key, None)
        if k % 10 == 0:
            world.tick()
        if k % 37 == 36:
            world.loop.run()
            world.crash()
            assert world.broker.retained.values == expected
    world.tick()
    world.tick()
    assert world.broker.retained.log.start_offset() > 0
    world.crash()
    assert world.broker.retained.values == expected
