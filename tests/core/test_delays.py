from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())


def delay(world: World, body: bytes, ms: int, key: bytes = b"q") -> None:
    span = native_span(b"", body)
    world.broker.publish_delayed(world.session, world.writer, Run(b"", key, ORIGIN_NATIVE, [span], len(span), PERSISTENT), ms, True)


def test_in_the_order_in_which_they_are_due(world: World) -> None:
    world.declare("q")
    for ms in (300, 100, 200, 0):
        delay(world, b"%d" % ms, ms)
    world.loop.advance(50)
    taker = world.consume("q")
    assert taker.got == [b"0"]
    world.loop.advance(160)
    assert taker.got == [b"0", b"100", b"200"]
    world.loop.advance(100)
    assert taker.got == [b"0", b"100", b"200", b"300"]
    check_books(world, Census(world))


def test_due_before_it_is_written(world: World) -> None:
    world.declare("q")
    delay(world, b"now", 0)
    world.broker.shards[0].delays.check()       # the record is still being collected
    world.loop.advance(50)
    assert world.consume("q").got == [b"now"]


def test_due_while_the_broker_was_down(world: World) -> None:
    world.declare("q")
    delay(world, b"x", 500)
    world.loop.run()
    world.stop()
    world.ms += 10_000
    world.start()
    world.loop.run()
    assert world.consume("q").got == [b"x"]
    check_books(world, Census(world))


def test_without_anywhere_to_go_it_is_dropped(world: World) -> None:
    delay(world, b"x", 100, b"nowhere")
    world.loop.advance(200)
    assert not Census(world).under_way()
    check_books(world, Census(world))


def test_exactly_once_wherever_the_broker_is_killed(world: World) -> None:
    world.declare("q")
    for turns in range(12):
        body = b"%d" % turns
        delay(world, body, 100)
        world.loop.advance(99)
        world.loop.ms += 1
        while world.loop.later and world.loop.later[0][0] <= world.loop.ms:
            world.loop.later.pop(0)[3].fire()
        for _ in range(turns):
            world.loop.turn()
        world.crash()
        world.loop.advance(2_000)
        taker = world.consume("q")
        assert taker.got == [body]
        taker.ack(1)
        world.loop.advance(200)
        taker.leave()
