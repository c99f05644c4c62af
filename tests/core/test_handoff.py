from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import SimDisk
from trilogue.core.record import Carried


@pytest.fixture
def world() -> World:
    return World(Path("/data"), shards=1, disk=SimDisk(), memory=MemoryCheckpoints())


def test_a_shard_hands_off_to_itself(world: World) -> None:
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"a", b"b")
    taker.nack(1, requeue=False)
    taker.nack(2, requeue=False)
    world.loop.run()
    assert world.consume("dead").got == [b"a", b"b"]
    check_books(world, Census(world))


def test_nothing_is_sent_before_its_record_is_on_disk(world: World) -> None:
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"a", b"b")
    taker.nack(1, requeue=False)
    world.loop.turn()                   # its round is written
    taker.nack(2, requeue=False)        # and this one is being collected
    world.loop.turn()
    pair = next(iter(world.broker.shards[0].outbox.pairs.values()))
    assert (len(pair.pending), pair.sent) == (2, 1)
    world.loop.run()
    assert world.consume("dead").got == [b"a", b"b"]


def test_letters_that_make_further_letters(world: World) -> None:
    """Taking one in drops another to a partition that nothing was owed to before."""
    world.declare("topic", queue_type="stream")
    world.declare("second", max_length=1, dead_letter_exchange="", dead_letter_routing_key="topic")
    world.declare("first", max_length=1, dead_letter_exchange="", dead_letter_routing_key="second")
    world.publish("first", b"a", b"b", b"c", b"d")
    world.loop.advance(100)
    assert world.consume("first").got == [b"d"]
    assert world.consume("second").got == [b"c"]
    partition = next(iter(world.broker.topics.values()))[0]
    assert partition.log.end_offset() == 2
    assert not Census(world).under_way()


def test_a_letter_is_read_from_the_log_when_it_is_not_in_memory(world: World) -> None:
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"a", b"b", b"c")
    for tag in (3, 1):
        taker.nack(tag, requeue=False)
    world.loop.turn()
    world.loop.turn()
    world.crash()
    world.loop.run()
    assert sorted([*world.consume("dead").got, *world.consume("q").got]) == [b"a", b"b", b"c"]


def test_a_lost_letter_stops_the_shard_instead_of_spinning(world: World) -> None:
    world.declare("dead", max_length=0, overflow="reject-publish")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"a")
    taker.nack(1, requeue=False)
    world.loop.run()
    pair = next(iter(world.broker.shards[0].outbox.pairs.values()))
    pair.refused[0].run = None
    world.broker.shards[0].outbox.moved[pair.refused[0].source] = pair.refused[0].number.offset      # no message lies there
    world.loop.advance(2_000)
    assert "hand-off" in world.broker.shards[0].stopped


def test_a_refusal_is_logged_without_the_message(world: World) -> None:
    shard = world.broker.shards[0]
    world.declare("dead", max_length=0, overflow="reject-publish")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"x" * 5_000)
    taker.nack(1, requeue=False)
    size = shard.log.segments()[-1].size
    world.loop.advance(5_500)
    assert shard.log.segments()[-1].size - size < 5 * 700
    assert Census(world).under_way() == [b"x" * 5_000]


def test_a_letter_is_delivered_only_when_a_crash_could_not_bring_it_again(world: World) -> None:
    """It would be handed in once more, and its second delivery would not be flagged."""
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    after = world.consume("dead")
    taker = world.consume("q")
    world.publish("q", b"a")
    taker.nack(1, requeue=False)
    chain = next(queue for queue in world.broker.shards[0].queues.values() if queue is not taker.queue).lane(0).chain
    while chain.next == 0:
        world.loop.turn()
    assert after.got == []              # taken in, and not yet on disk
    world.loop.run()
    assert (after.got, after.again) == ([b"a"], [False])


def test_a_letter_that_is_being_carried_forward_waits_for_the_disk(world: World) -> None:
    world.declare("dead")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    taker = world.consume("q")
    world.publish("q", b"a")
    taker.nack(1, requeue=False)
    shard = world.broker.shards[0]
    pair = next(iter(shard.outbox.pairs.values()))
    pair.pending[0].run = None          # as after a start
    pair.reading = True                 # so that it is not sent yet
    world.loop.run()
    pair.reading = False
    shard.append(Carried(pair.pending[0].source, [-1], [-1], taker.runs[0]))
    shard.outbox.send(pair)
    world.loop.run()
    assert not shard.stopped
    assert world.consume("dead").got == [b"a"]
