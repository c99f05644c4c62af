from __future__ import annotations

from pathlib import Path

import cbor2
import pytest

from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.errors import Corrupt
from trilogue.core.handoff import HandOff, Outbox
from trilogue.core.record import Letter, Number
from trilogue.core.snapshot import copy_outbox, copy_queue, item_key, item_number, restore_outbox, restore_queue


def test_a_queue_comes_back_as_it_was() -> None:
    world = World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())
    queue = world.declare("q", max_priority=3, retention=60_000)
    taker = world.consume("q")
    for priority in (0, 2, 3):
        world.publish("q", b"a", b"b", b"c", priority=priority)
    taker.ack(2)
    taker.nack(5)
    world.loop.advance(200)
    data = copy_queue(queue, 77, b"p", [], [])
    twin = type(queue)(queue.id, queue.home, queue.source, type(queue.liveness)())
    restore_queue(twin, data)
    assert (twin.applied_to, twin.keeps, len(twin.lanes)) == (77, True, 3)
    assert copy_queue(twin, 77, b"p", [], []) == data
    assert twin.liveness.total == 9
    with pytest.raises(Corrupt, match="format"):
        restore_queue(twin, b"\x09" + data[1:])
    for cut in range(len(data)):
        with pytest.raises(Corrupt):
            restore_queue(type(queue)(queue.id, queue.home, queue.source, type(queue.liveness)()), data[:cut])


def test_an_outbox_comes_back_as_it_was() -> None:
    world = World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())
    outbox = Outbox(world.broker.shards[0], world.broker.exchange)
    pair = outbox.pair(17)
    pair.last = Number(1, 2, 3)
    pair.pending = [HandOff(Number(2, 5, 0), Letter(17, [257], b"x", b"k", b"n"), 40, None)]
    pair.refused = [HandOff(Number(2, 4, 1), Letter(17, [], b"", b"", b""), 41, None)]
    outbox.moved = {40: 90}
    twin = Outbox(world.broker.shards[0], world.broker.exchange)
    restore_outbox(twin, cbor2.loads(cbor2.dumps(copy_outbox(outbox))))
    assert copy_outbox(twin) == copy_outbox(outbox)
    assert twin.sources() == [40, 41]
    assert twin.located(40) == 90


def test_keys_order_like_their_numbers() -> None:
    keys = [item_key(b"Q", number) for number in (0, 1, 255, 256, 1 << 40)]
    assert keys == sorted(keys)
    assert [item_number(key) for key in keys] == [0, 1, 255, 256, 1 << 40]
