from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.world import MemoryCheckpoints, Taker, World
from tests.faults.simdisk import SimDisk


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, window=500, disk=SimDisk(), memory=MemoryCheckpoints())


def bodies(n: int) -> list[bytes]:
    return [b"%03d" % k + b"x" * 50 for k in range(n)]


def test_what_comes_next_is_returned_first_then_from_the_cursor_on(world: World) -> None:
    queue = world.declare("q")
    taker = world.consume("q", prefetch=5)
    world.publish("q", *bodies(8))
    taker.prefetch = 0
    taker.nack(2)
    taker.nack(4)
    lane = queue.lanes[0]
    assert (lane.cursor, lane.returned.lo, lane.ready(), lane.held) == (5, [1, 3], 5, 3)
    taker.prefetch = 100
    queue.pump()
    world.loop.run()
    assert taker.got[5:] == [bodies(8)[k] for k in (1, 3, 5, 6, 7)]
    assert taker.again[5:] == [True, True, False, False, False]


def test_a_message_that_fell_out_of_memory_is_read_again_for_who_gets_it_next(world: World) -> None:
    queue = world.declare("q")
    taker = world.consume("q")
    for body in bodies(60):
        world.publish("q", body)
    lane = queue.lanes[0]
    assert lane.window.find(0) is None
    taker.prefetch = 0
    taker.leave()
    other = world.consume("q")
    world.loop.run()
    assert other.got == bodies(60)
    assert all(other.again)


def test_a_reader_waits_for_what_is_not_yet_written(world: World) -> None:
    queue = world.declare("q")
    world.publish("q", *bodies(20), run=False)
    queue.lanes[0].window.clear(0)
    taker = Taker()
    taker.queue = world.broker.consume(world.session, "q", taker)
    queue.lanes[0].safe_to = 20
    queue.pump()
    assert (taker.got, queue.lanes[0].fetching) == ([], True)
    world.loop.run()
    assert taker.got == bodies(20)


def test_a_message_that_is_not_where_the_index_says_stops_the_shard(world: World) -> None:
    queue = world.declare("q")
    world.publish("q", *bodies(3))
    lane = queue.lanes[0]
    lane.window.clear(0)
    lane.chain.moved[0] = 3             # there will be the mark of the consumer, but no message
    taker = world.consume("q")
    assert "is not where the index says" in world.broker.shards[0].stopped
    assert (taker.got, taker.gone) == ([], True)


def test_a_missing_index_block_stops_the_shard_and_not_the_loop(world: World) -> None:
    queue = world.declare("q")
    world.publish("q", *bodies(3))
    lane = queue.lanes[0]
    lane.window.clear(0)
    lane.chain.blocks[0].unload()
    taker = world.consume("q")
    assert "missing" in world.broker.shards[0].stopped
    assert taker.gone


def test_the_first_ordinal_at_or_after_an_offset(world: World) -> None:
    queue = world.declare("q")
    world.declare("other")
    for k in range(5):
        world.publish("q", b"%d" % k)
        world.publish("other", b"x")
    lane = queue.lanes[0]
    offsets = [lane.chain.extent(o, world.store, b"")[0] for o in range(5)]
    for ordinal, offset in enumerate(offsets):
        assert lane.ordinal_at(offset) == ordinal
        assert lane.ordinal_at(offset + 1) == ordinal + 1


def test_a_start_reads_no_message_of_a_queue_in_which_nothing_can_expire(world: World) -> None:
    world.declare("q")
    world.declare("timed")
    world.publish("q", *bodies(3))
    world.publish("timed", *bodies(3), ttl_ms=60_000)
    for _ in range(2):                  # from the log, then from a checkpoint
        world.crash()
        windows = [len(queue.lanes[0].window.entries) for queue in world.broker.shards[0].queues.values()]
        assert windows[0] == 0 and windows[1] > 0
        world.tick()
    assert world.consume("q").got == bodies(3)
