"""Carrying forward changes where a message lies, and nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, Taker, World
from tests.faults.simdisk import SimDisk

FILL = 30


def world_with(window: int = 1 << 20) -> World:
    return World(Path("/data"), segment_bytes=4_096, shards=1, window=window, disk=SimDisk(), memory=MemoryCheckpoints())


def leave_one(world: World, name: str, body: bytes) -> Taker:
    """A segment in which only the first message is still owed."""
    taker = world.consume(name)
    world.publish(name, body)
    filler = world.declare("filler")
    other = world.consume("filler")
    for k in range(FILL):
        world.publish("filler", b"%d" % k + b"x" * 300)
    other.ack(FILL, multiple=True)
    world.loop.advance(200)
    other.leave()
    assert filler.waiting() == 0
    return taker


def carry(world: World) -> None:
    carrier = next(iter(world.house.carriers.values()))
    before = carrier.carried
    carrier.begin()
    world.loop.run()
    assert carrier.carried > before


def test_a_message_carried_while_it_was_in_memory_is_dead_lettered_from_where_it_lies_now() -> None:
    world = world_with()
    world.declare("dead", max_length=0, overflow="reject-publish")      # so that the letter stays a while
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = leave_one(world, "q", b"letter")
    carry(world)
    for _ in range(4):
        world.tick()
    assert world.broker.shards[0].log.start_offset() > 0
    taker.nack(1, requeue=False)
    world.loop.run()
    check_books(world, Census(world))
    world.crash()
    world.loop.advance(100)
    assert Census(world).under_way() == [b"letter"]
    assert not world.broker.shards[0].stopped


def test_a_read_that_was_under_way_when_the_message_was_carried_is_repeated() -> None:
    world = world_with()
    world.declare("q")
    leave_one(world, "q", b"kept").leave()
    world.crash()
    shard = world.broker.shards[0]
    taker = Taker()
    world.loop.run()
    lane = world.broker.queue(world.broker.catalog.destination("/", "q").id).lanes[0]
    lane.window.clear(0)
    taker.queue = world.broker.consume(world.session, "q", taker)
    assert lane.fetching
    carry_first, world.loop.soon = world.loop.soon, []
    carry(world)
    world.loop.soon += carry_first
    world.loop.run()
    assert (shard.stopped, taker.got) == ("", [b"kept"])


def test_a_hand_off_answered_between_choosing_and_carrying() -> None:
    world = world_with()
    world.declare("dead", max_length=0, overflow="reject-publish")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = leave_one(world, "q", b"letter")
    taker.nack(1, requeue=False)
    world.loop.advance(100)
    carrier = next(iter(world.house.carriers.values()))
    carrier.begin()
    reading, world.loop.soon = world.loop.soon, []
    assert carrier.todo
    world.admin.delete_queue(world.session, "dead", False, False)       # then nobody wants it any more
    world.loop.advance(3_000)
    assert not Census(world).under_way()
    world.loop.soon += reading
    world.loop.advance(200)
    check_books(world, Census(world))


def test_a_message_of_several_queues_and_the_shard_is_carried_for_all_of_them() -> None:
    world = world_with()
    for name in ("dead", "a", "b"):
        world.declare(name, **({"max_length": 0, "overflow": "reject-publish"} if name == "dead" else
                               {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}))
    for name in ("a", "b"):
        world.admin.bind(world.session, "amq.fanout", name, "", {}, False)
    world.publish("", b"both", exchange="amq.fanout")
    taker = leave_one(world, "a", b"second")
    taker.nack(1, requeue=False)
    world.loop.advance(100)
    for _ in range(8):
        world.tick()
        check_books(world, Census(world))
    assert world.broker.shards[0].log.start_offset() > 0
    taker.leave()
    world.crash()
    check_books(world, Census(world))
    assert world.consume("b").got == [b"both"]
    assert world.consume("a").got == [b"second"]
    assert Census(world).under_way() == [b"both"]
