from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.errors import Unavailable
from trilogue.core.message import Run
from trilogue.core.partition import Head
from trilogue.core.record import QueueGone, message_head, route_part
from trilogue.core.snapshot import item_number


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())


def test_a_checkpoint_between_two_publishes_of_one_batch(world: World) -> None:
    """Read back they are one run, of which the first part is in the checkpoint and the second is not."""
    world.declare("q")
    world.publish("q", b"a", b"b", run=False)
    world.opener.checkpointers[world.broker.shards[0].id].begin()
    world.publish("q", b"c", b"d", run=False)
    world.loop.run()
    assert world.writer.sure == 4
    world.crash()
    assert world.consume("q").got == [b"a", b"b", b"c", b"d"]


def test_a_queue_copied_between_two_publishes_of_one_batch(world: World) -> None:
    """The same, when the queue is copied later than where the recovery begins."""
    for k in range(150):
        world.declare(f"q{k}")
    world.loop.run()
    checkpointer = world.opener.checkpointers[world.broker.shards[0].id]
    checkpointer.begin()
    name = world.broker.catalog.by_id[item_number(checkpointer.keys[-1])].name      # copied last
    world.publish(name, b"a", b"b", run=False)
    while checkpointer.copied < len(checkpointer.keys):
        checkpointer.copy(checkpointer.keys[checkpointer.copied])
        checkpointer.copied += 1
    world.publish(name, b"c", b"d", run=False)
    world.loop.run()
    assert not checkpointer.busy
    world.crash()
    assert world.consume(name).got == [b"a", b"b", b"c", b"d"]


def test_a_stopped_partition_takes_nothing_and_stages_nothing(world: World) -> None:
    world.declare("q")
    shard = world.broker.shards[0]
    world.publish("q", b"a", run=False)
    shard.failed("broken")
    assert len(world.writer.lost) == 1
    with pytest.raises(Unavailable, match="broken"):
        shard.append(QueueGone(1))
    end = shard.log.end_offset()
    world.loop.run()
    assert shard.log.end_offset() == end


def test_a_head_is_encoded_again_whenever_something_in_it_differs() -> None:
    part = route_part([257], -1)
    head = Head(part)
    exchange, key = b"ex" + bytes(0), b"key" + bytes(0)
    base = {"exchange": exchange, "routing_key": key, "origin": 1, "spans": [b"x"], "size": 1}
    runs = [Run(**base), Run(**base), Run(**base, flags=1), Run(**base, priority=2), Run(**{**base, "routing_key": b"other"}),
            Run(**base, key=b"k"), Run(**base, notes=b"n"), Run(**base)]
    for run in runs:
        for delta in (0, 3):
            assert head.encode(run, delta) == message_head(run, delta, part)
    runs[0].deadline_ms = 5
    assert head.encode(runs[0], 3) == message_head(runs[0], 3, part)


def test_time_to_live_becomes_a_deadline_at_append(world: World) -> None:
    queue = world.declare("q")
    world.publish("q", b"a", ttl_ms=500)
    piece = queue.lanes[0].peek()
    assert piece.run.deadline_ms == piece.run.time_ms + 500
