from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.world import World, Writer, body_of
from trilogue.core.duplicates import MARK
from trilogue.core.ports import Lens


class BodyLens(Lens):
    """A message is what its body says, up to a colon."""

    def headers(self, origin: int, span: bytes) -> dict[str, object]:
        return {}

    def identity(self, origin: int, span: bytes, header: str) -> bytes:
        return body_of(span).partition(b":")[0]


class SeeingWorld(World):
    def start(self) -> None:
        super().start()
        self.broker.lens = BodyLens()

    def states(self) -> int:
        return sum(key.startswith(MARK) for shard in self.broker.shards for key in shard.states)


@pytest.fixture
def world(tmp_path: Path) -> SeeingWorld:
    return SeeingWorld(tmp_path / "data")


def test_nothing_is_taken_twice(world: SeeingWorld) -> None:
    queue = world.declare("q", deduplication=True)
    writer = Writer()
    world.publish("q", b"a:1", b"b:1", b"a:2", b":none", b":none", writer=writer)
    assert queue.ready() == 4
    assert world.consume("q").got == [b"a:1", b"b:1", b":none", b":none"]
    assert writer.sure == 5 and not writer.lost_only


def test_the_window_by_number(world: SeeingWorld) -> None:
    queue = world.declare("q", deduplication=True, cache_size=2)
    world.publish("q", b"a", b"b", b"c", b"b", b"a")
    assert world.consume("q").got == [b"a", b"b", b"c", b"a"]
    assert world.states() == 2
    assert queue.published == 4


def test_the_window_by_time(world: SeeingWorld) -> None:
    world.declare("q", deduplication=True, cache_ttl=1_000)
    taker = world.consume("q")
    world.publish("q", b"a:1")
    world.loop.advance(500)
    world.publish("q", b"a:2", b"b:1")
    world.loop.advance(600)
    world.publish("q", b"a:3", b"b:2")
    assert taker.got == [b"a:1", b"b:1", b"a:3"]
    assert world.states() == 2


def test_a_crash_keeps_the_message_and_the_mark_or_neither(world: SeeingWorld) -> None:
    world.declare("q", deduplication=True)
    world.publish("q", b"a:1")
    world.publish("q", b"b:1", run=False)           # never written
    world.crash()
    world.publish("q", b"a:2", b"b:2")
    assert world.consume("q").got == [b"a:1", b"b:2"]


@pytest.mark.parametrize("ticks", [0, 3])
def test_order_and_window_after_a_restart(world: SeeingWorld, ticks: int) -> None:
    """From the log alone, or from a checkpoint."""
    world.declare("q", deduplication=True, cache_size=3)
    world.publish("q", b"c", b"a", b"b")
    for _ in range(ticks):
        world.tick()
    world.restart()
    world.publish("q", b"d")                        # the oldest, c, is forgotten
    world.publish("q", b"a", b"b", b"c")
    assert world.consume("q").got == [b"c", b"a", b"b", b"d", b"c"]


def test_a_deleted_queue_is_forgotten(world: SeeingWorld) -> None:
    world.declare("q", deduplication=True)
    world.publish("q", b"a", b"b")
    assert world.states() == 2
    world.admin.delete_queue(world.session, "q", False, False)
    world.loop.run()
    assert world.states() == 0
    world.declare("q", deduplication=True)
    world.publish("q", b"a")
    assert world.consume("q").got == [b"a"]


def test_dead_letters_and_delayed_messages_are_looked_at_too(world: SeeingWorld) -> None:
    world.declare("q", deduplication=True)
    world.declare("first", dead_letter_exchange="", dead_letter_routing_key="q", message_ttl=10)
    world.publish("first", b"a:1", b"a:2", b"b:1")
    world.loop.advance(100)
    assert world.consume("q").got == [b"a:1", b"b:1"]
    for shard in world.broker.shards:
        assert not shard.outbox.sources()


def test_a_refused_message_is_not_remembered(world: SeeingWorld) -> None:
    world.declare("q", deduplication=True, max_length=1, overflow="reject-publish")
    writer = Writer()
    world.publish("q", b"a", b"b", writer=writer)
    assert writer.lost_only == [2]
    taker = world.consume("q")
    world.publish("q", b"b", b"a", writer=writer)
    assert taker.got == [b"a", b"b"]
