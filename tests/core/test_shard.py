from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.shard import Route


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())


def test_a_message_for_many_queues_is_written_once(world: World) -> None:
    for k in range(20):
        world.declare(f"q{k}")
        world.admin.bind(world.session, "amq.fanout", f"q{k}", "", {}, False)
    shard = world.broker.shards[0]
    world.publish("", b"warm", exchange="amq.fanout")
    before = shard.log.segments()[-1].size
    world.publish("", b"x" * 1_000, exchange="amq.fanout")
    assert shard.log.segments()[-1].size - before < 1_300
    assert len({queue.lanes[0].chain.extent(1, world.store, b"")[0] for queue in shard.queues.values()}) == 1
    check_books(world, Census(world))


def test_routes_above_four_targets_are_interned() -> None:
    assert [Route(list(range(n))).interned for n in (1, 4, 5)] == [False, False, True]


def test_records_for_a_queue_that_is_gone_do_nothing(world: World) -> None:
    world.declare("q")
    taker = world.consume("q", prefetch=3)
    world.publish("q", b"a", b"b", b"c", b"d")
    held = taker.unacked.take_all()
    world.admin.delete_queue(world.session, "q", False, False)
    for one in held:
        one.lane.owner.settle(one.lane, one.ordinal, 1, 5)
        one.lane.owner.give_back(one.lane, one.ordinal + 1, 1, 5)
        one.lane.owner.reject(one.lane, one.ordinal + 2, 1, 5)
    world.loop.advance(300)
    assert world.broker.shards[0].liveness.total == 0
    world.crash()
    assert not world.broker.shards[0].queues
    check_books(world, Census(world))


def test_a_queue_that_metadata_does_not_have_goes_at_the_start(world: World) -> None:
    """Its declaration was never promised, and was lost."""
    shard = world.broker.shards[0]
    shard.publish(run_of_one(world), Route([999 << 8]))
    world.loop.run()
    world.crash()
    shard = world.broker.shards[0]
    assert (999 in shard.queues, shard.liveness.total) == (False, 0)


def run_of_one(world: World) -> object:
    world.declare("spare")
    world.publish("spare", b"x")
    queue = world.broker.queue(world.broker.catalog.destination("/", "spare").id)
    run = queue.lanes[0].window.entries[0].run.part(0, 1)
    world.admin.delete_queue(world.session, "spare", False, False)
    return run


def test_after_a_replay_without_checkpoints_segments_can_still_go() -> None:
    world = World(Path("/data"), shards=1, segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())
    world.declare("q")
    for k in range(40):
        world.publish("q", b"%d" % k + b"x" * 300)
    world.loop.run()
    world.memory.values = {}
    world.crash()
    shard = world.broker.shards[0]
    assert shard.liveness.bases == [info.base for info in shard.log.segments()]
    taker = world.consume("q")
    taker.ack(40, multiple=True)
    for _ in range(4):
        world.tick()
    assert len(shard.log.segments()) == 1


def test_apply_reads_what_the_record_says_and_nothing_else(world: World) -> None:
    """The same records on another shard, without a catalog, give the same chains."""
    world.declare("q")
    taker = world.consume("q")
    world.publish("q", b"a", b"b", b"c")
    taker.ack(2)
    world.loop.advance(200)
    shard = world.broker.shards[0]
    other = World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints()).broker.shards[0]
    for batch in shard.log.read(0, 1 << 20):
        other.replay_batch(batch, 0)
    [queue], [twin] = shard.queues.values(), other.queues.values()
    for one, same in zip(queue.lanes, twin.lanes, strict=True):
        assert (one.chain.next, one.chain.floor, one.chain.done.lo, one.chain.size, one.chain.delivered_to) == \
            (same.chain.next, same.chain.floor, same.chain.done.lo, same.chain.size, same.chain.delivered_to)
