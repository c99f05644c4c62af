from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.checkpoint import SLOTS
from trilogue.core.errors import Corrupt


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())


class Torn(MemoryCheckpoints):
    """One slot of every partition cannot be read until it is written anew."""

    def __init__(self, values: dict[bytes, bytes], slot: bytes) -> None:
        super().__init__(values)
        self.slot = slot
        self.cured: set[bytes] = set()

    def bad(self, key: bytes) -> bool:
        return key[8:10] == self.slot and key[:8] not in self.cured

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        if self.bad(prefix):
            raise Corrupt("checksum")
        return super().scan(prefix)

    def get(self, key: bytes) -> bytes | None:
        if self.bad(key):
            raise Corrupt("checksum")
        return super().get(key)

    def erase(self, prefix: bytes) -> None:
        super().erase(prefix)
        self.cured.add(prefix[:8])


@pytest.mark.parametrize("slot", SLOTS)
def test_either_slot_brings_the_same_state_back(world: World, slot: bytes) -> None:
    world.declare("q")
    taker = world.consume("q")
    for k in range(6):
        world.publish("q", b"%d" % k, b"%d+" % k)
        taker.ack(k * 2 + 1)
        world.tick()
    world.memory = Torn(world.memory.values, slot)
    world.crash()
    assert world.consume("q").got == [b"%d+" % k for k in range(6)]
    check_books(world, Census(world))


def test_a_segment_goes_only_when_both_slots_can_do_without_it() -> None:
    world = World(Path("/data"), shards=1, segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())
    for name in ("q", "filler"):
        world.declare(name)
    taker, other = world.consume("q"), world.consume("filler", no_ack=True)
    world.publish("q", *[b"%d" % k for k in range(40)])
    for k in range(8):
        taker.ack(k * 5 + 5, multiple=True)
        for _ in range(20):                 # a segment in which nothing is owed, but that is written
            world.publish("filler", b"x" * 300)
        world.loop.advance(200)
        world.tick()
        for slot in SLOTS:
            other = World.__new__(World)
            other.__dict__.update(world.__dict__)
            other.disk = copy.deepcopy(world.disk)
            other.disk.killed()
            other.memory = Torn(dict(world.memory.values), slot)
            if k:                       # the first time there is only one
                other.start()
                assert other.consume("q").got == taker.got[k * 5 + 5:]
    assert world.broker.shards[0].log.start_offset() > 0


def test_a_slot_is_committed_only_when_the_log_is_on_disk_that_far(world: World) -> None:
    world.declare("q")
    world.publish("q", b"a", run=False)
    checkpointer = world.opener.checkpointers[world.broker.shards[0].id]
    checkpointer.begin()
    while checkpointer.busy:
        if world.memory.flying:
            assert world.broker.shards[0].log.synced_offset() >= world.broker.shards[0].next
        world.loop.turn()
    assert checkpointer.committed >= 0


def test_nothing_new_for_either_slot_is_not_copied(world: World) -> None:
    world.declare("q")
    for _ in range(4):
        world.tick()
    assert not any(checkpointer.begin() for checkpointer in world.opener.checkpointers.values())


def test_without_checkpoints_a_log_that_lost_its_beginning_is_refused() -> None:
    world = World(Path("/data"), shards=1, segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())
    world.declare("q")
    taker = world.consume("q")
    for k in range(30):
        world.publish("q", b"x" * 400)
        taker.ack(k + 1)
    for _ in range(4):
        world.tick()
    assert world.broker.shards[0].log.start_offset() > 0
    world.memory.values = {}
    with pytest.raises(Corrupt, match="no longer begins at 0"):
        world.crash()


def test_many_queues_are_copied_in_slices_while_the_partition_goes_on(world: World) -> None:
    names = [f"q{k:03}" for k in range(250)]
    for name in names:
        world.declare(name)
        world.publish(name, b"before")
    checkpointer = world.opener.checkpointers[world.broker.shards[0].id]
    checkpointer.begin()
    assert checkpointer.busy
    turns = 0
    while checkpointer.busy:
        for name in (names[0], names[120], names[249]):
            world.publish(name, b"%d" % turns, run=False)
        world.loop.turn()
        turns += 1
    world.loop.run()
    world.crash()
    for name in (names[0], names[120], names[249]):
        assert world.consume(name).got == [b"before", *[b"%d" % k for k in range(turns)]]
    assert world.consume(names[50]).got == [b"before"]
