from __future__ import annotations

from pathlib import Path

from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk


def test_any_number_of_lives_and_checkpoints_brings_the_same_catalog_back() -> None:
    world = World(Path("/data"), segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())
    for life in range(8):
        world.declare(f"q{life}")
        world.admin.declare_exchange(world.session, f"x{life}", "direct", True, False, False, {})
        world.admin.bind(world.session, f"x{life}", f"q{life}", "k", {}, False)
        for _ in range(life % 4):
            world.tick()
        if life > 3:
            world.admin.delete_queue(world.session, f"q{life - 3}", False, False)
        world.loop.run()
        items = world.broker.catalog.items()
        assert world.broker.router.route("/", f"x{life}", b"k", {})
        world.crash()
        assert world.broker.catalog.items() == items
        assert world.broker.router.route("/", f"x{life}", b"k", {})
    assert world.broker.metadata.change(None) is False
