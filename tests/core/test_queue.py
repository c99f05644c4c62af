"""Who gets what next, what expires, what is over a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, Taker, World
from tests.faults.simdisk import SimDisk
from trilogue.core.errors import AccessRefused


@pytest.fixture
def world() -> World:
    return World(Path("/data"), disk=SimDisk(), memory=MemoryCheckpoints())


def numbered(lo: int, hi: int) -> list[bytes]:
    return [b"m%d" % k for k in range(lo, hi)]


def test_whoever_waits_gets_it_even_from_a_queue_that_may_hold_nothing(world: World) -> None:
    queue = world.declare("q", max_length=1)
    taker = world.consume("q")
    world.publish("q", *numbered(0, 5))
    assert taker.got == numbered(0, 5)
    taker.prefetch = 5
    world.publish("q", *numbered(5, 9))
    assert queue.ready() == 1
    assert taker.got == numbered(0, 5)


def test_no_time_to_live_still_reaches_who_waits(world: World) -> None:
    queue = world.declare("q", message_ttl=0)
    taker = world.consume("q", prefetch=1)
    world.publish("q", *numbered(0, 3))
    assert taker.got == [b"m0"]
    world.loop.advance(1)
    assert queue.ready() == 0


def test_a_sooner_deadline_in_another_lane_is_not_slept_through(world: World) -> None:
    queue = world.declare("q", max_priority=2)
    world.publish("q", b"long", ttl_ms=10_000)
    world.publish("q", b"short", ttl_ms=100, priority=2)
    world.loop.advance(150)
    assert queue.ready() == 1


def test_what_comes_to_the_head_is_looked_at(world: World) -> None:
    """The first message is with a consumer that keeps it long: the next one expires in its own time."""
    world.declare("dead")
    queue = world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    world.publish("q", b"long", ttl_ms=10_000)
    world.publish("q", b"short", ttl_ms=100)
    world.consume("q", prefetch=1)
    world.loop.advance(150)
    assert (queue.ready(), world.consume("dead").got) == (0, [b"short"])


def test_one_timer_per_deadline(world: World) -> None:
    queue = world.declare("q", max_priority=9)
    for priority in range(9, 0, -1):
        world.publish("q", b"x", ttl_ms=1_000 + priority * 10, priority=priority)
    world.loop.advance(900)
    for _ in range(5):
        queue.watch_head()
    assert len(world.loop.later) <= 9
    world.loop.advance(500)
    assert (queue.ready(), world.loop.later) == (0, [])


def test_expired_while_the_broker_was_down_is_dead_lettered_by_its_bindings(world: World) -> None:
    """Nobody decides anything before all of routing is known."""
    world.admin.declare_exchange(world.session, "dlx", "direct", True, False, False, {})
    world.declare("dead")
    world.admin.bind(world.session, "dlx", "dead", "gone", {}, False)
    world.declare("q", dead_letter_exchange="dlx", dead_letter_routing_key="gone", message_ttl=500)
    world.declare("short", dead_letter_exchange="dlx", dead_letter_routing_key="gone")
    world.publish("q", b"a")
    world.publish("short", b"b", ttl_ms=300)
    world.stop()
    world.ms += 5_000
    world.start()
    world.loop.run()
    assert sorted(world.consume("dead").got) == [b"a", b"b"]


def test_a_mark_is_on_disk_before_what_waited_is_delivered(world: World) -> None:
    """The consumer came just before more was published: what it is given first must say after a crash that it was."""
    world.declare("q")
    world.publish("q", *numbered(0, 3))
    taker = Taker()
    taker.queue = world.broker.consume(world.session, "q", taker)
    world.publish("q", b"more", run=False)
    assert taker.got == []
    world.loop.run()
    assert taker.got == [*numbered(0, 3), b"more"]
    world.crash()
    taker = world.consume("q")
    assert taker.again == [True] * 4


def test_an_exclusive_consumer_is_found_behind_somebody_who_only_gets_one(world: World) -> None:
    world.declare("q")
    world.consume("q", exclusive=True)
    queue = world.broker.queue(world.broker.catalog.destination("/", "q").id)
    queue.consumers.insert(0, Taker(once=True))
    with pytest.raises(AccessRefused):
        world.consume("q")


def test_a_rewind_leaves_alone_what_somebody_holds(world: World) -> None:
    queue = world.declare("q", retention=60_000)
    begin = world.loop.ms
    first = world.consume("q", prefetch=6)
    world.publish("q", *numbered(0, 10))
    first.ack(1)
    first.ack(4)
    first.prefetch = 0
    world.loop.advance(200)
    second = world.consume("q", prefetch=2)
    assert world.admin.rewind_queue(world.session, "q", begin - 1) == 2
    world.loop.run()
    got = second.got
    while second.unacked.count:
        second.ack(second.tag, multiple=True)
        world.loop.run()
    held = {first.got[held.tag - 1 + k] for held in first.unacked.held for k in range(held.count)}
    assert not held & set(got)
    assert sorted(held | set(got)) == numbered(0, 10)
    assert (queue.ready(), queue.waiting()) == (0, len(held))


def test_refused_messages_that_fell_out_of_memory_are_read_before_they_are_dead_lettered() -> None:
    world = World(Path("/data"), window=1_000, disk=SimDisk(), memory=MemoryCheckpoints())
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    sent = [b"%02d" % k + b"x" * 200 for k in range(40)]
    for body in sent:
        world.publish("q", body)
    for tag in range(1, 41):
        taker.nack(tag, requeue=False)
    world.loop.advance(100)
    assert world.consume("dead").got == sent
    check_books(world, Census(world))


def test_purged_bytes_and_messages_are_counted(world: World) -> None:
    queue = world.declare("q")
    taker = world.consume("q", prefetch=3)
    world.publish("q", *numbered(0, 10))
    taker.nack(2)
    taker.leave()
    taker = world.consume("q", prefetch=2)
    assert queue.purge() == 8
    assert (queue.ready(), queue.waiting(), queue.size()) == (0, 2, sum(4 + len(body) for body in taker.got))
    taker.ack(2, multiple=True)
    world.loop.advance(200)
    assert queue.size() == 0
    check_books(world, Census(world))
